"""What a silo keeps: its memory between rounds, its own models, and the answers it gave. Only the silo reads it.

In a simulation stores live in memory, are written together with the run's checkpoint and keep no answers. On a machine
of its own a store has a folder and keeps there the answers of the round under way: a request that is repeated after a
lost connection, or after a restart of either side, gets the stored answer instead of a second step of training. Answers
of a round are dropped when the next one begins, so a store with a folder must be committed after every round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairsilo.core.disk import drop_old, model_path, numbered, numbers, replacing, sync
from fairsilo.core.files import on_device, read_tree, write_model, write_tree
from fairsilo.core.messages import Message, Request, digest
from fairsilo.core.silo import Memory
from fairsilo.core.vectors import Layout
from fairsilo.engine.host import Answer
from fairsilo.errors import FairsiloError

KEPT = 2  # checkpoints: a kill may leave server and silos one apart


@dataclass(frozen=True)
class _Given:
    """What an answer was given to, and what the silo remembered from then on; the answer itself is in the folder."""

    asked: str  # digest of the request
    before: str  # digest of the memory it started from
    after: Memory


class SiloStore:
    """One silo's own state.

    Args:
        folder: Where it is written, with the answers that are given again. Without one it lives in memory.
        device: Where its tensors lie.
    """

    def __init__(self, folder: Path | None = None, device: str = "cpu") -> None:
        self.folder = folder
        self.memory = Memory()
        self.models: dict[str, Tensor] = {}  # its own models (best, last), waiting to be saved
        self._device = torch.device(device)
        self._begun = Memory()  # what the round under way starts from
        self._given: dict[int, _Given] = {}  # by number, of the round under way
        self._under_way: tuple[str, int] | None = None  # run and round of these answers
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._take_up()

    # ----------------------------------------------------------------------------------------------------- one request
    def given(self, request: Request) -> Message | None:
        """The stored answer to a request that is repeated; otherwise None, and the memory is what it starts from."""
        if self.folder is None:
            return None
        self._begin(request)
        known = self._given.get(request.number)
        if known and (known.asked, known.before) == (_asked(request), digest(self.memory)):
            self.memory = known.after
            tree = self._read_answer(request.number)
            return Message(tree["tensors"], tree["numbers"])
        return None

    def _begin(self, request: Request) -> None:
        """Set the memory to what it was before this request: after the ones with lower numbers of the same round."""
        if self._under_way != (request.run, request.round):
            self._forget()
            self._under_way, self._begun = (request.run, request.round), self.memory
        earlier = [number for number in self._given if number < request.number]
        self.memory = self._given[max(earlier)].after if earlier else self._begun

    def accept(self, request: Request, answer: Answer) -> None:
        """Remember what an answer leaves behind: the memory after it, and the silo's own models."""
        before, after = self.memory, self.memory if answer.memory is None else answer.memory
        self.memory = after
        self.models |= answer.saved or {}
        if self.folder is None or not isinstance(answer.message, Message):
            return
        for number in [number for number in self._given if number >= request.number]:  # they followed another answer
            self._drop(number)
        given = _Given(_asked(request), digest(before), after)
        self._write_answer(request, given, answer.message)
        self._given[request.number] = given

    def discard(self, since: int) -> None:
        """Remember nothing of the round under way from a request on: its answer, and what followed, did not count."""
        earlier = [number for number in self._given if number < since]
        self.memory, self.models = self._given[max(earlier)].after if earlier else self._begun, {}
        for number in [number for number in self._given if number >= since]:
            self._drop(number)

    # ----------------------------------------------------------------------------------------------------- checkpoints
    def commit(self, round_: int, layout: Layout) -> None:
        """Keep the state after a round, and the silo's own models; the states of the last two commits stay."""
        self._begun = self.memory
        self._forget()
        if self.folder is None:
            return
        with replacing(numbered(self.folder, "round", round_)) as beside:
            write_tree(beside, {"memory": self.memory}, private=True)  # it may hold keys
        drop_old(self.folder, "round", KEPT)
        save_models(self.folder / "models", self.handed_models(), layout, private=True)

    def handed_models(self) -> dict[str, Tensor]:
        """Its own models that wait to be saved; whoever takes them saves them."""
        models, self.models = self.models, {}
        return models

    def restore(self, round_: int) -> None:
        """Take up what was committed for a round. Before the first commit a silo remembers nothing.

        Raises:
            FairsiloError: The folder holds no state of that round.
        """
        self.models = {}
        state: dict[str, Any] = {}
        if self.folder is not None and (round_ or numbers(self.folder, "round")):
            path = numbered(self.folder, "round", round_)
            if not path.exists():
                listed = ", ".join(map(str, numbers(self.folder, "round"))) or "none"
                raise FairsiloError(f"{self.folder} holds no state of round {round_}; it has the rounds {listed}")
            state = read_tree(path)["memory"]
        self.memory = self._begun = memory_of(state, self._device)

    def drop_after(self, round_: int) -> None:
        """Forget commits of later rounds, which will be done again."""
        if self.folder is None:
            return
        for later in [number for number in numbers(self.folder, "round") if number > round_]:
            numbered(self.folder, "round", later).unlink()

    # ------------------------------------------------------------------------------------------------- answers on disk
    def _write_answer(self, request: Request, given: _Given, message: Message) -> None:
        assert self.folder is not None
        tree = {
            "run": request.run,
            "round": request.round,
            "asked": given.asked,
            "before": given.before,
            "tensors": message.tensors,
            "numbers": message.numbers,
            "after": given.after,
            "models": self.models,
        }
        with replacing(numbered(self.folder, "answer", request.number)) as beside:
            write_tree(beside, tree, private=True)

    def _read_answer(self, number: int) -> dict[str, Any]:
        assert self.folder is not None
        return dict(on_device(read_tree(numbered(self.folder, "answer", number)), self._device))

    def _take_up(self) -> None:
        """After a restart: the last commit, and the answers given since."""
        assert self.folder is not None
        committed = numbers(self.folder, "round")
        if committed:
            self.restore(committed[-1])
        for number in numbers(self.folder, "answer"):
            tree = self._read_answer(number)
            self._under_way = (tree["run"], tree["round"])
            self._given[number] = _Given(tree["asked"], tree["before"], Memory(tree["after"]))
            self.models |= tree["models"]
            self.memory = self._given[number].after

    def _forget(self) -> None:
        for number in list(self._given):
            self._drop(number)

    def _drop(self, number: int) -> None:
        del self._given[number]
        if self.folder is not None:
            numbered(self.folder, "answer", number).unlink(missing_ok=True)
            sync(self.folder)


def _asked(request: Request) -> str:
    return digest([*request.identity, request.kind, request.message])


def save_models(
    folder: Path, models: Mapping[str, Tensor], layout: Layout, silo: str = "own", *, private: bool = False
) -> None:
    for which, vector in models.items():
        write_model(model_path(folder, (which, silo)), vector, layout, private=private)


def memory_of(tree: dict[str, Any], device: torch.device) -> Memory:
    return Memory(on_device(tree, device))
