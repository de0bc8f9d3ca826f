"""The pages about the methods are what the catalogue says now, and the examples of all pages run as printed."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fairsilo.config import all_settings, experiment
from fairsilo.core.messages import SHOWN
from fairsilo.data import datasets
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.methods.text import method
from fairsilo.models.described import own_models
from fairsilo.protocols import PROTOCOLS
from fairsilo.tasks.augmentation import CHANGES, SETS

ROOT = Path(__file__).resolve().parent.parent


def load() -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs"))  # where its own modules are
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load()
errors = sys.modules["error_pages"]  # beside it


@pytest.mark.slow
def test_the_committed_pages_are_what_the_generator_writes_now() -> None:
    assert not (stale := generate.stale()), f"{', '.join(stale)} differ from the catalogue; run `make docs`"


def test_the_index_lists_every_method() -> None:
    index = (ROOT / "docs" / "methods" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[`([^`]+)`\]\(\1\.md\) \|", index, re.MULTILINE) == list(CATALOGUE)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"])
def test_links_of_pages_outside_the_site_lead_somewhere(page: str) -> None:
    """Those of docs/ are checked when the site is built."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if "://" not in link and path:
            assert (ROOT / page).parent.joinpath(path).exists(), link
        if anchor and path.endswith(".md"):
            there = (ROOT / page).parent.joinpath(path).read_text(encoding="utf-8")
            named = re.findall(r"^#+ (.*)$", there, re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in named], link


