"""Runs tests against a changed copy of the sources: what `named.py` and `sample.py` share.

A parent process imports what is slow (torch, transformers, scikit-learn, pytest) and never fairsilo itself. For each
mutant it forks a child that imports fairsilo from the changed copy and runs the tests that concern the changed file.
"""

from __future__ import annotations

import ast
import compileall
import importlib
import os
import py_compile
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "fairsilo"
SLOW_IMPORTS = ("numpy", "torch", "sklearn.mixture", "PIL.Image", "pytest", "yaml", "safetensors.torch")
SLOW_IMPORTS += ("transformers.models.clip.modeling_clip", "transformers.models.vit.modeling_vit")
SLOW_IMPORTS += ("transformers.models.clip.tokenization_clip", "typer", "rich.console")

CAUGHT, SURVIVED, TIMED_OUT, BROKEN = "caught", "survived", "timed out", "no test ran"


def warm() -> None:
    """Import what every child needs; a library that is missing is missing there too."""
    for name in SLOW_IMPORTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                importlib.import_module(name)
            except ImportError:
                continue


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of src, compiled so that a changed file is seen by its content and not by its date."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        compileall.compile_dir(copy, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        yield copy


def outcome(copy: Path, tests: Iterable[str], limit: float, log: Path) -> str:
    """What the tests say of the copy. They stop at the first failure."""
    child = os.fork()
    if child == 0:
        _run_tests(copy, list(tests), log)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            # a test that is asked for by name and whose file, or conftest.py, cannot be imported: 4 instead of 2
            if code == 4 and re.search("^ERROR tests/|while loading conftest", log.read_text(errors="replace"), re.M):
                return CAUGHT
            # 1: a test failed; 2: the sources could not be imported; below 0: the interpreter died
            return {0: SURVIVED, 4: BROKEN, 5: BROKEN}.get(code, CAUGHT)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return TIMED_OUT


def _run_tests(copy: Path, tests: list[str], log: Path) -> None:
    """The child: never returns."""
    try:
        os.setsid()
        with log.open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        os.chdir(ROOT)
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(copy))
        os.environ["PYTHONPATH"] = str(copy)  # for the processes that tests start
        import pytest

        assert "fairsilo" not in sys.modules
        quiet = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
        quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins that the parent has imported
        code = int(pytest.main([*quiet, *tests]))
    except BaseException:  # noqa: BLE001 - nothing may return into the parent's code
        traceback.print_exc()
        code = 3
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# ----------------------------------------------------------------------------------------------- which tests concern it
@cache
def imports_of(file: Path) -> frozenset[str]:
    """The modules of fairsilo that a file imports, as paths below the package without `.py`."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fairsilo."):
            module = str(node.module).removeprefix("fairsilo.").replace(".", "/")
            found |= {module, *(f"{module}/{alias.name}" for alias in node.names)}
    return frozenset(found)


def module_of(file: Path) -> str:
    return str(file.relative_to(PACKAGE).with_suffix(""))


@cache
def test_files() -> tuple[Path, ...]:
    return tuple(sorted((ROOT / "tests").rglob("test_*.py")))


def importers(file: Path) -> list[Path]:
    """The parts that import a file of methods/, directly or through others; the file itself where it is a part."""
    wanted, found = {module_of(file)}, {file}
    while True:
        more = {
            other for other in (PACKAGE / "methods").rglob("*.py") if other not in found and imports_of(other) & wanted
        } - {PACKAGE / "methods" / "catalogue.py"}
        if not more:
            return sorted(one for one in found if one.parent.name == "parts")
        found |= more
        wanted |= {module_of(one) for one in more}


@cache
def entries() -> dict[str, frozenset[str]]:
    """Entry -> the part classes in it, read from the catalogue's text: fairsilo is not imported here."""
    text = (PACKAGE / "methods" / "catalogue.py").read_text(encoding="utf-8")
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Entry":
            name = ast.literal_eval(node.args[0])
            found[name] = frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name))
    return found


@cache
def recorded() -> dict[str, frozenset[str]]:
    """Entry or composition that has recorded numbers -> the part classes in it."""
    lines = (ROOT / "tests" / "laws" / "records.json").read_text(encoding="utf-8").splitlines()
    names = [match[1] for line in lines if (match := re.match(r'"([^"]+)": \{', line))]
    used: dict[str, frozenset[str]] = {}
    for name in names:
        pieces = [piece.strip().partition("(")[0] for piece in name.split("|")]
        used[name] = frozenset().union(*(entries().get(piece, frozenset()) for piece in pieces))
    return used


@cache
def naming() -> dict[str, frozenset[str]]:
    """Test -> the entries that its text names. Most tests name methods by their text and import no part."""
    found = {}
    for file in sorted((ROOT / "tests").glob("test_*.py")):
        path = str(file.relative_to(ROOT))
        for node in ast.parse(file.read_text(encoding="utf-8")).body if path not in OUTSIDE else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                constants = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
                words = {word for one in constants if isinstance(one, str) for word in re.findall(r"[\w-]+", one)}
                found[f"{path}::{node.name}"] = frozenset(words & entries().keys())
    return found


def tests_naming(names: set[str]) -> list[str]:
    """Tests that name one of these entries: those of refusals, which train nothing, then those that name few others."""
    tests = sorted((test for test, named in naming().items() if named & names), key=lambda test: len(naming()[test]))
    refusals = [test for test in tests if re.search("refus|cannot|has_no|go_together|is_said", test)]
    return list(dict.fromkeys([*refusals, *tests[:MOST]]))


