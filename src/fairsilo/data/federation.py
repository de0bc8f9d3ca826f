"""Silos, unseen silos and the task: how a data set becomes a federation with one domain held out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.roster import Member, Roster
from fairsilo.core.samples import SiloData, Split, joined
from fairsilo.core.task import Task
from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset, Domain, in_order, undecided
from fairsilo.errors import FairsiloError, nearest
from fairsilo.tasks.registry import task_of

LEFT_OUT = -2  # a sample that data.share gives to no silo


@dataclass(frozen=True)
class Federation:
    """The silos that train, the unseen silos that only evaluate, and what the data are about.

    Silos are kept in name order, so that the order in which they were given can never change a number.

    Args:
        name: Of the data, in tables and reports.
        classes: The names of the classes; targets number them from 0.
        silos: Who trains. Names differ, samples all have one shape, and each has a training sample.
        unseen: Who is only evaluated, on its test split.
        task: What networks are trained for, such as `classify`.
        settled: Settings that have no effect, since the data themselves decide.

    Raises:
        FairsiloError: What is given breaks one of these rules, a label is out of range, or a class is tested that no
            silo trains on.

    Example:
        >>> import torch
        >>> from fairsilo import Federation, SiloData, Split
        >>> split = Split(torch.rand(12, 1, 8, 8), torch.arange(12) % 2)
        >>> b, a, street = (SiloData(name, name, split, split, split) for name in ("b", "a", "street"))
        >>> people = Federation("toy", ("no", "yes"), (b, a), unseen=(street,))
        >>> people.names, people.unseen_names, len(people["a"].train)
        (('a', 'b'), ('street',), 12)
    """

    name: str
    classes: tuple[str, ...]
    silos: tuple[SiloData, ...]
    unseen: tuple[SiloData, ...] = ()
    task: str = "classify"
    settled: tuple[str, ...] = ()  # settings that have no effect, since the data themselves decide

    def __post_init__(self) -> None:
        for key in ("silos", "unseen"):
            object.__setattr__(self, key, tuple(sorted(getattr(self, key), key=lambda silo: silo.name)))
        names = [silo.name for silo in (*self.silos, *self.unseen)]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise FairsiloError(f"two silos are called {twice!r}; names must differ")
        if not self.silos:
            raise FairsiloError("the federation has no silo that trains; hold out fewer domains")
        for silo in self.silos:
            if not len(silo.train):
                raise FairsiloError(f"silo {silo.name!r} has no training samples")
        self._check_shapes()
        self._check_targets(task_of(self.task, len(self.classes)))

    def _check_shapes(self) -> None:
        first = self.silos[0]
        for silo in (*self.silos, *self.unseen):
            for split in (silo.train, silo.validation, silo.test):
                if len(split) and split.shape != first.train.shape:
                    theirs, ours = ("x".join(map(str, shape)) for shape in (split.shape, first.train.shape))
                    raise FairsiloError(
                        f"silo {silo.name!r} has samples of {theirs}, and silo {first.name!r} of {ours}; "
                        "all must have one shape"
                    )

    def _check_targets(self, task: Task) -> None:
        for silo in (*self.silos, *self.unseen):
            for split in (silo.train, silo.validation, silo.test):
                fault = task.fault(split.targets) if len(split) else None
                if fault:
                    raise FairsiloError(f"silo {silo.name!r} {fault}")
        trained = [task.occurrences(silo.train.targets) for silo in self.silos]
        for number, name in enumerate(self.classes):
            if any(counts is None or counts[number] for counts in trained):
                continue
            for silo in (*self.unseen, *self.silos):
                counts = task.occurrences(silo.test.targets)
                if counts is not None and counts[number]:
                    self._refuse_untrained(name, silo)

    def _refuse_untrained(self, name: str, tested: SiloData) -> None:
        if tested in self.unseen:
            raise FairsiloError(
                f"class {name!r} is in the held-out domain {tested.domain!r}, and no silo that trains has a sample "
                "of it; hold out another domain or remove the class"
            )
        raise FairsiloError(
            f"class {name!r} has test samples at silo {tested.name!r}, and no silo has a training sample of it; "
            "lower data.test and data.validation, or remove the class"
        )

    def __getitem__(self, name: str) -> SiloData:
        for silo in (*self.silos, *self.unseen):
            if silo.name == name:
                return silo
        raise KeyError(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(silo.name for silo in self.silos)

    @property
    def unseen_names(self) -> tuple[str, ...]:
        return tuple(silo.name for silo in self.unseen)

    @property
    def roster(self) -> Roster:
        """What the server may know of the silos."""
        sample = self.silos[0].train
        task = task_of(self.task, len(self.classes))
        silos, unseen = (tuple(member_of(silo, task) for silo in some) for some in (self.silos, self.unseen))
        dtype = str(sample.dtype).removeprefix("torch.")
        return Roster(self.name, self.classes, sample.shape, dtype, silos, unseen, self.task)

    def share_memory(self) -> None:
        """Move every tensor to shared memory, so that worker processes read it in place."""
        for silo in (*self.silos, *self.unseen):
            for split in (silo.train, silo.validation, silo.test):
                split.share_memory()


def member_of(silo: SiloData, task: Task) -> Member:
    """What a silo says of itself; classes that its test data lack are counted too, as none."""
    found = [task.occurrences(split.targets) if len(split) else None for split in (silo.test, silo.train)]
    return silo.member(*(() if counts is None else tuple(counts.tolist()) for counts in found))


def pooled(federation: Federation, more: Iterable[Split] = ()) -> Federation:
    """All that silos hold, and whatever is given besides to train on, as one silo's."""
    silos = federation.silos

    def together(splits: Iterable[Split]) -> Split:
        found = [split for split in splits if len(split)]
        return joined(found) if found else silos[0].validation

    everything = SiloData(
        "pooled",
        "+".join(dict.fromkeys(silo.domain for silo in silos)),
        together([*(silo.train for silo in silos), *more]),
        together(silo.validation for silo in silos),
        together(silo.test for silo in silos),
    )
    return Federation(federation.name, federation.classes, (everything,), federation.unseen, federation.task)


