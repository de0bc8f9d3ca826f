"""What each silo does now, and why it does not take part where it does not."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairsilo.analysis.remaining import seconds_left
from fairsilo.engine.now import ANSWERED, FAILED, WORKING
from fairsilo.report.blocks import Run
from fairsilo.runs.folder import NOW
from fairsilo.runs.inventory import FINISHED, STOPPED

EXCLUDED = ("screened", "malformed", "not finite")  # kinds of failures where a silo answered, and the server said no
DOING = {"train": "training", "evaluate": "evaluating", "adapt": "adapting", "personalise": "personalising"}


@dataclass(frozen=True)
class SiloState:
    """A silo at this moment.

    Attributes:
        silo: Its name.
        domain: Where its data are from.
        unseen: Whether it does not train.
        state: One or two words.
        why: The reason, where it failed or is excluded.
        bad: Whether somebody should look at it.
        loss: Its training loss, this round's or the last one's.
        weight: In the last aggregation.
        gap: Validation loss of the global model minus that of its own.
        failed: In how many rounds it failed so far, the one under way among them.
    """

    silo: str
    domain: str
    unseen: bool
    state: str
    why: str
    bad: bool
    loss: float | None
    weight: float | None
    gap: float | None
    failed: int


def read_now(folder: Path) -> dict[str, Any]:
    """Where the run is; empty where it does not say so."""
    try:
        found = json.loads((folder / NOW).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def silo_states(run: Run, now: Mapping[str, Any], running: bool, awaited: bool = False) -> list[SiloState]:
    """All silos of a run, those that train first; `awaited`: nobody works on it until enough sites are there."""
    roster = run.info.get("roster") or {}
    last = run.rounds[-1] if run.rounds else {}
    gaps = {silo["silo"]: silo["gap"] for silo in run.summary["silos"]}
    found = []
    for kind in ("silos", "unseen"):
        for one in roster.get(kind) or ():
            name, unseen = str(one["name"]), kind == "unseen"
            here = (now.get("silos") or {}).get(name, {})
            state, why, bad = _state(run, last, now, name, unseen, running)
            if awaited and state == STOPPED:
                state = "waiting"
            lost = {
                record["round"]
                for record in run.rounds
                for failure in record.get("failures") or ()
                if failure.get("silo") == name
            }
            if here.get("why") or here.get("state") == FAILED:  # the round under way, or the one that a run stopped in
                lost.add(now.get("round"))
            found.append(
                SiloState(
                    name,
                    str(one.get("domain", "")),
                    unseen,
                    state,
                    why,
                    bad,
                    here.get("loss", (last.get("train_loss") or {}).get(name)),
                    (last.get("weights") or {}).get(name),
                    gaps.get(name),
                    len(lost),
                )
            )
    return found


def _state(
    run: Run, last: Mapping[str, Any], now: Mapping[str, Any], name: str, unseen: bool, running: bool
) -> tuple[str, str, bool]:
    """Words, the reason, and whether it is bad."""
    asked = now.get("silos") or {}
    here = asked.get(name, {})
    doing, why = here.get("state"), str(here.get("why", ""))
    if running and doing == WORKING:
        exchange = str(here.get("exchange"))
        return DOING.get(exchange, exchange), why, bool(why)
    if why or doing == FAILED:  # in the round under way, or in the one that a run stopped in
        return _word(why), why, True
    if running and doing == ANSWERED:
        return "waiting", "", False
    before = [one for one in last.get("failures") or () if one.get("silo") == name]
    if before:
        why = f"{before[0].get('kind')}: {before[0].get('detail')}"
        return f"{_word(why)} in round {last['round']}", why, True
    if running:
        # those who are asked to train are this round's; until then the last round has to do
        taking_part = asked if now.get("exchange") == "train" else last.get("participants", [name])
        out = not unseen and name not in taking_part
        return ("sits out" if out else "waiting"), "", False
    return (FINISHED if run.info.get("status") == FINISHED else STOPPED), "", False


def _word(why: str) -> str:
    return "excluded" if why.startswith(EXCLUDED) else "failed"


def left(run: Run, now: Mapping[str, Any], last: int | None = None) -> float | None:
    """Seconds until the last round is complete, or another one that evaluates; None: not known yet."""
    took = [float(record.get("seconds", 0.0)) for record in run.rounds]
    spent = time.time() - float(now["began"]) if now.get("began") else 0.0
    rounds = last or int(run.setting("train", "rounds", len(took)))
    return seconds_left(took, rounds, int(run.setting("evaluate", "every", 1)), max(spent, 0.0))


def next_evaluation(run: Run) -> int:
    """The next round that evaluates, as far as is known."""
    every = max(int(run.setting("evaluate", "every", 1)), 1)
    following = (run.done // every + 1) * every
    return min(following, max(int(run.setting("train", "rounds", following)), run.done + 1))
