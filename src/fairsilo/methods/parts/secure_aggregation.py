"""Secure aggregation (Bonawitz et al., CCS 2017). Differs from FedAvg by updates under masks that cancel in their sum:
the server sees no silo's own, also where silos drop out in the middle of a round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from fairsilo.core.attachments import Sends
from fairsilo.core.messages import MODEL, Message
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server
from fairsilo.core.silo import Silo
from fairsilo.errors import FairsiloError
from fairsilo.fields import setting
from fairsilo.methods import secure_sums as steps

_sends = partial(Sends, dtype="uint8", exchange="share")


@dataclass(frozen=True)
class SecureAggregation(Part):
    """y_i = x_i + PRG(b_i) + sum_{j > i} PRG(s_ij) - sum_{j < i} PRG(s_ij) mod 2^64;  sum_i x_i is all that is seen."""

    name = "secure-aggregation"
    about = About(
        paper="Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017",
        formula="y_i = x_i + PRG(b_i) + sum_{j>i} PRG(s_ij) - sum_{j<i} PRG(s_ij) mod 2^64",
        sends=(
            _sends(f"{name}.keys", "its keys of the round", ("signed",), topic=steps.KEYS, to="everybody"),
            _sends(f"{name}.shares", "shares of keys", ("silos", "letter"), topic=steps.SHARES, to="everybody"),
            _sends(f"{name}.agreed", "its signature under who sent", ("proof",), topic=steps.AGREE),
            _sends(f"{name}.opened", "shares that open the sum", ("silos", "share"), topic=steps.OPEN),
        ),
        keeps=("its keys of the round",),
    )
    does = frozenset({"masks-updates"})

    bits: int = setting(32, "of fixed point behind the point", low=8, high=32, rare="by rounding alone")
    least: int = setting(2, "fewest silos whose sum is computed", low=2, rare="with fewer silos")
    over: float = setting(
        0.5, "a sum needs more than this share of the silos", low=0.5, high=0.99, rare="when silos go"
    )

    @property
    def rule(self) -> steps.Rule:
        return steps.Rule(self.name, self.bits, self.least, self.over)

    def assemble(self, server: Server, silos: list[str]) -> list[str]:
        uniform = server.method.weighting(server.training.weighting) == "uniform"
        if not uniform and any((one.name, one.per) == (MODEL, "sum") for one in server.method.declared):
            raise FairsiloError(f"{server.method.name} needs sums in which silos count alike: train.weighting=auto")
        server.facts[self.name] = session = steps.begun(self.rule, server, silos)
        return session.silos

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        server.facts[self.name].add_to(message, self.name, silo)
        return message

    def share(self, silo: Silo, message: Message) -> Message:
        return steps.answer(self.rule, silo, message)

    def finish(self, silo: Silo, update: Message) -> None:
        steps.remember(self.rule, silo)

    def outgoing(self, silo: Silo, update: Message) -> None:
        steps.mask(self.rule, silo, update)

    def unmask(self, server: Server, silos: list[str], sums: dict[str, Tensor]) -> dict[str, Tensor]:
        return steps.opened(self.rule, server, server.facts[self.name], silos, sums)
