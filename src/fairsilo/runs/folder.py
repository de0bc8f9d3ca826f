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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from fairsilo.core.files import (
    Tree,
    drop_old,
    model_path,
    numbered,
    numbers,
    read_tensors,
    read_tree,
    replacing,
    sync,
    write_model,
    write_tree,
)
from fairsilo.core.vectors import Layout
from fairsilo.engine.silo_store import KEPT
from fairsilo.errors import FairsiloError

NOW = "now.json"
PLAN = "planned.json"  # of a comparison: all of its runs


class RunFolder:
    """One run folder."""

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
        found = []
        for line in self._text(path).splitlines() if path.exists() else ():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                break  # the kill came in the middle of this line
        return found

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

    # models ---------------------------------------------------------------------------------------------------
    def write_model(self, name: Sequence[str], vector: Tensor, layout: Layout) -> None:
        """A model by tensor names; `name` gives folders and file."""
        write_model(self.model_path(name), vector, layout)

    def read_model(self, name: Sequence[str]) -> dict[str, Tensor]:
        return read_tensors(self.model_path(name))[0]

    def model_path(self, name: Sequence[str]) -> Path:
        return model_path(self.folder / "models", name)

    def write_local(self, round_: int, sent: Tensor, changes: Mapping[str, Tensor]) -> None:
        """The model sent in a round and what each silo's training changed in it: what figures are made from."""
        path = self._local_path(round_)
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as beside:
            write_tree(beside, {"sent": sent, "changes": changes})

    def read_local(self, round_: int) -> tuple[Tensor, dict[str, Tensor]]:
        found = read_tree(self._local_path(round_))
        return found["sent"], found["changes"]

    def local_rounds(self) -> list[int]:
        """The rounds whose local models were kept."""
        return sorted(int(path.stem.removeprefix("round-")) for path in self.folder.glob("local/round-*.safetensors"))

    def _local_path(self, round_: int) -> Path:
        return self.folder / "local" / f"round-{round_:05d}.safetensors"

    # checkpoints ----------------------------------------------------------------------------------------------
    def write_checkpoint(self, round_: int, server: Tree) -> None:
        """What the server keeps after a round; rows of the round are on the disk before it says that it is done."""
        place = self.folder / "checkpoint"
        place.mkdir(exist_ok=True)
        for rows in self.folder.glob("*.jsonl"):
            sync(rows)
        with replacing(numbered(place, "server", round_)) as beside:
            write_tree(beside, server)
        drop_old(place, "server", KEPT)

    def read_checkpoint(self) -> tuple[int, dict[str, Any]] | None:
        """Round and server of the last checkpoint; None where there is none yet."""
        place = self.folder / "checkpoint"
        found = numbers(place, "server")
        return (found[-1], read_tree(numbered(place, "server", found[-1]))) if found else None

    def check_checkpoint(self) -> None:
        """Raises FairsiloError where the last checkpoint is cut off; nothing but the files' heads is read."""
        place = self.folder / "checkpoint"
        for number in numbers(place, "server")[-1:]:
            for path in (numbered(place, "server", number), numbered(place, "silos", number)):
                try:
                    with suppress(FileNotFoundError), safe_open(path, framework="pt"):  # who runs it drops old ones
                        pass
                except SafetensorError as problem:
                    raise FairsiloError(f"{path} is damaged: {problem}") from problem

    def read_memories(self, round_: int) -> dict[str, dict[str, Any]]:
        """What the silos of a simulation kept after a round."""
        path = numbered(self.folder / "checkpoint", "silos", round_)
        return read_tree(path) if path.exists() else {}