def federate(
    dataset: Dataset,
    *,
    held_out: str | None = "auto",
    silos_per_domain: int | Mapping[str, float] = 1,
    share: Mapping[str, float] | None = None,
    dif: float | None = None,
    order: Sequence[str] | None = None,
    validation: float = 0.15,
    test: float = 0.2,
    seed: int = 0,
    split: str = "auto",
) -> Federation:
    """Leave one domain (or several, `a+b` or `a,b`, or none, `-`) out; divide every other one into silos.

    The unseen silo is tested on all samples of its domain. The silos of one domain divide its training and
    validation samples among them and are tested on the whole test set of the domain. `silos_per_domain` and `share`
    go by domain, or for all of them under the empty name: how many silos it has, and how much of its training samples
    each of them gets (up to 1 a share, above 1 a number; the rest is left out). With `dif` the domains are FedGCR's
    client types, in the order given, the first with the most silos and samples. `split` is `data.split`.
    """
    outside = held_out_domains(dataset, held_out)
    given_splits = any((domain.split != UNDECIDED).any() for domain in dataset.domains.values())
    if split != "auto":
        dataset = _split_anew(dataset, split, outside, test)
    counts = {"": silos_per_domain} if isinstance(silos_per_domain, int) else silos_per_domain
    for key, given in (("data.silos_per_domain", counts), ("data.share", share or {})):
        _check_named(key, given, dataset, outside)
    task = task_of(dataset.task, len(dataset.classes))
    if dif is not None:
        listed = {name: dataset.domains[name] for name in order or dataset.domains}
        dataset = replace(dataset, domains=listed)
        if share:
            raise FairsiloError("data.dif decides how many samples each silo gets; leave data.share out")
        found = _typed(dataset, outside, dif, set(counts.values()), validation, test, seed)
        return replace(found, settled=_settled_by(split, found.settled, given_splits))
    silos: list[SiloData] = []
    unseen: list[SiloData] = []
    for name, domain in dataset.domains.items():
        if name in outside:
            everything = domain.samples
            nothing = everything.subset([])
            unseen.append(SiloData(name, name, nothing, nothing, everything))
        else:
            count = int(counts.get(name, counts.get("", 1)))
            part = (share or {}).get(name, (share or {}).get(""))
            silos += divide(domain, task, count, validation, test, seed, part)
    inside = [domain for name, domain in dataset.domains.items() if name not in outside]
    settled = _settled_by(split, _settled(inside), given_splits)
    return Federation(dataset.name, dataset.classes, tuple(silos), tuple(unseen), dataset.task, settled)


