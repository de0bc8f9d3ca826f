"""What goes on in a run this moment, for whoever looks at its folder: round, exchange, each silo's state."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fairsilo.engine.events import Event, Listener

WORKING, ANSWERED, FAILED = "working", "answered", "failed"
SHARE = 0.02  # of a run's time, at most, that goes into telling where it is


class Now(Listener):
    """Keeps the state of the round under way, and writes it down as it changes.

    Exchanges that begin, silos that fail and the end of training are always written; single answers are not where they
    follow each other so closely that writing would slow the run.

    Args:
        write: Takes the state: round, rounds, when the round began, the exchange under way, and by silo its `state`,
            the `exchange` it is about, its training `loss` and, where it failed in this round, `why`. None at the end.
        clock: Seconds since 1970.
    """

    def __init__(self, write: Callable[[dict[str, Any] | None], None], clock: Callable[[], float] = time.time) -> None:
        self._write, self._clock = write, clock
        self._round, self._began, self._exchange = -1, clock(), ""
        self._silos: dict[str, dict[str, Any]] = {}
        self._free = 0.0  # when single answers may be written again

    def __call__(self, event: Event) -> None:
        if event.round != self._round:
            self._round, self._began, self._exchange, self._silos = event.round, self._clock(), "", {}
        super().__call__(event)

    def on_start(self, event: Event) -> None:
        self._write(None)  # what a run that was killed left behind

    def on_asked(self, event: Event) -> None:
        self._exchange = event.text
        for silo in event.silos:
            self._silos.setdefault(silo, {}).update(state=WORKING, exchange=event.text)
        self._tell(event)

    def on_reply(self, event: Event) -> None:
        told = {"loss": event.loss} if event.loss is not None else {}
        self._silos.setdefault(event.silo, {}).update(state=ANSWERED, exchange=event.text, **told)
        if self._clock() >= self._free:
            self._tell(event)

    def on_failed(self, event: Event) -> None:
        self._silos.setdefault(event.silo, {}).update(state=FAILED, why=event.text)
        self._tell(event)

    def on_trained(self, event: Event) -> None:
        self._tell(event)  # the last answers may have come too closely to be written

    def on_end(self, event: Event) -> None:
        self._write(None)

    def _tell(self, event: Event) -> None:
        begun = self._clock()
        self._write(
            {
                "round": event.round,
                "rounds": event.rounds,
                "began": self._began,
                "exchange": self._exchange,
                "silos": self._silos,
            }
        )
        self._free = begun + (self._clock() - begun) / SHARE
