"""Random generators: each is seeded by a key of the run's seed and its purpose; no state is shared."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_SEEDED = threading.RLock()


def key(seed: int, *purpose: object) -> int:
    """A 63-bit number that depends on the seed and the purpose alone."""
    text = "\x1f".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    return torch.Generator().manual_seed(key(seed, *purpose))


@contextmanager
def ambient(seed: int, *purpose: object) -> Iterator[None]:
    """Seed torch's global generator (dropout, a user's own draws) from a key inside the block; restore it after.

    Threads share that generator: one at a time may be inside.
    """
    with _SEEDED, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(key(seed, *purpose))
        yield
