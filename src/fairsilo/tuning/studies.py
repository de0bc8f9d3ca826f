"""The search itself, by optuna: what is tried next, and which runs are given up. Kept in one file of the folder."""

from __future__ import annotations

import hashlib
import importlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairsilo.errors import FairsiloError
from fairsilo.fields import Span
from fairsilo.tuning.space import Space

JOURNAL = "trials.journal"
SAMPLERS = ("tpe", "random")
RANDOM_FIRST = 8  # trials that are drawn at random before TPE has something to go by
COMPARED = 4  # trials that must have ended before one can be behind


def optuna() -> Any:
    try:
        found = importlib.import_module("optuna")
    except ImportError as problem:
        raise FairsiloError("a search needs optuna: pip install 'fairsilo[tune]'") from problem
    found.logging.set_verbosity(found.logging.ERROR)
    return found


@dataclass(frozen=True)
class Place:
    """Where a study is kept, so that another process can open it.

    Attributes:
        folder: Of the search.
        name: Of the study: the method and the held-out domain.
        higher: Whether a higher score is better.
        watched: Rounds before a run may be given up; None: none is.
    """

    folder: Path
    name: str
    higher: bool
    watched: int | None

    def open(self) -> Any:
        tool = optuna()
        backend = tool.storages.journal.JournalFileBackend(str(self.folder / JOURNAL))
        pruner = tool.pruners.NopPruner()
        if self.watched is not None:
            pruner = tool.pruners.MedianPruner(n_startup_trials=COMPARED, n_warmup_steps=self.watched)
        return tool.create_study(
            study_name=self.name,
            storage=tool.storages.JournalStorage(backend),
            direction="maximize" if self.higher else "minimize",
            pruner=pruner,
            load_if_exists=True,
        )

    def trial(self, number: int) -> Any:
        """A trial that is under way."""
        study = self.open()
        return optuna().trial.Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)


@dataclass
class Study:
    """The trials of one method with one domain held out."""

    place: Place
    space: Space
    sampler: str
    seed: int

    def __post_init__(self) -> None:
        self.study = self.place.open()
        if not self.study.trials:
            # the first trial is what a user has who searches nothing; where that is outside of a range, it is drawn
            self.study.enqueue_trial({**self._drawn(), **self.space.usual})

    @property
    def asked(self) -> int:
        """Trials that were begun."""
        return sum(trial.state.name != "WAITING" for trial in self.study.get_trials(deepcopy=False))

    def open_trials(self) -> list[tuple[int, str]]:
        """Number and row of trials that were cut off."""
        return [
            (trial.number, self.space.row(trial.params)) for trial in self.study.trials if trial.state.name == "RUNNING"
        ]

    def ask(self) -> tuple[int, str]:
        """Number and row of a new trial.

        The first trials, or all of a random search, try the same values of a setting for every method that has it: a
        lucky learning rate must not make a method. A draw depends on the trials before it and on nothing else, so that
        a search that was interrupted goes on as if it had not been.
        """
        tool, number = optuna(), self.asked
        if number > 0 and self.alike(number):
            self.study.enqueue_trial(self._drawn())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tool.exceptions.ExperimentalWarning)
            self.study.sampler = tool.samplers.TPESampler(
                seed=_seed(self.place.name, self.seed, number), n_startup_trials=RANDOM_FIRST, multivariate=True
            )
        trial = self.study.ask({one.name: _distribution(one.span) for one in self.space.dimensions})
        return trial.number, self.space.row(trial.params)

    def alike(self, number: int) -> bool:
        """Whether a trial tries values that hang on its number alone, the same for every method and held-out domain."""
        return number < RANDOM_FIRST or self.sampler == "random"

    def _drawn(self) -> dict[str, Any]:
        return {one.name: one.span.draw(self._share(one.name)) for one in self.space.dimensions}

    def _share(self, setting: str) -> float:
        return float(_seed(self.seed, setting, self.asked) / 2**32)

    def tell(self, number: int, score: float | None, facts: dict[str, Any]) -> None:
        """How a trial ended: with a score, or given up (None)."""
        trial = self.place.trial(number)
        for name, value in facts.items():
            trial.set_user_attr(name, value)
        pruned = optuna().trial.TrialState.PRUNED
        self.study.tell(number, score, state=pruned if score is None else None)

    def ended(self) -> list[dict[str, Any]]:
        """The trials from the first on, up to the first that has not ended."""
        found = []
        for trial in self.study.trials:
            if not trial.state.is_finished():
                break
            found.append(
                {
                    "number": trial.number,
                    "alike": self.alike(trial.number),
                    "values": trial.params,
                    "row": self.space.row(trial.params),
                    "score": trial.value if trial.state.name == "COMPLETE" else None,
                    "reached": {str(step): value for step, value in trial.intermediate_values.items()},
                    "at_chance": None,  # as a search of an earlier version did not tell
                    **trial.user_attrs,
                }
            )
        return found

    def importance(self) -> dict[str, float]:
        """Setting -> its share in the variation between trials; empty where too few trials tell."""
        tool = optuna()
        whole = [trial for trial in self.study.trials if trial.state.name == "COMPLETE"]
        if len(whole) < RANDOM_FIRST or len({trial.value for trial in whole}) < 2 or len(self.space.dimensions) < 2:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tool.importance.get_param_importances(
                self.study, evaluator=tool.importance.FanovaImportanceEvaluator(seed=0)
            )
        return {name: float(value) for name, value in found.items()}


def _seed(*about: Any) -> int:
    return int.from_bytes(hashlib.sha256(repr(about).encode()).digest()[:4], "big")


def _distribution(span: Span) -> Any:
    kinds = optuna().distributions
    if span.among:
        return kinds.CategoricalDistribution(span.among)
    if span.whole:
        return kinds.IntDistribution(int(span.low), int(span.high), log=span.log)
    return kinds.FloatDistribution(span.low, span.high, log=span.log)
