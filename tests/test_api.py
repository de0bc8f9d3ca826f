"""What `fairsilo` exports: the lists of names agree, everything is described, and the examples run as printed."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import fairsilo

PUBLIC = (
    "run",
    "resume",
    "compare",
    "tune",
    "advise",
    "load",
    "method",
    "Trained",
    "Federation",
    "SiloData",
    "Split",
    "Part",
    "Method",
)
METHODS = ("predict", "predict_proba", "estimator", "export", "evaluate", "adapt", "personalise", "attention")


def examples() -> list[object]:
    """Every example of what is exported and, for classes, of its own methods."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in fairsilo.__all__ for test in finder.find(getattr(fairsilo, name), name, globs={})]
    return [pytest.param(test, id=test.name) for test in found if test.examples]


def test_the_lists_of_names_agree() -> None:
    assert fairsilo.__all__ == sorted(fairsilo.__all__)
    assert set(fairsilo.__all__) == set(fairsilo._HOMES)
    assert set(fairsilo.__all__) <= set(dir(fairsilo))
    assert set(PUBLIC) | {"Output", "Event", "Listener", "FairsiloError"} == set(fairsilo.__all__)
    for name, home in fairsilo._HOMES.items():
        exported = getattr(fairsilo, name)
        assert (exported.__module__, exported.__name__) == (home, name)
    with pytest.raises(AttributeError, match="module 'fairsilo' has no attribute 'rum'"):
        _ = fairsilo.rum  # type: ignore[attr-defined]


def test_what_type_checkers_see_is_what_is_exported() -> None:
    source = inspect.getsource(fairsilo).partition("if TYPE_CHECKING:\n")[2].partition("\n\n")[0]
    homes = {}
    for line in source.splitlines():
        _, home, _, names = line.split(maxsplit=3)
        homes |= {name.strip(): home for name in names.split(",")}
    assert homes == fairsilo._HOMES


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, fairsilo; dir(fairsilo); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", fairsilo.__all__)
def test_everything_exported_is_described_with_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(fairsilo, name)) or ""
    assert "Example:\n" in text
    assert ">>> " in text


@pytest.mark.parametrize("name", METHODS)
def test_the_methods_of_a_trained_run_say_what_they_take_and_return(name: str) -> None:
    text = inspect.getdoc(getattr(fairsilo.Trained, name)) or ""
    assert "Args:\n" in text
    assert "Returns:\n" in text
    for parameter in list(inspect.signature(getattr(fairsilo.Trained, name)).parameters)[1:]:
        assert f"    {parameter}: " in text


@pytest.mark.parametrize("name", ["run", "resume", "compare", "load", "method", "Federation", "SiloData", "Split"])
def test_every_parameter_is_described(name: str) -> None:
    exported = getattr(fairsilo, name)
    text = inspect.getdoc(exported) or ""
    for parameter in inspect.signature(exported).parameters.values():
        stars = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
        assert f"    {stars}{parameter.name}: " in text


@pytest.mark.parametrize("example", examples())
def test_an_example_runs_as_printed(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert not said, "".join(said)
