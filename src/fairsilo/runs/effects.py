"""Settings without effect are refused: what a configuration says is what was done.

A setting counts as given where it differs from its default, so that a saved configuration, which holds every setting,
says no more than the user did. The rules stand in one table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairsilo.config import Experiment
from fairsilo.data import is_public
from fairsilo.data.embedded import DATASETS
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError
from fairsilo.methods import catalogue
from fairsilo.models.described import is_own, suited
from fairsilo.protocols import PROTOCOLS, participation_rule


@dataclass(frozen=True)
class Situation:
    """What decides whether a setting can have an effect."""

    experiment: Experiment
    federation: Federation
    models: tuple[str, ...]  # by name, of all methods that are trained; a model given as an object is not among them
    by_hand: bool = False  # the federation is a Python object of the user's

    @property
    def all_take_part(self) -> bool:
        rule, value = participation_rule(self.experiment.train.participation)
        return value >= len(self.federation.silos) if rule == "count" else value == 1

    @property
    def nothing_drawn(self) -> bool:
        """Whether the data's seed is asked for nothing: no rendering, no split, no division, no synthetic images."""
        data = self.experiment.data
        if data.synthetic is not None:
            return False
        settled = {"data.test", "data.validation"} <= set(self.federation.settled)
        whole = data.dif is None and data.share is None and data.silos_per_domain == 1
        return self.by_hand or (data.name is None and whole and settled)

    @property
    def in_one_process(self) -> bool:
        return self.experiment.engine.name in ("sequential", "lanes") or self.experiment.engine.device == "cuda"

    @property
    def no_backbone(self) -> bool:
        return bool(self.models) and all(is_own(name) for name in self.models)


class Rule(NamedTuple):
    settings: tuple[str, ...]
    idle: Callable[[Situation], bool]
    why: str


READING = ("root", "folder", "packed", "domains", "size", "fit")
DIVISION = (*READING, "protocol", "silos_per_domain", "share", "dif", "validation", "test", "split")
RULES = (
    Rule(
        tuple(f"data.{name}" for name in DIVISION),
        lambda at: at.by_hand,
        "the federation is given as a Python object, divided and split already",
    ),
    Rule(
        ("data.test",),
        lambda at: "data.test" in at.federation.settled,
        "the data name their own test samples",
    ),
    Rule(("data.split",), lambda at: "data.split" in at.federation.settled, "the data name no splits of their own"),
    Rule(
        ("data.validation",),
        lambda at: "data.validation" in at.federation.settled,
        "the data name their own validation samples",
    ),
    Rule(
        ("data.augment",),
        lambda at: len(at.federation.silos[0].train.shape) != 3,
        "samples are no images of channels x height x width",
    ),
    Rule(
        ("data.root",),
        lambda at: not is_public(at.experiment.data.name or ""),
        "it is where public data sets are looked for, and data.name names none of them",
    ),
    Rule(
        ("data.fit",),
        lambda at: at.experiment.data.size is None or at.experiment.data.name in DATASETS,
        "images are not resized: data.size is not given, or they are drawn in that size",
    ),
    Rule(("data.seed",), lambda at: at.nothing_drawn, "the data are not rendered, split or divided at random"),
    Rule(
        ("data.synthetic_share", "data.synthetic_bad"),
        lambda at: at.experiment.data.synthetic is None,
        "data.synthetic names no generator of images",
    ),
    Rule(
        ("data.synthetic_bad",),
        lambda at: at.experiment.data.synthetic != "glyphs",
        "only images that data.synthetic=glyphs renders have bad ones among them",
    ),
    Rule(
        ("train.balance",),
        lambda at: at.federation.task in ("next-character", "regress"),
        "the task has no classes that samples are drawn by",
    ),
    Rule(
        ("evaluate.examples",),
        lambda at: at.federation.task in ("classify", "next-character", "regress"),
        "the report shows examples of masks, and the task has none",
    ),
    Rule(("train.sampling",), lambda at: at.all_take_part, "every silo takes part in every round"),
    Rule(
        ("train.momentum",),
        lambda at: at.experiment.train.optimizer != "sgd",
        "it is of train.optimizer=sgd",
    ),
    Rule(
        ("train.adam_beta2", "train.adam_eps"),
        lambda at: at.experiment.train.optimizer == "sgd",
        "it is of train.optimizer=adam and adamw",
    ),
    Rule(
        ("train.keep_optimizer_state",),
        lambda at: at.experiment.train.optimizer == "sgd" and at.experiment.train.momentum == 0,
        "SGD without momentum has no state",
    ),
    Rule(
        ("engine.timeout", "engine.workers"),
        lambda at: at.in_one_process,
        "silos run in this process",
    ),
    Rule(
        ("engine.lanes",),
        lambda at: at.experiment.engine.device == "cpu" or at.experiment.engine.name not in ("auto", "lanes"),
        "only the engine lanes has them, on a GPU",
    ),
    Rule(
        ("engine.onednn", "engine.convolutions"),
        lambda at: at.experiment.engine.device == "cuda",
        "it is for CPUs",
    ),
    Rule(
        ("engine.recurrence", "engine.fused"),
        lambda at: at.experiment.engine.device == "cpu",
        "it is for GPUs",
    ),
    Rule(
        ("engine.recurrence",),
        lambda at: at.experiment.engine.precision == "bfloat16",
        "it is for float32 and tf32; in bfloat16 cuDNN computes LSTM layers",
    ),
    Rule(
        ("engine.fused",),
        lambda at: at.experiment.engine.precision == "bfloat16" or at.experiment.engine.channels_last,
        "its kernels are for float32 and tf32, without channels_last",
    ),
    Rule(
        ("engine.deterministic",),
        lambda at: at.experiment.engine.device == "cpu",
        "a CPU's kernels give the same numbers every time",
    ),
    Rule(
        ("engine.keep_features", "engine.features_limit"),
        lambda at: at.no_backbone,
        "the model has no pretrained backbone",
    ),
    Rule(
        ("engine.features_limit",),
        lambda at: not at.experiment.engine.keep_features,
        "engine.keep_features is off",
    ),
)


def refuse_idle(
    experiment: Experiment, federation: Federation, methods: Sequence[str], *, model: bool = True, by_hand: bool = False
) -> None:
    """Raise one sentence for the first setting that was given and can have no effect in this run.

    Args:
        experiment: The settings, as they were given.
        federation: The silos that they led to.
        methods: All methods that are trained with these settings.
        model: Whether the model is one of the settings; else it is an object of the user's, which may be anything.
        by_hand: Whether the federation is an object of the user's.
    """
    usual = suited(federation.task, federation.silos[0].train.shape)
    auto = experiment.model == "auto"
    named = [catalogue.model_for(name) or usual if auto else experiment.model for name in methods]
    at = Situation(experiment, federation, tuple(named) if model else (), by_hand)
    for rule in RULES:
        for key in rule.settings:
            if _given(experiment, key) and rule.idle(at):
                raise FairsiloError(f"{key}={_written(experiment, key)} has no effect here: {rule.why}; leave it out")


def _given(experiment: Experiment, key: str) -> bool:
    group, _, leaf = key.partition(".")
    settings = getattr(experiment, group)
    usual = {item.name: item.default for item in dataclasses.fields(settings)}
    if group == "data" and leaf in PROTOCOLS.get(experiment.data.protocol or "", {}):
        return False  # by the paper's protocol, whatever the data say themselves
    return bool(getattr(settings, leaf) != usual[leaf])


def _written(experiment: Experiment, key: str) -> str:
    group, _, leaf = key.partition(".")
    value: Any = getattr(getattr(experiment, group), leaf)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
