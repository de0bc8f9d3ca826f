"""Federations for pilots, made of the training domains alone.

What somebody will report on later takes no part in choosing a method: neither a domain that is held out, nor the test
samples of the silos that train. In a pilot one of the training domains plays the unseen one, and silos' validation
samples play the test data: they were kept apart from the training samples by the data's own rules (patients stay whole,
texts are not cut in the middle). What methods validate with is cut from the training samples instead.
"""

from __future__ import annotations

import hashlib

import torch

from fairsilo.core import streams
from fairsilo.core.fingerprints import fingerprints
from fairsilo.core.samples import SiloData, Split, joined
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError

SHARE = 0.15  # of a silo's training samples that it validates with; and that it is judged by, where it has no others
LEAST = 3  # domains: one is held out, and two train
TRIES = 20  # at a cut that leaves every class something to train on


def domains_of(federation: Federation) -> tuple[str, ...]:
    """The domains that train."""
    return tuple(dict.fromkeys(silo.domain for silo in federation.silos))


def content_of(federation: Federation) -> str:
    """Differs where what silos train or validate with differs."""
    found = hashlib.sha256()
    for silo in federation.silos:
        found.update(repr((silo.name, silo.domain)).encode())
        for split in (silo.train, silo.validation):
            found.update(fingerprints(split).numpy().tobytes() if len(split) else b"-")
            found.update(split.targets.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def blind(federation: Federation, held_out: str, seed: int) -> Federation:
    """The federation of a pilot.

    Args:
        federation: Of which only what silos train and validate with is used.
        held_out: The domain that nobody trains on; `-` for none.
        seed: Decides which training samples silos validate with.

    Raises:
        FairsiloError: Without that domain a class has no training sample, no silo is left, or none has enough samples.
    """
    away = [silo for silo in federation.silos if silo.domain == held_out]
    known = joined([split for silo in away for split in (silo.train, silo.validation) if len(split)]) if away else None
    nothing = federation.silos[0].train.subset([])
    unseen = (SiloData(held_out, held_out, nothing, nothing, known),) if known is not None else ()
    here = [silo for silo in federation.silos if silo.domain != held_out]
    for attempt in range(TRIES):
        silos = tuple(_judged(silo, seed, attempt) for silo in here)
        try:
            found = Federation(federation.name, federation.classes, silos, unseen, federation.task)
        except FairsiloError:
            if attempt == TRIES - 1:
                raise
            continue
        break
    if not any(len(silo.test) for silo in found.silos):
        raise FairsiloError("silos have too few training samples to judge a pilot by")
    return found


def _judged(silo: SiloData, seed: int, attempt: int) -> SiloData:
    """Judged by what it validated with, or by some of its training samples where there is none of that."""
    stream = streams.generator(seed, attempt, "pilot", silo.name)
    rest, validation = _cut(silo.train, stream)
    if len(silo.validation):
        return SiloData(silo.name, silo.domain, rest, validation, silo.validation)
    train, test = _cut(rest, stream)
    return SiloData(silo.name, silo.domain, train, validation, test)


def _cut(split: Split, stream: torch.Generator) -> tuple[Split, Split]:
    """What is left and what is cut off: of each class alike, where there are classes."""
    order, targets = torch.randperm(len(split), generator=stream), split.targets
    groups = [order]
    if targets.dim() == 1 and not targets.is_floating_point():
        groups = [order[targets[order] == one] for one in sorted(set(targets.tolist()))]
    off = torch.cat([some[: int(SHARE * len(some))] for some in groups])
    rest = torch.cat([some[int(SHARE * len(some)) :] for some in groups])
    return split.subset(rest.sort().values), split.subset(off.sort().values)