def test_the_site_is_refused_with_a_link_that_leads_to_no_file(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")  # `make site` installs it
    hooks = importlib.import_module("hooks")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="tasks/a%20b.html#part"><a href="https://pytorch.org"><a href="#top">'
    )
    (tmp_path / "tasks" / "a b.html").write_text('<a href="../index.html"><img src="gone.svg"><a href="../tasks">')
    assert hooks.dead_links(tmp_path) == ["tasks/a b.html -> ../tasks", "tasks/a b.html -> gone.svg"]
    text = "[there](docs/notebooks), [here](docs/using.md#use)"
    shown = hooks.moved(text, "README.md", Path(), lambda path: path.startswith("notebooks/"))
    assert shown == "there (`docs/notebooks`), [here](using.md#use)"


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_page_says_what_the_catalogue_says(name: str) -> None:
    found = generate.described(CATALOGUE[name])
    page = generate.method_page(found)
    facts = [found["title"], found["idea"], found["paper"], *found["formulas"], *found["parts"]]
    facts += [*found["sends"], *found["keeps"], f"about the {found['results_about']} model"]
    for fact in facts:
        assert fact in page
    for item in found["settings"]:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{item['name']}` |"))
        assert len(re.findall(r"(?<!\\)\|", row)) == 7
    assert ("sees each silo's update" in page) == found["individual_updates"]
    assert ("data.server=PATH" in page) == any("server-data" in part.needs for part in CATALOGUE[name].parts)


@pytest.mark.parametrize("name", datasets.names())
def test_a_page_says_what_is_known_of_a_data_set(name: str) -> None:
    facts = datasets.about(name)
    page = generate.data_page(name, facts)
    forms = [layout.words for layout in datasets.layouts(name)]
    for fact in (facts.title, facts.licence, facts.citation, facts.obtain, facts.task, *facts.protocols, *forms):
        assert fact in page
    for domain, count in facts.domains.items():
        assert f"| `{domain}` | {count or 'not fixed'} |" in page
    words = shlex.split(next(line for line in page.splitlines() if line.startswith("fairsilo run")))
    assert experiment({}, words[2:]).data.name == name
    assert f"[`{name}`]({name}.md)" in generate.data_index()


@pytest.mark.parametrize("name", own_models())
def test_a_page_says_what_the_registry_says_of_a_model(name: str) -> None:
    facts = own_models()[name]
    page = (ROOT / generate.MODEL / generate.file_of(name)).read_text(encoding="utf-8")
    for fact in (facts["about"], facts["takes"], facts["weights"], *facts["tasks"]):
        assert fact in page
    for item in facts["settings"]:
        assert f"| `{item['name']}` | `{generate.written(item['default'])}` |" in page
    if facts["parameters"]:  # the registry's number is the one of the network as it was built for the page
        assert f"Parameters: {facts['parameters']:,} with {facts['classes']} classes" in page
    words = shlex.split(next(line for line in page.splitlines() if line.startswith("fairsilo run")))
    assert experiment({}, words[2:]).model == name
    overview = (ROOT / generate.MODELS).read_text(encoding="utf-8")
    assert f"[`{name}`](models/{generate.file_of(name)})" in overview


def test_protocols_that_pages_name_exist() -> None:
    for name in datasets.names():
        for text in datasets.about(name).protocols:
            for protocol in re.findall(r"data\.protocol=([\w-]+)", text):
                assert protocol in PROTOCOLS


def test_the_page_of_settings_has_a_row_for_each() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", generate.settings_page(), re.MULTILINE)
    names = [one["name"] for one in all_settings()]
    assert rows == [*names, *(kind.name for kind in CHANGES), *SETS]


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_command_of_a_page_is_understood(name: str) -> None:
    words = shlex.split(generate.command(generate.described(CATALOGUE[name])))
    assert words[:2] == ["fairsilo", "run"]
    chosen = experiment({}, words[2:])
    assert method(chosen.method).parts == CATALOGUE[name].make().parts


@pytest.mark.slow
def test_writing_repairs_and_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "model_page", lambda name: name)  # which builds every network
    monkeypatch.setattr(generate, "models_page", lambda: "models")
    (tmp_path / "docs" / "methods").mkdir(parents=True)
    (tmp_path / generate.THREATS).write_text(f"before\n{generate.BEGIN}\nold\n{generate.END}\nafter\n")
    (tmp_path / "docs" / "methods" / "gone.md").write_text("a method that is no more\n")
    stale = generate.stale(tmp_path)
    assert {"docs/threats.md", "docs/methods/gone.md", "docs/methods/fedavg.md", "docs/methods/README.md"} <= set(stale)
    generate.write(tmp_path)
    assert generate.stale(tmp_path) == []
    assert not (tmp_path / "docs" / "methods" / "gone.md").exists()
    page = (tmp_path / generate.THREATS).read_text()
    assert page.startswith("before\n")
    assert page.endswith(f"{generate.END}\nafter\n")
    assert "old" not in page.splitlines()


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="must hold <!-- methods -->"):
        generate.with_table(generate.THREATS, "nothing here", "")


def test_the_threat_model_has_a_row_for_each_method() -> None:
    """What the server needs of single silos is what keeps a method from secure aggregation."""
    rows = {name: generate.revealed(CATALOGUE[name])[1:] for name in CATALOGUE}
    assert rows["fedavg"] == ["-", "its update", "-", "-"]
    assert rows["local"] == ["-", "-", "-", "its model at the silo"]
    assert rows["scaffold"][1].startswith("its update; the change of its control variate")
    assert rows["scaffold"][2:] == ["to each silo the mean of the control variates", "control variate c_i at the silo"]
    assert rows["fedmix"][0] == rows["fedmix"][2] != "-"
    assert rows["vit-central"][0] == "all data, to one place"
    for name, entry in CATALOGUE.items():
        shown = {one.words for part in entry.parts for one in part.about.sends if SHOWN in one.name}  # for the report
        if entry.make().secure_aggregation:
            assert rows[name][0] in {"-", *shown} or name == "fedmtl"  # which needs models with its regularizer only
        else:
            assert rows[name][0] != "-"


def test_values_are_written_as_they_are_given() -> None:
    written = [generate.written(value) for value in (1, True, False, None, 0.0001, 2.0, "auto")]
    assert written == ["1", "true", "false", "none", "0.0001", "2", "auto"]
    assert generate.table(["a"], [["x | y\nz"]]) == "| a |\n|---|\n| x \\| y z |"


def test_sentences_of_the_troubleshooting_page_are_said_somewhere() -> None:
    """What stands in capitals is the reader's; all else is as the sources have it."""
    said = []
    for path in (ROOT / "src" / "fairsilo").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                said.append(node.value)
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    for title in ("Settings and methods", "Data"):
        rows = page.partition(f"## {title}\n")[2].partition("\n## ")[0].strip().splitlines()[2:]
        assert rows
        for row in rows:
            sentence = row.split(" | ")[0].removeprefix("| ")
            for piece in re.split(r"\b[A-Z]+\b", sentence):
                words = piece.strip(" :;?=`")
                assert any(words in one for one in said), f"{words!r} of {sentence!r} is said nowhere"


