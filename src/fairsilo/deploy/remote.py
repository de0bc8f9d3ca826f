"""The engine whose silos are at sites: it moves messages over a channel and believes nothing that comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from fairsilo.core.messages import Exchange, Failure, Message, Reply
from fairsilo.core.screening import DIVERGED
from fairsilo.deploy import wire
from fairsilo.deploy.site import ERROR, FAILED, REASONS
from fairsilo.engine.host import REMEMBERED
from fairsilo.errors import StoppedError

NOWHERE = ""  # in the place of a site
LOST = Failure("lost", "its site is not connected")
Asked = tuple[str, wire.Payload]  # a site, and what it is asked


class PauseError(StoppedError):
    """The attempt ends at a round's boundary, so that a site that is back, or new, can take part in the next one."""


class Channel(Protocol):
    """Carries a step to sites and brings back what they say."""

    def call(self, step: str, asked: Mapping[str, Asked], seconds: float | None) -> Iterator[tuple[str, object]]:
        """For each key once, as they arrive, what came back: anything at all, or a Failure where nothing did."""
        ...


class Remote:
    """Silos at sites.

    Args:
        channel: The way to them.
        sites: Silo -> site.
        deadline: Seconds after which an answer is given up; None: there is no deadline.
        pause: Asked before each round; a sentence where the attempt should end here.
        note: Told, in a sentence, which silos do not go on as they were.
    """

    def __init__(
        self,
        channel: Channel,
        sites: Mapping[str, str],
        deadline: float | None = None,
        pause: Callable[[], str] = lambda: "",
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.channel, self.sites, self.deadline, self.pause, self.note = channel, dict(sites), deadline, pause, note
        self._left_out: dict[str, int] = {}  # silo -> the exchange of this round from which on it does not count
        self._unheard: dict[str, list[dict[str, Any]]] = {}  # site -> ends of rounds that it may not know of

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        """Replies in name order; what arrives early waits."""
        if exchange.number == 0 and (sentence := self.pause()):
            raise PauseError(sentence)
        begun = time.perf_counter()
        asked = {name: (self.sites[name], self._question(name, exchange)) for name in exchange.silos}
        arriving = self.channel.call("ask", asked, self.deadline)
        ready: dict[str, Reply] = {}
        for name in exchange.silos:
            while name not in ready:
                silo, content = next(arriving, (name, LOST))
                if silo in asked and silo not in ready:
                    answer = _answer(content, silo, exchange)
                    if isinstance(answer, Message):
                        self._unheard.pop(self.sites[silo], None)
                    elif exchange.kind in REMEMBERED:
                        self._left_out.setdefault(silo, exchange.number)
                    ready[silo] = Reply(silo, answer, time.perf_counter() - begun, exchange.number)
                    del answer  # as large as a model, and another's turn may come first
                del content
            yield ready.pop(name)

    def _question(self, silo: str, exchange: Exchange) -> wire.Payload:
        ends = self._unheard.get(self.sites[silo], [])
        return wire.question(silo, exchange.request(silo)) | (wire.noted({"ends": ends}) if ends else {})

    def begin(self, run: str, plan: str, fresh: bool) -> dict[str, str]:
        """Tell every site the plan, and whether nothing of the run is done yet; returns why some cannot take part."""
        found = self._all("begin", {"run": run, "plan": plan, "fresh": fresh})
        return {site: told[FAILED] for site, told in found.items() if FAILED in told}

    def commit(self, round_: int) -> None:
        """A silo whose answer did not count forgets it. Who does not hear of it now is told with the next question."""
        end = {"round": round_, "left_out": self._left_out}
        self._left_out = {}
        for site in set(self.sites.values()):
            self._unheard.setdefault(site, []).append(end)
        asked = {site: (site, wire.noted({"ends": ends})) for site, ends in sorted(self._unheard.items())}
        for site, told in heard(self.channel, "commit", asked, self.deadline):
            if FAILED not in told:
                self._unheard.pop(site, None)

    def restore(self, round_: int) -> None:
        self._left_out, self._unheard = {}, {}
        for site, told in sorted(self._all("restore", {"round": round_}).items()):
            if FAILED in told:  # it would go on from another state than the run's
                self.sites = {silo: NOWHERE if at == site else at for silo, at in self.sites.items()}
                if told[FAILED] in REASONS:  # who is not there is named with every exchange
                    self.note(f"site {site!r} takes no part: {why(told[FAILED])}")
            for silo, taken in _rounds_in(told).items():
                if self.sites.get(silo) == site and taken < round_:
                    self.note(f"silo {silo!r} goes on from what it kept after round {taken}")

    def close(self) -> None:
        """The channel belongs to the caller."""

    def _all(self, step: str, content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """What every site says to a step that is for all."""
        asked = {site: (site, wire.noted(content)) for site in sorted(set(self.sites.values()))}
        return dict(heard(self.channel, step, asked, self.deadline))


def heard(
    channel: Channel, step: str, asked: Mapping[str, Asked], seconds: float | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The notes that come back; where none does, or none that can be read, `failed` says why."""
    for site, content in channel.call(step, asked, seconds):
        if isinstance(content, Failure):
            yield site, {FAILED: content.kind}
            continue
        try:
            told = wire.note_in(content)
        except wire.WireError:
            told = {FAILED: "malformed"}
        if FAILED in told and told[FAILED] not in REASONS:
            told = {FAILED: "malformed"}
        yield site, told


def why(reason: str) -> str:
    """A sentence for one word of a site, or of the channel."""
    known = {"malformed": "it sent something that cannot be read", "lost": LOST.detail, "timeout": "it did not answer"}
    return REASONS.get(reason) or known.get(reason, "it failed")


def _answer(content: object, silo: str, exchange: Exchange) -> Message | Failure:
    if isinstance(content, Failure):
        return content
    try:
        if isinstance(content, Mapping) and "note" in content:
            reason = str(wire.note_in(content).get(FAILED))
            kind = DIVERGED if reason == DIVERGED else ERROR
            return Failure(kind, f"{REASONS.get(reason, REASONS[ERROR])}; the site's own log says more")
        return wire.answer_to(content, silo, exchange.request(silo))
    except wire.WireError as problem:
        return Failure("malformed", str(problem))


def _rounds_in(told: Mapping[str, Any]) -> dict[str, int]:
    found = told.get("rounds")
    return {str(k): v for k, v in found.items() if type(v) is int} if isinstance(found, dict) else {}