def _split_anew(dataset: Dataset, split: str, outside: Sequence[str], test: float) -> Dataset:
    """Without the splits that the data name; by `order` those who train get them by the order of their samples."""
    made = {
        name: in_order(domain, test) if split == "order" and name not in outside else undecided(domain)
        for name, domain in dataset.domains.items()
    }
    return replace(dataset, domains=made)


def _settled_by(split: str, settled: tuple[str, ...], given_splits: bool) -> tuple[str, ...]:
    """Which settings have no effect, once `data.split` is considered."""
    if split == "order":  # then the last tenths are as many as `data.test` says
        return tuple(key for key in settled if key != "data.test")
    return settled if split == "auto" or given_splits else (*settled, "data.split")


def _check_named(key: str, given: Mapping[str, float], dataset: Dataset, outside: Sequence[str]) -> None:
    for name in filter(None, given):
        if name not in dataset.domains:
            raise FairsiloError(
                f"{key} names {name!r}, which is no domain of {dataset.name}{nearest(name, dataset.domains)}"
            )
        if name in outside:
            raise FairsiloError(f"{key} names {name!r}, which is held out and has no silos that train")


def _settled(domains: Iterable[Domain]) -> tuple[str, ...]:
    """Which shares have no effect on these domains, since every one of them names such samples itself."""
    known = {"data.test": True, "data.validation": True}
    for domain in domains:
        split = _with_whole_groups(domain)
        known["data.test"] &= bool((split == TEST).any() or not (split == UNDECIDED).any())
        known["data.validation"] &= bool((split == VALIDATION).any())
    return tuple(key for key, settled in known.items() if settled)


def _typed(
    dataset: Dataset, outside: Sequence[str], dif: float, counts: set[float], validation: float, test: float, seed: int
) -> Federation:
    """FedGCR's protocol: type i has round(r^(T-1-i)) silos and 1/r^i of the first type's samples (or all it has, where
    that is less), and inside a type silo j has r^j shares; r = dif^(1/(T-1)) to one digit, from 2 on up to the next
    hundredth. With dif = 1: two silos each, of one share and three."""
    if counts != {1}:
        raise FairsiloError("data.dif decides the number of silos of each domain; leave data.silos_per_domain at 1")
    inside = [name for name in dataset.domains if name not in outside]
    given = next((name for name in inside if dataset.domains[name].silo is not None), None)
    if given:
        raise FairsiloError(f"data.dif decides the silos of each domain, but the data of {given!r} name their own")
    exact = dif ** (1 / max(len(inside) - 1, 1))
    # as the released sizes have it: 1.8 of 1.78, 2.16 of 2.154
    ratio = round(exact, 1) if exact < 2 else math.ceil(round(100 * exact, 6)) / 100
    plain = federate(dataset, held_out="+".join(outside) or "-", validation=validation, test=test, seed=seed)
    holders = {silo.domain: silo for silo in plain.silos}
    silos = []
    for index, name in enumerate(inside):
        holder = holders[name]
        number = 2 if dif == 1 else max(1, round(ratio ** (len(inside) - 1 - index)))
        shares = [(3.0 if dif == 1 else ratio) ** j for j in range(number)]
        for part in ("train", "validation"):
            kept = round(len(holders[inside[0]].split(part)) / ratio**index)
            stream = streams.generator(seed, "types", name, part)
            order = torch.randperm(len(holder.split(part)), generator=stream)[:kept]
            bounds = [round(len(order) * sum(shares[:j]) / sum(shares)) for j in range(number + 1)]
            pieces = [order[bounds[j] : bounds[j + 1]] for j in range(number)]
            if part == "train":
                trained = pieces
            else:
                validated = pieces
        for j in range(number):
            if not len(trained[j]):
                raise FairsiloError(f"data.dif={dif:g} leaves silo {j + 1} of {name!r} without a training sample")
            silos.append(
                SiloData(
                    f"{name}-{j + 1:02d}",
                    name,
                    holder.train.subset(trained[j]),
                    holder.validation.subset(validated[j]),
                    holder.test,
                )
            )
    return replace(plain, silos=tuple(silos))


