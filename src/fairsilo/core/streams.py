"""Random generators: each is seeded by a key of the run's seed and its purpose; no state is shared."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor


class _Seeded:
    """A lock that its thread may enter again, and may lend to others while it waits for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner != threading.get_ident():
            self._lock.acquire()
            self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()

    @contextmanager
    def lent(self) -> Iterator[None]:
        if self._owner != threading.get_ident():
            yield
            return
        depth, self._depth, self._owner = self._depth, 0, None
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()
            self._owner, self._depth = threading.get_ident(), depth


_SEEDED = _Seeded()
alone = _SEEDED  # around a look at torch's generator, which another thread may have seeded for a moment
lent = _SEEDED.lent  # around a wait for threads that may themselves have to seed torch's generator


def key(seed: int, *purpose: object) -> int:
    """A 63-bit number that depends on the seed and the purpose alone."""
    text = "\x1f".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    return torch.Generator().manual_seed(key(seed, *purpose))


@dataclass(frozen=True)
class Batches:
    """Samples of some batches with the stream of each: what is drawn for all of them at once are the numbers that each
    batch would draw by itself, and what is computed from them is computed once.

    Args:
        each: Of every batch how many samples it has, and its stream.
    """

    each: Sequence[tuple[int, torch.Generator]]

    def __len__(self) -> int:
        return sum(count for count, _ in self.each)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> Tensor:
        """A number for each sample."""
        return low + (high - low) * torch.cat([torch.rand(count, generator=stream) for count, stream in self.each])

    def chosen(self, chance: float) -> Tensor:
        """Whether a sample is one that this is done to."""
        return self.uniform() < chance

    def whole(self, low: int, high: int, *shape: int) -> Tensor:
        """For each sample a whole number from low up to but not high, or as many as a shape has."""
        return torch.cat([torch.randint(low, high, (count, *shape), generator=stream) for count, stream in self.each])


@contextmanager
def ambient(seed: int, *purpose: object) -> Iterator[None]:
    """Seed torch's global generator (dropout, a user's own draws) from a key inside the block; restore it after.

    Threads share that generator: one at a time may be inside.
    """
    with _SEEDED, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        reseed(key(seed, *purpose))
        yield


def reseed(number: int) -> None:
    """Seed torch's global generators of the CPU and of the GPUs there are.

    `torch.manual_seed` also leaves a note, with the whole stack as text, for each kind of device that is not in use,
    which takes a millisecond or more.
    """
    torch.default_generator.manual_seed(number)
    if torch.cuda.device_count():
        torch.cuda.manual_seed_all(number)
