"""How much a differentially private mechanism gave away so far. Opacus does the accounting."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

from fairsilo.core.attachments import Sends
from fairsilo.core.messages import SHOWN, Message
from fairsilo.core.silo import Silo
from fairsilo.errors import FairsiloError


def epsilon_of(noise: float, rate: float, steps: int, delta: float) -> float:
    """Epsilon of so many Gaussian mechanisms in a row (Renyi accountant).

    Args:
        noise: Standard deviation of the noise, in units of the bound.
        rate: The share of what is protected that each one draws at random; 1: all of it.
        steps: How many.
        delta: The probability that the bound does not hold.
    """
    try:
        from opacus.accountants import RDPAccountant
    except ImportError as problem:
        raise FairsiloError("privacy is accounted for by Opacus: pip install 'fairsilo[privacy]'") from problem
    accountant: Any = RDPAccountant()  # type: ignore[no-untyped-call]
    accountant.history = [(noise, rate, steps)]
    with warnings.catch_warnings():  # far from the usual settings the bound is loose; it holds all the same
        warnings.filterwarnings("ignore", "Optimal order is")
        return float(accountant.get_epsilon(delta=delta))


class Blurring(Protocol):
    """What this module needs of a part: its settings."""

    @property
    def name(self) -> str: ...

    @property
    def noise(self) -> float: ...

    @property
    def delta(self) -> float: ...

    @property
    def budget(self) -> float: ...


def epsilon_of_part(name: str) -> Sends:
    """What silos tell of it: a number for the report."""
    return Sends(f"{name}{SHOWN}epsilon", optional="there is no noise", least=0)


def account(part: Blurring, silo: Silo, update: Message, rate: float = 1.0, steps: int = 1) -> None:
    """Count the update that is being made, of so many mechanisms at a rate, and tell what all of them have spent.

    Updates that came too late to be used count too: the server has them. Where more would be spent than the silo
    allows, it raises, and nothing is sent.
    """
    kept = silo.memory.of(part)
    kept["updates"] = max(kept.get("updates", 0) + 1, silo.vault.released(part.name, silo.asked))
    if not part.noise:
        return
    epsilon = epsilon_of(part.noise, rate, kept["updates"] * steps, part.delta)
    if part.budget and epsilon > part.budget:
        raise FairsiloError(f"{part.name}: epsilon would be {epsilon:.3g}, and the budget is {part.budget:g}")
    update.numbers[epsilon_of_part(part.name).name] = epsilon
