"""The ledger: every run of a table as a line, kept with the tables. Imports no torch."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import math
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairsilo import __version__
from fairsilo.config import EngineSettings, read_yaml
from fairsilo.reproduction.measures import Record
from fairsilo.reproduction.tables import FOLDER

RESULTS = FOLDER / "results"
ELSEWHERE = {"packed", "folder", "root", "server", *(item.name for item in dataclasses.fields(EngineSettings))}
ROUNDING = ("precision", "channels_last", "convolutions", "recurrence", "fused")
USUAL = EngineSettings()  # of a folder that was begun before there was a setting
DIGITS = 6  # of the numbers that are kept
KEPT = ("domain", "unseen", "samples", "global", "adapted", "personal", "gap", "validation")  # of every silo


def file_of(name: str) -> Path:
    return RESULTS / f"{name.replace('/', '-')}.jsonl"


def read(name: str) -> list[Record]:
    """The lines of a table, without runs that failed."""
    path = file_of(name)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line for line in map(json.loads, lines) if "error" not in line]


def key(record: Record) -> tuple[object, ...]:
    """What tells runs of one table apart."""
    settings, tuned = record.get("settings") or {}, ("tuned",) if record.get("tuned") else ()
    return record["method"], record["held_out"], record["seed"], *sorted(map(str, settings.items())), *tuned


def append(name: str, records: Iterable[Record]) -> int:
    """Add runs that the ledger does not have, or has with silos that failed or with less to tell; returns how many."""
    known = {key(record): record for record in read(name)}
    new = {key(record): record for record in records if key(record) not in known or _better(record, known[key(record)])}
    if new:
        RESULTS.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(record) + "\n" for record in (known | new).values())
        file_of(name).write_text(text, encoding="utf-8")
    return len(new)


def _better(new: Record, old: Record) -> bool:
    """Whether no silo failed any more, or figures or losses are known that were not."""
    if bool(new.get("failures")) != bool(old.get("failures")):
        return not new.get("failures")
    return any(set(new.get(what) or ()) > set(old.get(what) or ()) for what in ("figures", "loss"))


def record_of(
    cell: Mapping[str, Any],
    folder: Path,
    given: Iterable[str] = (),
    tuned: str = "",
    figures: Mapping[str, Mapping[str, float]] | None = None,
) -> Record:
    """A finished cell of a comparison as a line.

    Args:
        cell: As the comparison has it.
        folder: Of its run.
        given: Settings as key=value that are not the table's. Those that say where data lie, and how a machine runs,
            are left out; what changes rounding is kept by itself.
        tuned: The method with the settings that a search chose for it, where one did.
        figures: What diagnostics of the run show, by the figure's name.
    """
    summary = cell["summary"]
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    engine = read_yaml(folder / "config.yaml")["engine"]
    pairs = [text.partition("=") for text in given]
    settings = {name.strip(): value for name, _, value in pairs if name.strip().rpartition(".")[2] not in ELSEWHERE}
    found = {
        "method": cell["method"],
        "held_out": cell["held_out"],
        "seed": cell["seed"],
        "settings": settings,
        "rounding": {name: engine.get(name, getattr(USUAL, name)) for name in ROUNDING}
        | ({"deterministic": True} if engine.get("deterministic") else {}),
        "seconds": sum(one["seconds"] for one in rounds),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "metric": summary["metric"],
        "share": summary.get("share"),
        "higher_is_better": summary.get("higher_is_better"),
        "about": summary["about"],
        "rounds": summary["rounds"],
        "generalisation": summary["generalisation"]["mean"],
        "personalisation": summary["personalisation"]["mean"],
        "gap_variance": summary["fairness"]["gap_variance"],
        "silos": {one["silo"]: {what: one.get(what) for what in KEPT} for one in summary["silos"]},
        "loss": _course([one.get("train_loss") or {} for one in rounds]),
        "failures": sum(len(one.get("failures") or ()) for one in rounds),
    }
    more = ({"tuned": tuned} if tuned else {}) | ({"figures": figures} if figures else {})
    shortened: Record = _shortened(found | more)
    return shortened


def _course(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of the silos' training losses: where they end, and by how much they rose in all on the way, mean over silos."""
    by_silo: dict[str, list[float]] = {}
    for losses in rounds:
        for silo, loss in losses.items():
            by_silo.setdefault(silo, []).extend([loss] if math.isfinite(loss) else [])
    known = [losses for losses in by_silo.values() if losses]
    rises = [math.fsum(max(after - before, 0.0) for before, after in itertools.pairwise(one)) for one in known]
    return {"last": statistics.fmean(one[-1] for one in known), "rises": statistics.fmean(rises)} if known else {}


def _shortened(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, Mapping):
        return {name: _shortened(one) for name, one in value.items()}
    return [_shortened(one) for one in value] if isinstance(value, list | tuple) else value


def commit() -> str:
    """Of the checkout that fairsilo runs from; its version where there is none."""
    command = ["git", "-C", str(FOLDER), "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return __version__
    return found.stdout.strip()