def held_out_domains(dataset: Dataset, held_out: str | None) -> tuple[str, ...]:
    """The domains a setting such as `photo`, `a+b`, `a,b`, `-` or `auto` names."""
    if held_out in (None, "-", "none", ""):
        return ()
    names = list(dataset.domains)
    if held_out == "auto":
        if len(names) < 2:
            raise FairsiloError(
                f"{dataset.name} has the single domain {names[0]!r}; at least two are needed to hold one out"
            )
        return (names[-1],)
    assert held_out is not None
    pieces = [held_out] if held_out in names else re.split(r"[+,]", held_out)
    chosen = tuple(dict.fromkeys(piece.strip() for piece in pieces))
    for name in chosen:
        if name not in names:
            raise FairsiloError(
                f"data.held_out is {name!r}, which is no domain of {dataset.name}{nearest(name, names)}"
            )
    if len(chosen) == len(names):
        raise FairsiloError("data.held_out names every domain; at least one must be left to train on")
    return chosen


def divide(
    domain: Domain, task: Task, count: int, validation: float, test: float, seed: int, share: float | None = None
) -> list[SiloData]:
    """The silos of one domain, with the splits that the data leave open carved out.

    With a share each silo gets so much of the domain's training samples (of its own, where the data name silos), drawn
    from each stratum alike, and what the data set aside for validation is cut as much. Every silo keeps a training
    sample, also where the shares would leave it none: a site with a handful of samples takes part, with little or
    nothing to be validated or tested on.
    """
    if domain.silo is not None and count > 1:
        raise FairsiloError(
            f"data.silos_per_domain is {count}, but the data of {domain.name!r} name their own silos; leave it at 1"
        )
    if domain.silo is not None:
        holders = sorted(set(domain.silo))
        owner = torch.tensor([holders.index(name) for name in domain.silo])
    else:
        holders = [domain.name] if count == 1 else [f"{domain.name}-{i + 1}" for i in range(count)]
        owner = torch.zeros(len(domain), dtype=torch.long)
    carving = _Carving(domain, task.strata(domain.targets), owner, count if domain.silo is None else 1, seed)
    split = carving.split
    if (split == UNDECIDED).any() and not (split == TEST).any():
        carving.carve(UNDECIDED, TEST, test, "test")
    split[split == UNDECIDED] = TRAIN
    if share is not None:
        for index, holder in enumerate(holders if domain.silo is not None else [domain.name]):
            _cut(split, owner == index, carving.strata, share, count, holder, seed)
    if not (split == VALIDATION).any():
        carving.carve(TRAIN, VALIDATION, validation, "validation")
    if domain.silo is None:
        owner = _deal(domain, carving.strata, split, count, seed)
    everything = domain.samples
    tested = everything.subset((split == TEST).nonzero().flatten())
    silos = []
    for index, holder in enumerate(holders):
        train = ((split == TRAIN) & (owner == index)).nonzero().flatten()
        valid = ((split == VALIDATION) & (owner == index)).nonzero().flatten()
        if not len(train):
            raise FairsiloError(
                f"silo {holder!r} of domain {domain.name!r} gets no training sample; "
                "it needs more samples or groups, or fewer silos per domain"
            )
        silos.append(SiloData(holder, domain.name, everything.subset(train), everything.subset(valid), tested))
    return silos


