"""How long a silo's local path is, in units of the learning rate: shared by SCAFFOLD and FedNova."""

from __future__ import annotations

from torch import Tensor


def path_length(steps: int, momentum: float = 0.0, pull: float = 0.0) -> float:
    """How far `steps` steps go along a constant gradient of length 1, with momentum and a pull back (eta mu)."""
    speed = length = 0.0
    for _ in range(steps):
        speed = momentum * speed + 1 - pull * length
        length += speed
    return length


def nova_coefficients(shares: Tensor, lengths: Tensor) -> Tensor:
    """tau_eff p_i / a_i: what each change w_i - W is multiplied with."""
    return (shares * lengths).sum() * shares / lengths