def test_a_notebook_has_the_blocks_of_its_page() -> None:
    page = (
        "# One\n\nwords\n\n<!-- slow -->\n```python\nx = 1\nprint(x)\n```\n\nmore\n\n```bash\nls\n```\n\n```\na\n```\n"
    )
    found = json.loads(generate.notebook(page))
    kinds = [(cell["cell_type"], "".join(cell["source"])) for cell in found["cells"]]
    assert kinds == [
        ("markdown", "# One\n\nwords"),
        ("code", "x = 1\nprint(x)"),
        ("markdown", "more"),
        ("code", "%%bash\nls"),
        ("markdown", "```\na\n```"),
    ]
    names = {"clip", "deployment", "segmentation", "your-own", "your-own-data"}
    assert {path.stem for path in generate.tutorials()} == names


def test_the_numbers_of_peers_are_those_that_were_measured() -> None:
    """The table of the first page is a piece of the first one of the benchmarks."""
    measured = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8").partition("## Against peers\n")[2]
    first, rest = measured.partition("\n|---")[::2]
    head = _cells(first.splitlines()[-1])
    rows = {cells[0]: cells for cells in map(_cells, rest.partition("\n\n")[0].splitlines()[1:])}
    page = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Beside other frameworks\n")[2]
    lines = [_cells(line) for line in page.partition("\n| take |")[0].splitlines() if line.startswith("| ")]
    columns = [head.index(name) for name in lines[0]]
    assert len(lines) > 3
    for line in lines[1:]:
        assert line == [rows[line[0]][place] for place in columns]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


# ------------------------------------------------------------------------------------------------------------ sentences
def test_the_page_of_sentences_has_those_of_the_sources() -> None:
    found = errors.sentences()
    assert sum(map(len, found.values())) > 400
    said = {sentence: cure for rows in found.values() for sentence, cure in rows.items()}
    assert said["{folder} already holds a run"] == "`fairsilo resume {folder}` goes on with it"
    assert said["unknown method {name}"] == errors.SPELLING
    assert said["masks need the package cryptography"] == "pip install 'fairsilo\\[privacy\\]'"
    assert said["{name}: {first} and {second} both {does}"] == "a method has one part that does"
    assert "{path}: {reason}" not in said  # it hands on what another sentence says
    page = generate.errors_page()
    for row in [line for line in page.splitlines() if line.startswith("| ")]:
        assert len(re.findall(r"(?<!\\)\|", row)) == 3
        assert "\0" not in row
    for area in found:
        assert f"\n## {area}\n" in page


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("folder", "folder"),
        ("silo.name", "silo"),
        ("self.plan.method.name", "method"),
        ("', '.join(COLUMNS)", "columns"),
        ("', '.join(map(str, files))", "files"),
        ("len(self.codes)", "number of codes"),
        ("sorted(missing)[0]", "missing"),
        ("type(found).__name__", "type"),
        ("known - 1", "known - 1"),
        ("problem.strerror or problem", "reason"),
        ("'columns' if rows else 'rows'", "columns or rows"),
    ],
)
def test_a_field_of_a_sentence_has_a_readable_name(expression: str, shown: str) -> None:
    assert errors.word(ast.parse(expression, mode="eval").body) == shown


def test_every_sentence_has_a_cure_and_stands_where_it_is_looked_for() -> None:
    found = errors.sentences()
    cures = [cure for rows in found.values() for cure in rows.values()]
    assert not {"", "-", "do"} & set(cures)
    assert sum(cure in errors.GENERAL.values() for cure in cures) <= 10, "say in docs/error_cures.py what helps"
    assert set(errors.AREAS.values()) == set(errors.GENERAL)
    said = [text for _, text in errors.texts()]
    bare = [text for text in said if not errors.halves(text)[1]]
    for pattern in errors.INSTEAD:
        assert any(re.search(pattern, text) for text in said), f"no sentence fits {pattern!r}"
    used = {next((one for one in errors.KNOWN if re.search(one, text)), None) for text in bare}
    assert not (left := set(errors.KNOWN) - used), f"no sentence without a cure of its own fits {left}"
    for place in errors.AREAS:
        assert (errors.SOURCES / place).exists(), place
    assert any("needs Triton" in one for one in found["Models"])
    assert found["Runs"]["{path} cannot be read: {reason}"].startswith("look at the path")


