"""What the engines of a simulation share: silos' stores in memory, written with the run's checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from fairsilo.core.disk import drop_old, numbered, replacing
from fairsilo.core.files import read_tree, write_tree
from fairsilo.core.messages import Exchange, Reply, Request
from fairsilo.core.silo import Memory
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.host import Answer
from fairsilo.engine.silo_store import KEPT, SiloStore, memory_of, save_models
from fairsilo.errors import FairsiloError


class Simulation(ABC):
    """The stores of silos that all live on this machine.

    Args:
        plan: What every silo must know.
        names: Who may be asked.
        folder: The run folder, for checkpoints and the silos' own models. Without one nothing is written.

    Attributes:
        why: It was chosen, where settings leave that to the machine; else empty.
    """

    why = ""

    def __init__(self, plan: Blueprint, names: Iterable[str], folder: Path | None = None) -> None:
        self.blueprint = plan
        self.folder = folder
        self.stores = {name: SiloStore(device=plan.device) for name in names}

    @property
    def memory(self) -> dict[str, Memory]:
        """What each silo remembers. Only in a simulation can somebody look."""
        return {name: store.memory for name, store in self.stores.items() if store.memory}

    @memory.setter
    def memory(self, memories: Mapping[str, Memory]) -> None:
        for name, store in self.stores.items():
            store.memory = memories.get(name, Memory())

    def accept(self, silo: str, request: Request, answer: Answer) -> None:
        self.stores[silo].accept(request, answer)

    def commit(self, round_: int) -> Callable[[], None] | None:
        """All silos in one file: a file each would cost a wait for the disk each."""
        for store in self.stores.values():
            store.commit(round_, self.blueprint.layout)
        if self.folder is None:
            return None
        models = {name: store.handed_models() for name, store in self.stores.items()}
        return partial(self._write, self.folder, round_, self.memory, models)

    def _write(
        self, folder: Path, round_: int, memories: Mapping[str, Memory], models: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        for name, some in models.items():
            save_models(folder / "models" / "personal", some, self.blueprint.layout, name)
        place = folder / "checkpoint"
        place.mkdir(parents=True, exist_ok=True)
        with replacing(numbered(place, "silos", round_)) as beside:
            write_tree(beside, memories)
        drop_old(place, "silos", KEPT)

    def restore(self, round_: int) -> None:
        for store in self.stores.values():
            store.restore(0)
        if self.folder is None:
            return
        path = numbered(self.folder / "checkpoint", "silos", round_)
        if not path.exists():
            raise FairsiloError(f"{self.folder} has a checkpoint of round {round_}, but not what its silos kept then")
        device = torch.device(self.blueprint.device)
        for name, tree in read_tree(path).items():
            self.stores[name].memory = memory_of(tree, device)

    @abstractmethod
    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        """Send each silo its message; yield the replies in name order."""

    def close(self) -> None:  # noqa: B027 - an engine with processes has its own
        """Nothing to let go of."""
