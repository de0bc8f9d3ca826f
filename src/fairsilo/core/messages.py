"""What is sent between server and silos: tensors and plain numbers by name, never pickles."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

Number: TypeAlias = float | int | str | bool

SHOWN = ".shown."  # in the key of a number (part.shown.label) that is only written into the round's record
MODEL = "model"  # the key of the model's vector, down (the model) and up (the change of it)


@dataclass
class Message:
    """Tensors and numbers that travel between the server and a silo.

    What a part sends has a key of the form `part.entry`, and is declared in its `about.sends`.

    Attributes:
        tensors: Key -> tensor.
        numbers: Key -> number.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    numbers: dict[str, Number] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Payload size; a number counts eight bytes, a text its length."""
        tensors = sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())
        return tensors + sum(len(n) if isinstance(n, str) else 8 for n in self.numbers.values())

    def copy(self) -> Message:
        return Message(dict(self.tensors), dict(self.numbers))


@dataclass(frozen=True)
class Failure:
    """Why a silo gave no usable answer.

    Its kind is `error`, `timeout`, `lost`, `malformed`, `diverged`, `not finite` or `screened`.
    """

    kind: str
    detail: str = ""


@dataclass(frozen=True)
class Request:
    """One silo's share of an exchange. Request and memory determine the answer.

    `run`, `round` and `number` (of the exchange within the round) identify it, so that a repeated one is recognised.
    """

    kind: str
    round: int
    message: Message
    number: int = 0
    run: str = ""

    @property
    def identity(self) -> tuple[str, int, int]:
        return self.run, self.round, self.number


@dataclass(frozen=True)
class Exchange:
    """One question to several silos, each with a message of its own."""

    kind: str
    round: int
    messages: Mapping[str, Message]
    number: int = 0
    run: str = ""

    @property
    def silos(self) -> list[str]:
        """The silos asked, in name order: replies are processed in this order, not in the order of arrival."""
        return sorted(self.messages)

    def request(self, silo: str) -> Request:
        return Request(self.kind, self.round, self.messages[silo], self.number, self.run)


@dataclass(frozen=True)
class Reply:
    silo: str
    answer: Message | Failure
    seconds: float = 0.0
    number: int = 0  # of the exchange it answers


def digest(tree: object) -> str:
    """SHA-256 of nested dictionaries, lists, tensors and plain values, independent of the order of keys."""
    found = hashlib.sha256()
    for piece in _pieces(tree):
        found.update(piece)
    return found.hexdigest()


def _pieces(tree: object) -> Iterator[bytes | memoryview]:
    if isinstance(tree, Message):
        tree = {"tensors": tree.tensors, "numbers": tree.numbers}
    if isinstance(tree, Tensor):
        values = tree.detach().cpu().contiguous()
        yield f"<{values.dtype}{tuple(values.shape)}>".encode()
        yield values.reshape(-1).view(torch.uint8).numpy().data
    elif isinstance(tree, Mapping):
        yield b"{"
        for key in sorted(tree, key=str):
            yield json.dumps(str(key)).encode()
            yield from _pieces(tree[key])
        yield b"}"
    elif isinstance(tree, list | tuple):
        yield b"["
        for item in tree:
            yield from _pieces(item)
        yield b"]"
    else:
        yield json.dumps(tree).encode()
