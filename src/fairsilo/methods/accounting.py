"""How much a differentially private mechanism gave away so far. Opacus does the accounting."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from fairsilo.core.attachments import Sends
from fairsilo.core.messages import SHOWN, Message
from fairsilo.core.silo import Silo
from fairsilo.errors import FairsiloError

Mechanism = tuple[float, float, int]  # noise in units of the sensitivity, share that is drawn at random, how often


def epsilon_of(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """Epsilon of Gaussian mechanisms one after another (Renyi accountant); delta is how likely it does not hold."""
    if not mechanisms:
        return 0.0
    spent = sum(steps * spent_once(noise, rate) for noise, rate, steps in mechanisms)
    with warnings.catch_warnings():  # far from the usual settings the bound is loose; it holds all the same
        warnings.filterwarnings("ignore", "Optimal order is")
        rdp, orders = _opacus()
        epsilon, _ = rdp.get_privacy_spent(orders=orders, rdp=spent, delta=delta)
    return float(epsilon)


@cache
def spent_once(noise: float, rate: float) -> Any:
    """What one step gives away, for every order: a tenth of a second of sums, the same in every round."""
    rdp, orders = _opacus()
    return rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=orders)


def _opacus() -> tuple[Any, Any]:
    """Its sums, and the orders of Renyi's divergence that it takes."""
    try:
        from opacus.accountants import RDPAccountant
        from opacus.accountants.analysis import rdp
    except ImportError as problem:
        raise FairsiloError("privacy is accounted for by Opacus: pip install 'fairsilo[privacy]'") from problem
    return rdp, RDPAccountant.DEFAULT_ALPHAS


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


def account(part: Blurring, silo: Silo, update: Message, noise: float, rate: float = 1.0, steps: int = 1) -> None:
    """Write down the update that is being made, and tell what all of them have spent.

    At a site every update that was ever computed counts, also one that came too late: the server may have it. Where
    more would be spent than the budget, it raises, and nothing is sent.
    """
    kept = silo.memory.of(part)
    line = json.dumps([noise, rate, steps])
    known = silo.vault.record(part.name, line) or [*str(kept.get("updates", "")).splitlines(), line]
    kept["updates"] = "\n".join(known)
    alike = [(*json.loads(one), count) for one, count in Counter(known).items()]  # as many terms as there are kinds
    mechanisms = [(noise, rate, steps * count) for noise, rate, steps, count in alike]
    epsilon = epsilon_of(mechanisms, part.delta) if part.noise else math.inf
    if part.budget and epsilon > part.budget:
        raise FairsiloError(f"{part.name}: epsilon would be {epsilon:.3g}, and the budget is {part.budget:g}")
    if part.noise:
        update.numbers[epsilon_of_part(part.name).name] = epsilon
