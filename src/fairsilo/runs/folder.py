"""The run folder: what a run leaves behind, written so that a kill at any instant leaves a usable folder.

config.yaml     the resolved experiment
run.json        status, method, versions, times
metrics.jsonl   one row per (round, silo, model, split)
rounds.jsonl    one row per round: who took part, weights, numbers shown by parts, exchanges, failures, notes
checkpoint/     the last complete round: server, silos, round number
models/         global.safetensors, personal/last/SILO.safetensors and personal/best/SILO.safetensors (by validation)
local/          each round's local models, where evaluate.keep_local asks for them
synthetic/      what a diffusion model made in each silo's style; features/ past a limit, while the run goes on
summary.json, report.html
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from safetensors.torch import save_file
from torch import Tensor

from fairsilo.core.files import Tree, read_tensors, read_tree, write_tree
from fairsilo.core.vectors import Layout
from fairsilo.errors import FairsiloError


class Store:
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
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
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
        beside = path.with_name(f".{path.name}.part")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
        return path

    def write_json(self, name: str, content: Any) -> Path:
        return self.write_text(name, json.dumps(content, indent=2) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as problem:
            raise FairsiloError(f"{self.folder} is no run folder: it has no {name}") from problem
        except json.JSONDecodeError as problem:
            raise FairsiloError(f"{path} is damaged: {problem}") from problem
        if not isinstance(content, dict):
            raise FairsiloError(f"{path} is damaged: it holds a {type(content).__name__}")
        return content

    # models ---------------------------------------------------------------------------------------------------
    def write_model(self, name: Sequence[str], vector: Tensor, layout: Layout) -> None:
        """A model by tensor names, with the kinds of its tensors in the metadata; `name` gives folders and file."""
        path = self.model_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {key: value.detach().cpu().contiguous() for key, value in layout.views(vector).items()}
        beside = path.with_name(f".{path.name}.part")
        save_file(tensors, beside, metadata={"layout": json.dumps(layout.describe())})
        beside.replace(path)

    def read_model(self, name: Sequence[str]) -> dict[str, Tensor]:
        return read_tensors(self.model_path(name))[0]

    def model_path(self, name: Sequence[str]) -> Path:
        """Silo names are free text: whatever could leave the folder is written as %2F and the like."""
        *folders, leaf = name
        return self.folder.joinpath("models", *folders, f"{quote(leaf, safe=' ')}.safetensors")

    def write_local(self, round_: int, sent: Tensor, changes: Mapping[str, Tensor]) -> None:
        """The model sent in a round and what each silo's training changed in it: what figures are made from."""
        path = self._local_path(round_)
        path.parent.mkdir(exist_ok=True)
        beside = path.with_name(f".{path.name}.part")
        write_tree(beside, {"sent": sent, "changes": changes})
        beside.replace(path)

    def read_local(self, round_: int) -> tuple[Tensor, dict[str, Tensor]]:
        found = read_tree(self._local_path(round_))
        return found["sent"], found["changes"]

    def local_rounds(self) -> list[int]:
        """The rounds whose local models were kept."""
        return sorted(int(path.stem.removeprefix("round-")) for path in self.folder.glob("local/round-*.safetensors"))

    def _local_path(self, round_: int) -> Path:
        return self.folder / "local" / f"round-{round_:05d}.safetensors"

    # checkpoints ----------------------------------------------------------------------------------------------
    def write_checkpoint(self, round_: int, server: Tree, silos: Mapping[str, Tree]) -> None:
        """The new checkpoint is complete under another name before the old one goes."""
        current, beside = self.folder / "checkpoint", self.folder / ".checkpoint.new"
        old = self.folder / ".checkpoint.old"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        write_tree(beside / "server.safetensors", server)
        for number, (name, memory) in enumerate(sorted(silos.items())):
            write_tree(beside / f"silo-{number:04d}.safetensors", {"name": name, "memory": memory})
        Store(beside).write_json("round.json", {"round": round_, "silos": len(silos)})  # last: with it, it is complete
        shutil.rmtree(old, ignore_errors=True)
        if current.exists():
            os.rename(current, old)  # noqa: PTH104 - directories, and the shortest possible gap between the two moves
        os.rename(beside, current)  # noqa: PTH104
        shutil.rmtree(old, ignore_errors=True)

    def read_checkpoint(self) -> tuple[int, dict[str, Any], dict[str, dict[str, Any]]] | None:
        """Round, server and silos of the last complete checkpoint; None where there is none yet."""
        # a kill between the two moves of writing leaves the new one complete under its other name
        for name in ("checkpoint", ".checkpoint.new", ".checkpoint.old"):
            folder = self.folder / name
            if not (folder / "round.json").exists():
                continue
            head = json.loads((folder / "round.json").read_text(encoding="utf-8"))
            silos = {}
            for number in range(head["silos"]):
                saved = read_tree(folder / f"silo-{number:04d}.safetensors")
                silos[saved["name"]] = saved["memory"]
            return int(head["round"]), read_tree(folder / "server.safetensors"), silos
        return None
