"""The golden cases of every rule: numbers of released code and of derivations, kept in `cases/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import check

FOLDER = Path(__file__).parent / "cases"
ORIGINALS = Path(__file__).parents[3] / "shared" / "golden"  # where the cases came from; not part of a clone
FILES = sorted(file.stem for file in FOLDER.glob("*.json"))


def cases_of(file: Path) -> list[dict[str, Any]]:
    content = json.loads(file.read_text(encoding="utf-8"))
    return [{"tolerance": content["tolerance"], **case} for case in content["cases"]]


def test_no_case_is_lost() -> None:
    names = [(file, case["name"], case["rule"]) for file in FILES for case in cases_of(FOLDER / f"{file}.json")]
    assert len(FILES) == 21
    assert len(names) == 154
    # a rule of the checker that no case exercises would be dead, a case without a rule would be skipped
    assert {rule for _, _, rule in names} == set(check.RULES)


@pytest.mark.parametrize("name", FILES)
def test_golden(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = FOLDER / f"{name}.json"
    code = check.main([str(file)])
    lines = capsys.readouterr().out.splitlines()
    assert code == 0, "\n".join(lines)
    assert lines[-1] == f"{len(cases_of(file))} passed, 0 failed, 0 skipped", "\n".join(lines)


@pytest.mark.skipif(not ORIGINALS.is_dir(), reason="the files that the cases came from are not beside this checkout")
def test_the_cases_are_the_numbers_they_came_from() -> None:
    assert sorted(file.stem for file in ORIGINALS.glob("*.json")) == FILES
    for name in FILES:
        ours, theirs = (cases_of(folder / f"{name}.json") for folder in (FOLDER, ORIGINALS))
        for one, other in zip(ours, theirs, strict=True):
            for key in ("name", "rule", "tolerance", "inputs", "outputs"):
                assert one[key] == other[key], f"{name}/{one['name']}: {key}"


def test_a_wrong_number_fails_and_only_skips_fail_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checker itself: it must be able to say no."""
    case = {
        "name": "x",
        "rule": "simplex_projection",
        "inputs": {"y": [0.2, 0.8]},
        "outputs": {"x": [0.3, 0.7], "x_easyfl": [0.2, 0.8]},
    }
    content = {"method": "afl", "tolerance": {"atol": 1e-6, "rtol": 0}, "cases": [case]}
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(content))
    assert check.main([str(file)]) == 1
    content["cases"] = [{**case, "rule": "unheard of"}]
    file.write_text(json.dumps(content))
    assert check.main([str(file)]) == 1
    assert capsys.readouterr().out.endswith("0 passed, 0 failed, 1 skipped\n")


def shifted(value: Any) -> Any:
    """The same structure with other numbers."""
    if isinstance(value, dict):
        return {key: shifted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shifted(item) for item in value]
    return value + 1 if isinstance(value, int | float) else value


@pytest.mark.parametrize("name", FILES)
def test_every_case_can_fail(name: str) -> None:
    """With other outputs no case passes: none compares a thing with itself, or what it was told to expect."""
    for case in cases_of(FOLDER / f"{name}.json"):
        # of one sample there is no covariance: fairsilo leaves the term out, whatever released code returns
        if case["name"] != "one_sample":
            verdict, why = check.check({**case, "outputs": shifted(case["outputs"])})
            assert verdict == "failed", case["name"]
            assert ": off by" in why or "instead of" in why, f"{case['name']}: {why}"
