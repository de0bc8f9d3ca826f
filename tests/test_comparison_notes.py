"""The page of a comparison repeats what its runs noted, before their rounds and in them, with the runs it is about."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import fairsilo
from fairsilo import Event, Federation
from fairsilo.report.comparison_page import notes_of, page, write_comparison
from test_comparison import fabricated
from test_events import SMALL
from test_report_page import part, words

MISSING = "silo 'a' has no training sample of class 2"
DROPPED = "the listener raised at the event 'trained' and is not called any more: ValueError: <b>mine</b>"
LATE = "round 2 was late"


def write(folder: Path) -> None:
    """Two methods and two seeds, of which all lack a class, and one run dropped a listener."""
    content = fabricated(names=("fedavg", "faa"), seeds=(0, 1))
    for cell in content["cells"]:
        cell["folder"] = f"{cell['method']}/seed{cell['seed']}"
        inside = folder / cell["folder"]
        inside.mkdir(parents=True)
        dropped = [DROPPED] if cell["folder"] == "faa/seed1" else []
        status = {"status": "finished", "method": cell["method"], "notes": [MISSING, *dropped]}
        (inside / "run.json").write_text(json.dumps(status))
        (inside / "config.yaml").write_text(f"method: {cell['method']}\n")
        rounds = [{"round": 1, "notes": [MISSING]}, {"round": 2, "notes": [LATE] if cell["seed"] else None}]
        (inside / "rounds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rounds))
    (folder / "comparison.json").write_text(json.dumps(content))


def test_notes_of_runs_and_of_rounds_are_repeated_once_with_their_runs(tmp_path: Path) -> None:
    write(tmp_path)
    said = words(part(write_comparison(tmp_path).read_text(encoding="utf-8"), "notes"))
    every = ", ".join(f"{name} (-, seed {seed})" for name in ("fedavg", "faa") for seed in (0, 1))
    assert said.count(f"{MISSING}: {every}") == 1
    assert said.count(MISSING) == 1
    assert said.count(f"{DROPPED}: faa (-, seed 1)") == 1
    assert said.count(f"{LATE}: fedavg (-, seed 1), faa (-, seed 1)") == 1


def test_every_run_of_a_note_is_named(tmp_path: Path) -> None:
    content = fabricated(names=("fedavg",), seeds=tuple(range(9)))
    content["said"] = {MISSING: [f"run {number}" for number in range(9)]}
    assert words(part(page(content), "notes")).endswith(f"{', '.join(content['said'][MISSING])} ")
    assert "more" not in words(part(page(content), "notes"))


def test_runs_that_are_gone_have_no_notes(tmp_path: Path) -> None:
    content = fabricated(names=("fedavg",))
    content["cells"][0]["folder"] = "gone"
    assert notes_of(tmp_path, content) == {}


def test_a_comparison_that_is_run_tells_a_missing_class_and_a_dropped_listener(
    people: Federation, tmp_path: Path
) -> None:
    lacking = dataclasses.replace(people.silos[0], train=people.silos[0].train.subset([0, 3]))
    noted = dataclasses.replace(people, silos=(lacking, *people.silos[1:]))

    def broken(event: Event) -> None:
        if event.kind == "trained":
            raise ValueError("my own mistake")

    fairsilo.compare(["fedavg", "local"], federation=noted, out=tmp_path, listener=broken, **SMALL)
    said = words(part(write_comparison(tmp_path).read_text(encoding="utf-8"), "notes"))
    assert "silo 'a' has no training sample of '1', '2': fedavg (u, seed 0), local (u, seed 0) " in said
    assert re.search(r"ValueError: my own mistake .{,40}: fedavg \(u, seed 0\) ", said)
