"""What is searched for a method: settings of its own, and of local training. Ranges stand with the settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from fairsilo.config import Experiment, TrainSettings, given, known_keys
from fairsilo.errors import FairsiloError, nearest
from fairsilo.fields import Span
from fairsilo.methods.pieces import Piece, pieces_of
from fairsilo.methods.text import made
from fairsilo.runs.comparison import OWN, ROWS_MAY, method_in

Asked = Mapping[str, Span | None]  # setting -> where it is searched; None: it is not
SHORT = 3  # digits of a number that is tried: what was found must be readable


@dataclass(frozen=True)
class Dimension:
    """One setting that is searched.

    Attributes:
        name: `train.lr` of a run, `fedprox.mu` of a method.
        span: Where.
        usual: Its value where nothing is searched.
        piece: The place of its method in a composition; None for a setting of the run.
    """

    name: str
    span: Span
    usual: Any
    piece: int | None = None


@dataclass(frozen=True)
class Space:
    """All that is searched for one method."""

    text: str
    dimensions: tuple[Dimension, ...]

    @classmethod
    def of(cls, text: str, base: Experiment, asked: Asked | None = None) -> Space:
        """What is declared for the method and for local training, and what was asked for.

        What the text gives stays as it is, and so does what a method refuses to be given together with it.
        """
        fixed = given(text.partition(OWN)[2].split())
        found = [one for one in (*_of_run(base, asked or {}), *_of_method(text, asked or {})) if one.name not in fixed]
        return cls(text, tuple(one for one in found if _accepted(text, one)))

    @property
    def usual(self) -> dict[str, Any]:
        """The values where nothing is searched."""
        return {one.name: one.usual for one in self.dimensions if one.usual is not None and one.usual in one.span}

    @property
    def has_usual(self) -> bool:
        """Whether the values where nothing is searched lie within all ranges."""
        return len(self.usual) == len(self.dimensions)

    def row(self, values: Mapping[str, Any]) -> str:
        """The method with these values: `fedprox(mu=0.1) @ lr=0.03`."""
        own = [piece.having(self._inside(place, values)) for place, piece in enumerate(pieces_of(method_in(self.text)))]
        settings = [one for one in self.dimensions if one.piece is None and one.name in values]
        told = [
            self.text.partition(OWN)[2].strip(),
            *(f"{_brief(one.name)}={short(values[one.name])}" for one in settings),
        ]
        behind = " ".join(filter(None, told))
        return " | ".join(piece.text for piece in own) + (f" {OWN} {behind}" if behind else "")

    def _inside(self, place: int, values: Mapping[str, Any]) -> dict[str, Any]:
        mine = [one for one in self.dimensions if one.piece == place and one.name in values]
        return {one.name.rpartition(".")[2]: short(values[one.name]) for one in mine}


def _brief(name: str) -> str:
    """The last word of a run's setting, where that is enough."""
    word = name.rpartition(".")[2]
    return word if known_keys().get(word) == name else name


def short(value: Any) -> Any:
    return float(f"{value:.{SHORT}g}") if isinstance(value, float) else value


def _of_run(base: Experiment, asked: Asked) -> list[Dimension]:
    """What `TrainSettings` declare, and what was asked for."""
    spans: dict[str, Span | None] = {f"train.{one.name}": one.metadata["search"] for one in _searched(TrainSettings)}
    spans |= {name: span for name, span in asked.items() if name in known_keys()}
    found = []
    for name, span in spans.items():
        group, _, leaf = name.rpartition(".")
        value = getattr(getattr(base, group) if group else base, leaf)
        here = span.at(value) if span else None
        if here:
            found.append(Dimension(name, here, value))
    return found


def _of_method(text: str, asked: Asked) -> list[Dimension]:
    found: dict[str, Dimension] = {}
    for place, piece in enumerate(pieces_of(method_in(text))):
        for part in made(piece).parts:
            for one in dataclasses.fields(part):
                name, value = f"{piece.name}.{one.name}", getattr(part, one.name)
                span = asked[name] if name in asked else one.metadata.get("search")
                here = span.at(value) if span and one.name not in piece.settings else None
                if here:
                    found.setdefault(name, Dimension(name, here, value, place))
    return list(found.values())


def _searched(owner: type) -> list[dataclasses.Field[Any]]:
    return [one for one in dataclasses.fields(owner) if one.metadata.get("search")]


def _accepted(text: str, one: Dimension) -> bool:
    """Whether a method takes other values of the setting: some have no effect beside the choice of another one."""
    if one.piece is None:
        return True
    piece, key = pieces_of(method_in(text))[one.piece], one.name.rpartition(".")[2]
    try:
        for share in (0.0, 1.0):
            made(piece, **{key: one.span.draw(share)})
    except FairsiloError:
        return False
    return True


# ----------------------------------------------------------------------------------------------------- what was asked
def read_search(texts: Iterable[str], methods: Sequence[str]) -> dict[str, Span | None]:
    """`lr=log:0.001..0.1`, `batch_size=16,32,64`, `fedprox.mu=0..1`, and `weight_decay=-` for what stays as it is.

    Raises:
        FairsiloError: There is no such setting, or it is not written as a range.
    """
    own = {f"{piece.name}.{one.name}" for text in methods for piece, one in _settings_of(text)}
    keys, found = known_keys(), {}
    for text in texts:
        key, _, told = (piece.strip() for piece in text.partition("="))
        name = keys.get(key, key)
        if name not in own and name not in keys:
            raise FairsiloError(f"--search {text}: there is no setting {key!r}{nearest(key, [*own, *keys])}")
        if name in keys and name not in ROWS_MAY and name.partition(".")[0] not in ROWS_MAY:
            raise FairsiloError(f"--search {text}: {name} is the same for all methods and cannot be searched")
        found[name] = None if told == "-" else _span(told, text)
    return found


def _settings_of(text: str) -> list[tuple[Piece, dataclasses.Field[Any]]]:
    pieces = pieces_of(method_in(text))
    return [(piece, one) for piece in pieces for part in made(piece).parts for one in dataclasses.fields(part)]


def _span(told: str, text: str) -> Span:
    log = told.startswith("log:")
    low, dots, high = told.removeprefix("log:").partition("..")
    if not dots:
        values = tuple(yaml.safe_load(piece) for piece in told.split(",") if piece.strip())
        if len(values) < 2:
            raise FairsiloError(f"--search {text}: write LOW..HIGH, log:LOW..HIGH, several values a,b,c, or - for none")
        return Span(among=values)
    try:
        bounds = float(low), float(high)
    except ValueError as problem:
        raise FairsiloError(f"--search {text}: {low!r} and {high!r} must be numbers") from problem
    if not bounds[0] < bounds[1] or (log and bounds[0] <= 0):
        raise FairsiloError(f"--search {text}: the first bound must be {'above 0 and ' if log else ''}below the second")
    return Span(*bounds, log=log, whole=low.strip().isdigit() and high.strip().isdigit())