def _cut(split: Tensor, mine: Tensor, strata: Tensor, share: float, count: int, name: str, seed: int) -> None:
    """Leave `count` silos so much of the samples each: of the training samples a share or a number, of those for
    validation as much of them; the rest is in no split."""
    pools = {part: (mine & (split == part)).nonzero().flatten() for part in (TRAIN, VALIDATION)}
    training = len(pools[TRAIN])
    each = math.floor(share * training + 1e-9) if share <= 1 else int(share)
    if each < 1 or each * count > training:
        wanted = f"{count} x {each} samples" if count > 1 else f"{each} samples"
        raise FairsiloError(f"data.share={share:g} asks for {wanted} of {name!r}, which has {training} to train on")
    for part, pool in pools.items():
        kept = count * each if part == TRAIN else min(len(pool), count * max(1, len(pool) * each // training))
        order = torch.randperm(len(pool), generator=streams.generator(seed, "share", name, part))
        pool = pool[order]
        rank = torch.zeros(len(pool), dtype=torch.float64)
        for stratum in sorted(set(strata[pool].tolist())):
            members = strata[pool] == stratum
            number = int(members.sum())
            rank[members] = (torch.arange(number, dtype=torch.float64) + 0.5) / number
        split[pool[rank.argsort(stable=True)[kept:]]] = LEFT_OUT


def _with_whole_groups(domain: Domain) -> Tensor:
    """The splits that the data name; undecided samples of a group that is decided elsewhere go where the rest is."""
    split = domain.split.clone()
    if domain.group is None:
        return split
    for group in set(domain.group[split == UNDECIDED].tolist()):
        members = domain.group == group
        decided = split[members & (split != UNDECIDED)]
        if len(decided):
            split[members & (split == UNDECIDED)] = decided[0]
    return split


class _Carving:
    """Takes test and validation samples out of a domain, the same share of each stratum and whole groups at a time."""

    def __init__(self, domain: Domain, strata: Tensor, owner: Tensor, least: int, seed: int) -> None:
        self.domain, self.strata, self.owner, self.least, self.seed = domain, strata, owner, least, seed
        self.split = _with_whole_groups(domain)

    def carve(self, source: int, target: int, share: float, purpose: str) -> None:
        """Move a share of each stratum from one split to another, and leave `least` training samples to each owner."""
        if share == 0:
            return
        for stratum in sorted(set(self.strata.tolist())):
            pool = ((self.split == source) & (self.strata == stratum)).nonzero().flatten()
            stream = streams.generator(self.seed, "split", purpose, self.domain.name, stratum)
            pool = pool[torch.randperm(len(pool), generator=stream)]
            wanted, moved = round(share * len(pool)), 0
            for members in self._together(pool, source, wanted):
                if moved >= wanted:
                    break
                if self._spared(members, source):
                    self.split[members] = target
                    moved += len(members)

    def _together(self, pool: Tensor, source: int, wanted: int) -> Iterator[Tensor]:
        """What moves at once: groups, or samples; all that are wanted in one go where nobody would run short."""
        if self.domain.group is None:
            first = pool[:wanted]
            yield from (first,) if self._spared(first, source) else torch.split(first, 1)
            return
        for group in dict.fromkeys(self.domain.group[pool].tolist()):
            yield ((self.domain.group == group) & (self.split == source)).nonzero().flatten()

    def _spared(self, members: Tensor, source: int) -> bool:
        """Whether every owner of these samples has enough left to train on without them."""
        left = (self.split == source) | (self.split == TRAIN)
        left[members] = False
        counts = torch.bincount(self.owner[left], minlength=int(self.owner.max()) + 1)
        return bool((counts[self.owner[members]] >= self.least).all())


def _deal(domain: Domain, strata: Tensor, split: Tensor, count: int, seed: int) -> Tensor:
    """Deal each stratum of each split round the silos in random order, so that they are alike in size and classes."""
    owner = torch.zeros(len(domain), dtype=torch.long)
    turn = 0
    for part in (TRAIN, VALIDATION):
        for stratum in sorted(set(strata.tolist())):
            pool = ((split == part) & (strata == stratum)).nonzero().flatten()
            stream = streams.generator(seed, "deal", domain.name, part, stratum)
            pool = pool[torch.randperm(len(pool), generator=stream)]
            owner[pool] = (torch.arange(len(pool)) + turn) % count
            turn += len(pool)
    return owner
