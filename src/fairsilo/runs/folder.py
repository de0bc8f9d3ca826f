"""The run folder: what a run leaves behind, written so that a kill at any instant leaves a usable folder.

config.yaml     the resolved experiment
run.json        status, method, versions, times
now.json        while the run goes on: its round, and what each silo does
metrics.jsonl   one row per (round, silo, model, split)
groups.jsonl    one row per (round, column, model, trained or unseen), where evaluate.groups asks for results by group
rounds.jsonl    one row per round: who took part, weights, numbers shown by parts, exchanges, failures, notes
seen.safetensors  fingerprints of the samples trained on and validated with, for `fairsilo evaluate`
checkpoint/     server and silos after each of the last two checkpoints
models/         global.safetensors, personal/last/SILO.safetensors and personal/best/SILO.safetensors (by validation)
local/          each round's local models, where evaluate.keep_local asks for them
synthetic.png   some of the synthetic images of every silo, where there are any
synthetic/      what a diffusion model made in each silo's style; features/ past a limit, while the run goes on
examples.safetensors  test images with true and predicted masks for the report, unless evaluate.examples=false
summary.json, report.html
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairsilo.config import read_yaml
from fairsilo.core.disk import replacing
from fairsilo.errors import FairsiloError

NOW = "now.json"
PLAN = "planned.json"  # of a comparison: all of its runs
RESULTS = "comparison.json"  # of a comparison: written when all runs are finished
BASELINE = "baseline"  # the folder of the method that is trained beside another, inside the other's


class RunFolder:
    """The texts of a run folder, or of one of several runs; tensors are in `runs/saved.py`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    # rows -----------------------------------------------------------------------------------------------------
    def append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        with (self.folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row) + "\n")

    def rows(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / f"{name}.jsonl"
        rows: list[dict[str, Any]] = []
        for line in self._text(path).splitlines() if path.exists() else ():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                break  # the kill came in the middle of this line
            if not isinstance(row, dict):  # which no kill leaves
                raise FairsiloError(f"{path} is damaged: its line {len(rows) + 1} is no row")
            rows.append(row)
        return rows

    def cut(self, name: str, last_round: int) -> list[dict[str, Any]]:
        """Drop the rows of rounds that the checkpoint does not hold; returns the rest."""
        kept = [row for row in self.rows(name) if row["round"] <= last_round]
        self.write_text(f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in kept))
        return kept

    # single files ---------------------------------------------------------------------------------------------
    def write_text(self, name: str, text: str) -> Path:
        """Whole or not at all: written beside, then moved into place."""
        path = self.folder / name
        with replacing(path) as beside:
            beside.write_text(text, encoding="utf-8")
        return path

    def write_json(self, name: str, content: Any) -> Path:
        return self.write_text(name, json.dumps(content, indent=2) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        try:
            content = json.loads(self._text(path))
        except FileNotFoundError as problem:
            raise FairsiloError(f"{self.folder} is no run folder: it has no {name}") from problem
        except json.JSONDecodeError as problem:
            raise FairsiloError(f"{path} is damaged: {problem}") from problem
        if not isinstance(content, dict):
            raise FairsiloError(f"{path} is damaged: it holds a {type(content).__name__}")
        return content

    @staticmethod
    def _text(path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as problem:
            raise FairsiloError(f"{path} is damaged: it is no text in UTF-8") from problem

    def write_now(self, state: Mapping[str, Any] | None) -> None:
        """Where the run is this moment; None: it is at its end. Of no use later, so it is not synced, and a disk
        that is full stops a run elsewhere."""
        path = self.folder / NOW
        with suppress(OSError):
            if state is None:
                path.unlink(missing_ok=True)
            else:
                beside = path.with_name(f".{NOW}.part")
                beside.write_text(json.dumps(state), encoding="utf-8")
                beside.replace(path)


def status_of(folder: Path) -> dict[str, Any]:
    return RunFolder(folder).read_json("run.json") if (folder / "run.json").exists() else {}


def resuming(folder: Path) -> str:
    """The command that goes on with a run, to be copied; what was begun with Python objects goes on in Python alone."""
    given: Iterable[str] = ()
    with suppress(FairsiloError, OSError):  # a sentence that says how to go on is about something else
        given = status_of(folder).get("objects") or ()
    if given:
        return f"fairsilo.resume({', '.join([repr(str(folder)), *(f'{kind}=...' for kind in given)])})"
    return shlex.join(["fairsilo", "resume", str(folder)])


def finished(folder: Path) -> bool:
    """Whether a run is at its end, and so is its baseline where it has one."""
    beside = read_yaml(folder / "config.yaml").get("baseline")
    places = [folder, folder / BASELINE] if beside else [folder]
    return all(status_of(place).get("status") == "finished" for place in places)


def slug(text: str) -> str:
    """A file name from a method's text, readable and without surprises."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-")
