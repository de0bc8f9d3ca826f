"""Federations for pilots, made of the training domains alone.

What somebody will report on later takes no part in choosing a method: neither a domain that is held out, nor the test
samples of the silos that train. In a pilot one of the training domains plays the unseen one, and a part of each silo's
training samples the test data.
"""

from __future__ import annotations

import torch

from fairsilo.core import streams
from fairsilo.core.samples import SiloData, Split, joined
from fairsilo.data.federation import Federation

SHARE = 0.2  # of a silo's training samples that pilots are judged by
LEAST = 3  # domains: one is held out, and two train


def domains_of(federation: Federation) -> tuple[str, ...]:
    """The domains that train."""
    return tuple(dict.fromkeys(silo.domain for silo in federation.silos))


def blind(federation: Federation, held_out: str, seed: int) -> Federation:
    """The federation of a pilot.

    Args:
        federation: Of which only what silos train and validate with is used.
        held_out: The domain that nobody trains on; `-` for none.
        seed: Decides which training samples the pilot is judged by.

    Raises:
        FairsiloError: Without that domain a class has no training sample, or no silo is left.
    """
    silos = [_judged(silo, seed) for silo in federation.silos if silo.domain != held_out]
    away = [silo for silo in federation.silos if silo.domain == held_out]
    known = joined([split for silo in away for split in (silo.train, silo.validation) if len(split)]) if away else None
    nothing = federation.silos[0].train.subset([])
    unseen = (SiloData(held_out, held_out, nothing, nothing, known),) if known is not None else ()
    return Federation(federation.name, federation.classes, tuple(silos), unseen, federation.task)


def _judged(silo: SiloData, seed: int) -> SiloData:
    """With some of its training samples in the place of its test samples: of each class alike, where there are any."""
    stream = streams.generator(seed, 0, "pilot", silo.name)
    order = torch.randperm(len(silo.train), generator=stream)
    targets = silo.train.targets
    if targets.dim() == 1 and not targets.is_floating_point():
        kept = [order[targets[order] == one] for one in sorted(set(targets.tolist()))]
    else:
        kept = [order]
    test = torch.cat([some[: int(SHARE * len(some))] for some in kept])
    train = torch.cat([some[int(SHARE * len(some)) :] for some in kept])
    return SiloData(silo.name, silo.domain, _part(silo.train, train), silo.validation, _part(silo.train, test))


def _part(split: Split, places: torch.Tensor) -> Split:
    return split.subset(places.sort().values)
