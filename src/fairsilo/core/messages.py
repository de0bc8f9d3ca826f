"""What travels between server and silos: tensors and plain numbers under names, never pickles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from torch import Tensor

Number: TypeAlias = float | int | str | bool

SHOWN = ".shown."  # in the key of a number (part.shown.label): it stands in the round's record, for the reader alone
MODEL = "model"  # the key of the model's vector, down (the model) and up (the change of it)


@dataclass
class Message:
    """Tensors and numbers; a part's own entries are keyed `part.entry`."""

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
    """Why a silo gave no usable answer: `error`, `timeout`, `lost`, `malformed` or `not finite`."""

    kind: str
    detail: str = ""


@dataclass(frozen=True)
class Request:
    """One exchange asked of one silo; with the memory the silo had before it, the answer is always the same."""

    kind: str
    round: int
    message: Message


@dataclass(frozen=True)
class Reply:
    silo: str
    answer: Message | Failure
    seconds: float = 0.0
