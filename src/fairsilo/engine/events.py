"""What a run tells while it goes on: events, the results they carry, and those who listen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairsilo.errors import FairsiloError, nearest, reason_of


@dataclass(frozen=True)
class RoundResults:
    """What a round found out.

    Attributes:
        losses: Silo -> mean training loss of its local steps, for the silos that answered.
        weights: Silo -> its weight in the aggregation.
        rows: One measurement each, as in `metrics.jsonl`: round, silo, domain, unseen, model, split, loss, metric,
            samples and what else the task measures. Empty in rounds that are not evaluated.
        means: The reported metric on test data, averaged over silos. Keys: `global` (the global model at the silos
            that train), `unseen` (the global model at the unseen silos), `personal` (the silos' own models at home),
            `adapted` (the model adapted at test time, at the unseen silos). A key without a measurement is left out.
    """

    losses: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    rows: tuple[dict[str, Any], ...] = ()
    means: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """One thing that happened in a run.

    Attributes:
        kind: What happened; `Listener` has a method for each kind, which describes it.
        round: The round, from 1; 0 before the first.
        rounds: How many rounds the run has.
        silo: The silo it is about (`reply`, `failed`), else empty.
        loss: The training loss that a silo replied with (`reply` to a `train` exchange), else None.
        text: The method (`method`), a sentence (`note`), the kind of exchange (`asked`, `reply`), the reason
            (`failed`), what the method noted in the round (`round`), or how the run ended (`over`).
        results: Losses, weights and metrics of the round (`evaluated`, `round`), else None.
        where: Which run begins (`method`): its held-out domain and seed, in words; else empty.
        silos: The silos that are asked (`asked`), else empty.
        folder: The run folder (`method`), else None.
        group: The name of the comparison that the run is part of (`method`), else empty.

    Example:
        >>> from fairsilo import Event
        >>> event = Event("failed", round=2, rounds=6, silo="clinic", text="timeout: no answer within 60 s")
        >>> event.kind, event.silo, event.text
        ('failed', 'clinic', 'timeout: no answer within 60 s')
    """

    kind: str
    round: int
    rounds: int
    silo: str = ""
    loss: float | None = None
    text: str = ""
    results: RoundResults | None = None
    where: str = ""
    silos: tuple[str, ...] = ()
    folder: Path | None = None
    group: str = ""


Callback = Callable[[Event], object]  # one that listens: a Listener, or any function of an event
Callbacks = Callback | Sequence[Callback]  # what a run takes as its listener
_PREFIX = "on_"
_ALSO = {"on_silo_failed": "on_failed"}  # another name of a method, for those who know it by that


class Listener:
    """Base class of what follows a run: override the methods of the events you want.

    An instance is callable with an event, and calls the method of that event's kind. Any other function of an event
    can be given as a listener too. A listener that raises an `Exception` does not stop the run: it is dropped, and
    the run's log and notes say so once. `KeyboardInterrupt` and other exceptions that are not an `Exception` pass and
    stop the run, which can be resumed.

    Attributes:
        label: What notes call this listener; it may be empty.
        travels: Whether a copy follows the runs of a comparison that are made in other processes; it must be picklable.

    Raises:
        TypeError: A subclass defines an `on_` method for an event that does not exist, or one by two names.

    Example:
        >>> from fairsilo import Event, Listener
        >>> class Losses(Listener):
        ...     def on_round(self, event):
        ...         print(event.round, event.results.losses)
        >>> from fairsilo.engine.events import RoundResults
        >>> Losses()(Event("round", 1, 6, results=RoundResults(losses={"a": 0.5})))
        1 {'a': 0.5}
    """

    label: str = ""
    travels: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if name in _ALSO:
                if _ALSO[name] in vars(cls):
                    raise TypeError(f"{cls.__name__} has {name} and {_ALSO[name]}, which are the same; define one")
                setattr(cls, _ALSO[name], method)
            elif name.startswith(_PREFIX) and not hasattr(Listener, name):
                known = [one for one in vars(Listener) if one.startswith(_PREFIX)]
                raise TypeError(f"{cls.__name__}.{name} is for no event of a run{nearest(name, known)}")

    def __call__(self, event: Event) -> None:
        getattr(self, f"{_PREFIX}{event.kind}")(event)

    def on_method(self, event: Event) -> None:
        """A run begins or is resumed; `text` is the method. A comparison and a baseline have one for each run."""

    def on_note(self, event: Event) -> None:
        """Something to know about the run, said before its first round; `text` is the sentence."""

    def on_start(self, event: Event) -> None:
        """Rounds begin; `round` is the number of rounds that the checkpoint holds already."""

    def on_opened(self, event: Event) -> None:
        """A round begins: the messages to its silos are made."""

    def on_asked(self, event: Event) -> None:
        """An exchange begins: `silos` are sent their messages; `text` is the kind of exchange."""

    def on_reply(self, event: Event) -> None:
        """`silo` answered an exchange; `text` is the kind of exchange, `loss` its training loss in `train`."""

    def on_failed(self, event: Event) -> None:
        """`silo` gave no usable answer and is left out of the exchange; `text` is the reason.

        A subclass may call it `on_silo_failed`.
        """

    def on_trained(self, event: Event) -> None:
        """All silos of the round have answered the `train` exchange or failed."""

    def on_closed(self, event: Event) -> None:
        """The global model has moved; below the quorum it has not, and the run stops."""

    def on_evaluated(self, event: Event) -> None:
        """The models of the round are measured; `results` has the rows and the means."""

    def on_saved(self, event: Event) -> None:
        """A checkpoint is on the disk."""

    def on_round(self, event: Event) -> None:
        """A round is complete; `results` has losses, weights and, in evaluated rounds, metrics; `text` its notes."""

    def on_end(self, event: Event) -> None:
        """The last round is complete and the global model is saved."""

    def on_over(self, event: Event) -> None:
        """The run ends: `text` is `finished` (`summary.json` is written), `interrupted` or `stopped`."""


def silent(event: Event) -> None:
    """The default listener."""


class Guarded:
    """Calls listeners; one that raises is dropped, and the run goes on with the others.

    Attributes:
        group: The name of the comparison whose run begins next.
    """

    def __init__(self, listeners: Sequence[Callback]) -> None:
        self._listeners = tuple(listeners)
        self._notes: list[str] = []
        self.group = ""

    def __call__(self, event: Event) -> None:
        if event.kind == "method":
            event = replace(event, group=self.group)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as problem:  # noqa: BLE001 - code of the user's, which only watches
                self._drop(listener, event, problem)

    def _drop(self, listener: Callback, event: Event, problem: Exception) -> None:
        self._listeners = tuple(one for one in self._listeners if one is not listener)
        label = getattr(listener, "label", "")
        who = f"the listener {label}" if label else "the listener"
        note = f"{who} raised at the event {event.kind!r} and is not called any more: {reason_of(problem)}"
        self._notes.append(note)
        logging.getLogger("fairsilo").warning(note)

    def travelling(self) -> tuple[Callback, ...]:
        """Those of which a copy follows a run in another process."""
        return tuple(one for one in self._listeners if getattr(one, "travels", False))

    def take_notes(self) -> list[str]:
        """What is to be noted with the run; each note is handed out once."""
        notes, self._notes = self._notes, []
        return notes


def guarded(listener: Callbacks) -> Guarded:
    """The listener, or several, kept from stopping a run."""
    if isinstance(listener, Guarded):
        return listener
    listeners: list[Any] = [listener] if callable(listener) or not isinstance(listener, Iterable) else list(listener)
    for one in listeners:
        if not callable(one):
            raise FairsiloError(
                f"a listener is a function of an Event, or an object of a class derived from fairsilo.Listener; "
                f"{type(one).__name__} is neither"
            )
    return Guarded(listeners)


def means_of(rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The reported metric on test data, averaged over silos, as `RoundResults.means` has it."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["split"] == "test":
            key = "unseen" if row["unseen"] and row["model"] == "global" else row["model"]
            found.setdefault(key, []).append(row["metric"])
    return {key: sum(values) / len(values) for key, values in found.items()}
