"""Whose adapters answer for each domain (FedAG, Fig. 6)."""

from __future__ import annotations

from dataclasses import dataclass

from fairsilo.analysis.diagnostics.replay import Numbers, Replay, Row, mean_of, measured
from fairsilo.core.server import named


@dataclass(frozen=True)
class DomainAttention:
    """Mean attention that each silo's adapter gets from the test images of one domain."""

    domain: str
    unseen: bool
    images: int
    by_silo: dict[str, float]


@dataclass(frozen=True)
class Attention:
    found: tuple[DomainAttention, ...]

    def rows(self) -> list[Row]:
        return [
            {"domain": item.domain, "unseen": item.unseen, "images": item.images}
            | {"silo": silo, "mean_attention": mean}
            for item in self.found
            for silo, mean in item.by_silo.items()
        ]

    def numbers(self) -> Numbers:
        """How much the strongest adapter counts, mean over the domains that silos train on and over unseen ones."""
        strongest = [(item.unseen, max(item.by_silo.values())) for item in self.found]
        kinds = {"trained": False, "unseen": True}
        return measured(
            {name: mean_of(value for unseen, value in strongest if unseen == which) for name, which in kinds.items()}
        )


def attention(replay: Replay) -> Attention:
    """Which silos' adapters answer for the images of each domain (FedAG's Fig. 6, there for single images).

    beta of the global model after the last round, the mean over all test images of a domain. The images of a silo's
    domain are attended to as an unseen one's would be, though there the silo's own adapter answers alone.
    """
    found = []
    for domain, unseen in replay.domains.items():
        weights = replay.attention(domain).double()
        found.append(DomainAttention(domain, unseen, len(weights), named(replay.silos, weights.mean(0))))
    return Attention(tuple(found))
