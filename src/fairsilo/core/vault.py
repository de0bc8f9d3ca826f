"""What is a silo's alone besides its data: randomness for noise and keys, a signature, and what was settled once.

In a simulation all of it follows from the run's seed, so that a run can be repeated. At a site randomness comes from
the machine: a server that knew the noise could take it away again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BLOCK = 1 << 20  # values that are drawn at a time


class Vault(Protocol):
    """One silo's secrets."""

    def randomness(self, purpose: str, length: int) -> bytes:
        """Bytes that nobody else can know. At a site they are new each time: an answer is computed once, and kept."""
        ...

    def sign(self, text: bytes) -> bytes:
        """A proof that this silo says this text."""
        ...

    def verify(self, silo: str, text: bytes, proof: bytes) -> bool:
        """Whether the proof shows that another silo says this text."""
        ...

    def settle(self, what: str, value: str) -> bool:
        """Fix a value for good, whatever the server makes this silo forget; False where another one is fixed."""
        ...

    def record(self, what: str, line: str) -> list[str]:
        """Write down that something was computed to be sent; returns all such lines, or none where none are kept."""
        ...


@dataclass(frozen=True)
class Simulated:
    """The vault of a simulated silo: nothing in it is secret, and what it settles is the memory's business."""

    seed: int
    silo: str

    def randomness(self, purpose: str, length: int) -> bytes:
        return stretched(f"{self.seed}\x1f{self.silo}".encode(), purpose, length)

    def sign(self, text: bytes) -> bytes:
        return self._proof(self.silo, text)

    def verify(self, silo: str, text: bytes, proof: bytes) -> bool:
        return proof == self._proof(silo, text)

    def settle(self, what: str, value: str) -> bool:
        return True

    def record(self, what: str, line: str) -> list[str]:
        return []

    def _proof(self, silo: str, text: bytes) -> bytes:
        return stretched(f"{self.seed}\x1f{silo}".encode() + text, "proof", 32)


def stretched(secret: bytes, purpose: str, length: int) -> bytes:
    """As many bytes as are wanted from a secret, of a purpose's own (SHAKE-256)."""
    return hashlib.shake_256(len(secret).to_bytes(8, "big") + secret + purpose.encode()).digest(length)


def seed_of(secret: bytes) -> int:
    """For torch's generators, where little depends on nobody knowing it."""
    return int.from_bytes(secret[:8], "big") >> 1


def uniform(secret: bytes, count: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) with 53 random bits each. Torch's generators would not do: 32 bits give their state away."""
    blocks: list[NDArray[np.float64]] = [np.empty(0)]
    for number, start in enumerate(range(0, count, _BLOCK)):
        found = stretched(secret, f"block {number}", 8 * min(_BLOCK, count - start))
        blocks.append((np.frombuffer(found, dtype="<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53)
    return np.concatenate(blocks)


def normal(secret: bytes, like: Tensor) -> Tensor:
    """Independent standard normal numbers in the shape of a tensor (Box and Muller)."""
    pairs = (like.numel() + 1) // 2
    drawn = uniform(secret, 2 * pairs)
    radius, angle = np.sqrt(-2 * np.log1p(-drawn[:pairs])), 2 * np.pi * drawn[pairs:]
    values = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[: like.numel()]
    return torch.from_numpy(values).to(like.device, like.dtype).reshape(like.shape)