def test_a_sentence_is_told_from_what_to_do() -> None:
    assert errors.divided("{path} is odd; give another.", "Data") == ("{path} is odd", "give another")
    assert errors.divided("it is odd (this; or that)", "Tuning")[0] == "it is odd (this; or that)"
    assert errors.divided("size is {size}, but must lie above 1", "Data") == ("size is {size}", "it must lie above 1")
    assert errors.divided("give one of them, or none", "Data")[1] == errors.AS_IT_SAYS
    assert errors.divided("{key} is given twice; no more", "Data")[1] == "no more"  # its own words come first
    assert errors.divided("{file} is damaged: {reason}", "Data")[1].startswith("make it anew")
    assert errors.divided("it is odd", "Tuning") == ("it is odd", "see [tuning](tuning.md)")


# ------------------------------------------------------------------------------------------------------------ examples
TUTORIALS = sorted(f"docs/tutorials/{path.name}" for path in (ROOT / "docs" / "tutorials").glob("*.md"))
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")), *TUTORIALS)
TOGETHER = ("docs/tutorials/deployment.md",)  # blocks that build on one another: tests/deploy/test_tutorial.py
BLOCK = re.compile(r"(?P<slow><!-- slow -->\n)?```(?P<kind>bash|python)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def notebooks() -> dict[str, list[str]]:
    """Page -> the cells of its notebook, of those that have several and are not run as a deployment."""
    found = {}
    for page in [one for one in PAGES if one not in TOGETHER]:
        path = ROOT / generate.NOTEBOOKS / f"{Path(page).stem}.ipynb"
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        if len(code) > 1:
            found[page] = code
    return found


def examples() -> Iterator[object]:
    """Every block of commands or Python but those of notebooks, which run in turn; a page marks those that take minutes
    with a comment in front."""
    for page in [one for one in PAGES if one not in (*TOGETHER, *notebooks())]:
        text = (ROOT / page).read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            line = text[: found.start("text")].count("\n") + 1
            marks = [pytest.mark.slow] if found["slow"] else []
            yield pytest.param(found["kind"], found["text"], marks=marks, id=f"{page}:{line}")


def programs_in(folder: Path) -> Path:
    """A folder with the programs that examples call, as they are here."""
    (programs := folder / "bin").mkdir()
    (programs / "fairsilo").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fairsilo.cli "$@"\n')
    (programs / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    return programs


@pytest.mark.parametrize(("kind", "text"), list(examples()))
def test_an_example_runs_as_printed(kind: str, text: str, tmp_path: Path) -> None:
    """In a folder of its own, which holds what a checkout holds besides the program."""
    (work := tmp_path / "work").mkdir()
    (work / "example.py").write_text(text if kind == "python" else "", encoding="utf-8")
    command = ["python", "example.py"] if kind == "python" else ["bash", "-euo", "pipefail", "-c", text]
    run_well(command, work)


def run_well(command: list[str], work: Path) -> None:
    environment = {**os.environ, "PATH": f"{programs_in(work.parent)}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr


# as a notebook does it: one folder, one program without a file for cells of Python, a shell for each cell of commands
IN_TURN = """
import json, subprocess, sys
for number, text in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))):
    if text.startswith("%%bash"):
        subprocess.run(["bash", "-euo", "pipefail", "-c", text.partition("\\n")[2]], check=True)
    else:
        exec(compile(text, f"cell {number}", "exec"), globals())
"""


@pytest.mark.slow
@pytest.mark.parametrize("page", list(notebooks()))
def test_the_cells_of_a_notebook_run_one_after_the_other(page: str, tmp_path: Path) -> None:
    """They are the blocks of its page, in their order, which another test sees to."""
    (work := tmp_path / "work").mkdir()
    (told := tmp_path / "cells.json").write_text(json.dumps(notebooks()[page]), encoding="utf-8")
    run_well(["python", "-c", IN_TURN, str(told)], work)


def test_no_example_holds_a_placeholder() -> None:
    assert len(list(examples())) > 4
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "THIS-REPOSITORY" not in text
        for block in BLOCK.finditer(text):
            assert not re.search(r"\b(FOLDER|PATH)\b|\.\.\.", block["text"]), f"{page}: {block['text']}"
