"""What a tracker is told of a run, read from the run folder: numbers, settings, names of silos and domains, no more."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from fairsilo.config import read_yaml
from fairsilo.engine.events import Event, means_of
from fairsilo.runs.folder import BASELINE, RunFolder, slug

PATHS = (
    "root",
    "folder",
    "packed",
    "server",
    "synthetic",
)  # settings of the data that may name a place on this machine
ANSWERS = ("generalisation", "personalisation", "fairness")  # of summary.json: without its rows about single silos


class Names:
    """What silos and domains are called in a tracker: by their names or, where it is to be anonymous, by numbers.

    Args:
        roster: As in `run.json`.
        anonymous: Number them, in the order of the roster; silos that came later have the numbers after that.
        held_out: A domain that need not be in the roster: in trials of a search its silos take no part.
    """

    def __init__(self, roster: Mapping[str, Any], anonymous: bool, held_out: str | None = None) -> None:
        joined = roster.get("joined") or {}
        members = [*roster["silos"], *roster["unseen"]] if anonymous else []
        members.sort(key=lambda member: joined.get(member["name"], 0))  # so that nobody's number changes
        domains = dict.fromkeys(member["domain"] for member in members)
        if anonymous and held_out:
            domains.setdefault(held_out)
        self.anonymous = anonymous
        self._silos = {member["name"]: f"silo-{number}" for number, member in enumerate(members, 1)}
        known = {**self._silos, **{domain: f"domain-{number}" for number, domain in enumerate(domains, 1)}}
        self._words = {**{slug(name): number for name, number in known.items()}, **known}

    def silo(self, name: str) -> str:
        return self._silos[name] if self.anonymous else name

    def within(self, text: str) -> str:
        """A text in which no silo or domain is named; folders of runs bear the name of the held-out domain."""
        if not self._words:
            return text
        longest_first = sorted(filter(None, self._words), key=len, reverse=True)
        found = re.compile(rf"(?<![^\W_])({'|'.join(map(re.escape, longest_first))})(?![^\W_])")
        return found.sub(lambda match: self._words[match[0]], text)


@dataclass(frozen=True)
class Facts:
    """A run that begins or is resumed.

    Attributes:
        folder: The run folder.
        id: Of the run, as in `run.json`.
        place: Comparison, row and cell; or the run's name, with `baseline` behind it where it is one.
        settings: By their full names, such as `train.lr`; those that are not set are left out.
        about: Method, held-out domain and seed.
        names: What silos and domains are called.
        metric: The name of the reported metric.
        rounds: How many rounds it has.
    """

    folder: Path
    id: str
    place: tuple[str, ...]
    settings: dict[str, Any]
    about: dict[str, str]
    names: Names
    metric: str
    rounds: int

    @property
    def group(self) -> str:
        """What the runs of a comparison, or a run and its baseline, have in common."""
        return self.place[0]

    @property
    def name(self) -> str:
        return "/".join(self.place)


def facts_of(event: Event, anonymous: bool) -> Facts:
    """What is known as a run begins; `event` is its `method`."""
    assert event.folder is not None
    folder = event.folder.resolve()
    status, settings = RunFolder(folder).read_json("run.json"), read_yaml(folder / "config.yaml")
    names = Names(status["roster"], anonymous, settings["data"]["held_out"])
    place: tuple[str, ...]
    if event.group:
        place = (event.group, folder.parent.name, folder.name)
    else:
        place = (folder.parent.name, folder.name) if folder.name == BASELINE else (folder.name,)
    about = {
        "method": names.within(event.text),
        "held_out": names.within(settings["data"]["held_out"] or "-"),
        "seed": str(settings["seed"]),
    }
    return Facts(
        folder,
        status["id"],
        tuple(map(names.within, place)),
        dict(_settings(settings, names)),
        about,
        names,
        status["metric"]["name"],
        event.rounds,
    )


def _settings(settings: Mapping[str, Any], names: Names) -> Iterator[tuple[str, Any]]:
    """One by one. Of paths only the last name is told; what the data are called is not, where they are anonymous."""
    for group, content in settings.items():
        for key, value in (content if isinstance(content, dict) else {"": content}).items():
            named = f"{group}.{key}" if key else group
            if isinstance(value, (bool, int, float)):
                yield named, value
            elif value is not None and not (names.anonymous and group == "data"):
                text = PurePath(str(value)).name if group == "data" and key in PATHS else str(value)
                yield named, names.within(re.sub(r"[^\s,;=()]*[/\\]", "", text))


class Tail:
    """The lines of a file of rows that were appended since the last look."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def rows(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                self._at += len(line)
                yield json.loads(line)


class Rounds:
    """The numbers of a run's rounds, each round once and in order.

    They are read from the rows of the run folder, which are complete when a checkpoint is told of. So a round that is
    told belongs to a state that a resumed run goes on from: it is never trained again, with other times, say.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._records, self._measured = Tail(facts.folder / "rounds.jsonl"), Tail(facts.folder / "metrics.jsonl")
        self._waiting: dict[int, dict[str, Any]] = {}
        self._rows: dict[int, list[dict[str, Any]]] = {}

    def until(self, last: int) -> Iterator[tuple[int, dict[str, float]]]:
        """Round and numbers of those that were not told yet, up to this one."""
        for record in self._records.rows():
            self._waiting[record["round"]] = record
        for row in self._measured.rows():
            self._rows.setdefault(row["round"], []).append(row)
        for number in sorted(number for number in self._waiting if number <= last):
            yield number, numbers_of(self._waiting.pop(number), self._rows.pop(number, []), self._facts)


def numbers_of(record: Mapping[str, Any], rows: Iterable[dict[str, Any]], facts: Facts) -> dict[str, float]:
    """One round, flat. Failures are counted by kind: their reasons, which may hold paths or data, stay here."""
    rows, silo = list(rows), facts.names.silo
    found = {"seconds": record["seconds"]}
    found |= {f"train_loss/{silo(name)}": value for name, value in record["train_loss"].items()}
    found |= {f"weight/{silo(name)}": value for name, value in record["weights"].items()}
    found |= {f"mean/{model}": value for model, value in means_of(rows).items()}
    for row in rows:
        if row["split"] == "test":
            whose = f"{row['model']}/{silo(row['silo'])}"
            found |= {f"test_{facts.metric}/{whose}": row["metric"], f"test_loss/{whose}": row["loss"]}
    found |= Counter(f"failed/{failure['kind']}/{silo(failure['silo'])}" for failure in record["failures"])
    return _finite(found)


def answers_of(facts: Facts, more: Mapping[str, float]) -> dict[str, float]:
    """What the run came to, by the headings of `summary.json`, and more that is known of it."""
    summary = RunFolder(facts.folder).read_json("summary.json")
    return _finite(dict(_leaves("answer", {**{key: summary.get(key) for key in ANSWERS}, **more}, facts.names)))


def _leaves(head: str, content: Mapping[str, Any], names: Names) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        named = f"{head}/{names.within(key)}"  # some keys are domains
        if isinstance(value, dict):
            yield from _leaves(named, value, names)
        else:
            yield named, value


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    """Trackers differ in what they make of anything else."""
    return {
        key: float(value)
        for key, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }
