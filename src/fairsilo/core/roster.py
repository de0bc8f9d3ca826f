"""Who takes part: what the loop, the server half of a method and the report know of silos; no data, no tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairsilo.errors import FairsiloError


@dataclass(frozen=True)
class Member:
    """What a silo says of itself when it joins: its name, its domain, and how many samples it has.

    `tested` counts the samples of each class in its test data, from which the chance level is computed, `trained` those
    it trains on, from which weights of classes are; both are empty for tasks without classes.
    """

    name: str
    domain: str
    train: int
    validation: int
    test: int
    tested: tuple[int, ...] = ()
    trained: tuple[int, ...] = ()


@dataclass(frozen=True)
class Roster:
    """The silos that train, the unseen silos that only evaluate, and what all of their samples look like.

    Silos are in name order, so that results do not depend on the order in which they joined.
    """

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # of one sample
    dtype: str  # of one sample, such as uint8
    silos: tuple[Member, ...]
    unseen: tuple[Member, ...] = ()
    task: str = "classify"
    joined: Mapping[str, int] = field(default_factory=dict)  # who came later -> the first round with it

    def __post_init__(self) -> None:
        for key in ("silos", "unseen"):
            object.__setattr__(self, key, in_name_order(getattr(self, key)))
        names = [member.name for member in (*self.silos, *self.unseen)]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise FairsiloError(f"two silos are called {twice!r}; names must differ")

    def __getitem__(self, name: str) -> Member:
        for member in (*self.silos, *self.unseen):
            if member.name == name:
                return member
        raise KeyError(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.silos)

    @property
    def unseen_names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.unseen)

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains of the silos that train, each once."""
        return tuple(dict.fromkeys(member.domain for member in self.silos))

    @property
    def tested(self) -> dict[str, tuple[int, ...]]:
        """Silo -> samples of each class in its test data."""
        return {member.name: member.tested for member in (*self.silos, *self.unseen) if member.tested}

    def grown(self, member: Member, evaluates: bool, round_: int) -> Roster:
        """With one more silo, which takes part from a round on."""
        joined = {**self.joined, **({member.name: round_} if round_ > 1 else {})}
        if evaluates:
            return dataclasses.replace(self, unseen=(*self.unseen, member), joined=joined)
        return dataclasses.replace(self, silos=(*self.silos, member), joined=joined)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Roster:
        silos, unseen = (
            tuple(
                Member(**one | {count: tuple(one.get(count, ())) for count in ("tested", "trained")})
                for one in content[key]
            )
            for key in ("silos", "unseen")
        )
        lists = {key: tuple(content[key]) for key in ("classes", "shape")}
        return cls(**{**content, **lists, "silos": silos, "unseen": unseen})


def in_name_order(members: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(members, key=lambda one: one.name))
