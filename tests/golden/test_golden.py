"""The golden cases of every rule that is implemented; they lie beside the project, not in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import check

FOLDER = Path(__file__).parents[3] / "shared" / "golden"
IMPLEMENTED: tuple[str, ...] = ("scaffold", "ga", "faa", "fedheal", "qfedavg", "personalised", "losses", "afl")
IMPLEMENTED += ("term", "fedfv", "fednova", "feddyn", "grace", "sam", "frequency", "meta_step", "alignment", "tent")
IMPLEMENTED += ("fedclip", "fedgcr", "fedag")


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the golden files are not beside this checkout")
@pytest.mark.parametrize("name", IMPLEMENTED)
def test_golden(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = check.main([str(FOLDER / f"{name}.json")])
    lines = capsys.readouterr().out.splitlines()
    assert code == 0, "\n".join(lines)
    assert lines[-1].split(",")[1].strip() == "0 failed"


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
