"""How long a silo's local path is, in units of the learning rate: shared by SCAFFOLD and FedNova."""

from __future__ import annotations


def path_length(steps: int, momentum: float = 0.0, pull: float = 0.0) -> float:
    """How far `steps` steps go along a constant gradient of length 1, with momentum and a pull back (eta mu)."""
    speed = length = 0.0
    for _ in range(steps):
        speed = momentum * speed + 1 - pull * length
        length += speed
    return length
