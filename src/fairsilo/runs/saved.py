"""The tensors of a run folder: models, local models of rounds, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from fairsilo.core.disk import drop_old, model_path, numbered, numbers, replacing, sync
from fairsilo.core.files import Tree, read_tensors, read_tree, write_model, write_tree
from fairsilo.core.vectors import Layout
from fairsilo.engine.silo_store import KEPT
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import RunFolder


class SavedRun(RunFolder):
    """A run folder with what is in it besides texts."""

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