FEW = ("fedavg", "scaffold", "fedheal", "faa(warmup=0)", "fedrod | fedrep", "fedbn", "ditto", "fedsam", "moon")
FEW += ("grace(align=adversarial) | tent", "fedclip", "fedavg-ft", "fine-tune", "fedproto(share_model=false)")
# slow files come last, and only where they are about the changed file
LATE = ("tests/test_fedag.py", "tests/test_backbones.py", "tests/test_personal.py", "tests/test_trained.py")
LATE += ("tests/test_foundation.py", "tests/test_comparison.py", "tests/test_diagnostics.py", "tests/test_cli.py")
# about commands, pages and processes: they name methods only to have something to run
OUTSIDE = tuple(
    f"tests/test_{name}.py"
    for name in ("cli", "comparison", "diagnostics", "docs", "engines", "events", "figures", "foundation", "odd_input")
)
OUTSIDE += tuple(f"tests/test_{name}.py" for name in ("report_page", "run_folder", "scripts", "tables", "trained"))
MOST = 12  # tests that name a method and train it
OF_CORE = ("tests/test_vectors.py", "tests/test_silo.py", "tests/test_part.py", "tests/test_streams.py")
OF_CORE += ("tests/test_server_rules.py", "tests/test_formulas.py", "tests/test_gaps.py", "tests/test_networks.py")
OF_CORE += ("tests/test_declarations.py", "tests/test_chance.py", "tests/test_rates.py")
OF_CORE += tuple(
    f"tests/test_{name}"
    for name in (
        "engines.py::test_a_diverging_silo_is_caught_at_home",
        "personal.py::test_best_is_by_validation_and_last_is_last",
        "tasks.py::test_whole_numbers_are_classes_only_where_the_task_says_so",
    )
)
LAWS_OF_CORE = tuple(
    f"tests/laws/test_laws.py::test_{name}"
    for name in (
        "what_is_left_after_a_bad_update_is_the_mean_of_the_others",
        "bad_updates_are_left_out_named_and_counted[scaffold]",
        "below_quorum_the_run_stops_and_can_be_resumed[fedprox]",
        "partial_participation[fedavg]",
        "the_learning_rate_of_a_round_is_the_scheduled_one_everywhere[fedavg]",
        "a_crash_at_any_stage_and_resume_gives_the_same_numbers[scaffold]",
        "a_kept_optimiser_survives_resumption",
    )
)
LAWS_OF_CORE += tuple(
    f"tests/laws/test_attachments.py::test_any_flaw_in_what_a_part_{name}"
    for name in ("shares_is_that_silos_failure[harmofl-drop]", "attaches_is_that_silos_failure[scaffold]")
)


def tests_for(file: Path) -> list[str]:
    """Unit tests of the file, recorded numbers of the methods that use it, then slower tests about it."""
    module = module_of(file)
    near = {module, *(module_of(part) for part in importers(file))} if module.startswith("methods") else {module}
    about = [str(test.relative_to(ROOT)) for test in test_files() if imports_of(test) & near]
    about += [str(test.relative_to(ROOT)) for test in test_files() if test.stem == f"test_{file.stem}"]
    units = [one for one in about if not one.startswith("tests/laws") and one not in LATE]
    late = [one for one in about if one in LATE]
    if not module.startswith("methods"):
        # what most tests import is not what they are about
        late = late if len(about) <= MOST else []
        return without_pieces([*numbers_of(FEW), *OF_CORE, *LAWS_OF_CORE, *units, *late])
    classes = {
        node.name
        for part in importers(file)
        for node in ast.walk(ast.parse(part.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    using = [name for name, parts in recorded().items() if parts & classes][:14]
    named = tests_naming({name for name, parts in entries().items() if parts & classes})
    quick = ("tests/test_formulas.py", "tests/test_server_formulas.py", "tests/test_server_rules.py")
    units = ["tests/test_part.py", "tests/test_methods.py", *units]  # which name methods by their text
    golden = "tests/golden/test_golden.py::test_golden"  # by the text of a method, so no import tells which
    return without_pieces([*quick, *numbers_of(using or FEW), *units, *repeats_of(using), *named, golden, *late])


def without_pieces(tests: Iterable[str]) -> list[str]:
    """Each test once: none by its name whose whole file is there."""
    once = list(dict.fromkeys(tests))
    return [test for test in once if "::" not in test or test.partition("::")[0] not in once]


def numbers_of(names: Iterable[str]) -> list[str]:
    return [f"tests/laws/test_records.py::test_numbers_are_those_that_were_recorded[{name}]" for name in names]


def repeats_of(names: Iterable[str]) -> list[str]:
    """A law for methods around a CLIP or a ViT, whose recorded numbers are compared on the machine they are from."""
    text = (PACKAGE / "methods" / "catalogue.py").read_text(encoding="utf-8")
    around = set(re.findall(r'Entry\(\s*"([^"]+)"(?:(?!Entry\().)*?\bmodel="tiny', text, re.DOTALL))
    law = "tests/laws/test_laws.py::test_same_seed_same_numbers_other_seed_others"
    return [f"{law}[{name}]" for name in names if name in around][:2]
