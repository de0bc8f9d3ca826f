"""The experiment as typed dataclasses: defaults, YAML files, `key=value` overrides. Imports no torch.

Every field carries its own help and range (`setting`), so that the command line, the documentation and the checks
are derived from one place.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fairsilo.errors import FairsiloError, UnknownSettingError
from fairsilo.fields import around, check_fields, hints_of, range_text, setting
from fairsilo.protocols import (
    PROTOCOLS,
    as_text,
    class_weights,
    counts_of,
    lr_factors,
    names_of,
    participation_rule,
    shares_of,
)


@dataclass(frozen=True)
class DataSettings:
    name: str | None = setting(
        None,
        "a federation that `fairsilo datasets` lists, or package:function; glyphs where no data are named",
    )
    root: str | None = setting(None, "where public data sets are looked for; else the environment's FAIRSILO_DATA")
    folder: str | None = setting(None, "images as FOLDER/domain/class/*.png, or a CSV/JSON index")
    packed: str | None = setting(None, "a folder with one .npz per domain")
    domains: tuple[str, ...] | None = setting(
        None, "use these domains only, such as scan,photo; a number alone draws so many"
    )
    classes: tuple[str, ...] | None = setting(
        None,
        "the names of the classes in their order, such as benign,malignant (-: none); sites across machines map their "
        "labels to them; in a simulation: as the data have them",
    )
    size: int | None = setting(None, "resize every image to this many pixels", low=8, high=4096)
    fit: str = setting(
        "squeeze",
        "how images that are not square become square: both sides squeezed, the centre cropped, or padded with black",
        choices=("squeeze", "crop", "pad"),
    )
    protocol: str | None = setting(
        None,
        "a paper's division of its data: sets what of held_out, domains, silos_per_domain, share, dif, validation, "
        "test and split is left at its default",
        choices=PROTOCOLS,
    )
    held_out: str | None = setting(
        "auto", "the domain nobody trains on; several: a+b or a,b; none: -; auto: the last one"
    )
    silos_per_domain: int | str = setting(
        1, "into how many silos each domain is divided; by domain: mnist=3, usps=7 (others 1)", low=1
    )
    share: str | None = setting(
        None,
        "how much of a domain's training samples each of its silos gets: up to 1 a share, above 1 a number of samples; "
        "for all domains (0.1) or by domain (mnist=0.01, svhn=600; others all they have)",
    )
    dif: float | None = setting(
        None, "client types as in FedGCR: silos per domain, and samples, in a geometric series from dif to 1", low=1
    )
    validation: float = setting(0.15, "share of a silo's training samples kept for validation", low=0, high=0.9)
    test: float = setting(0.2, "share of a domain kept for testing, where the data do not say", low=0, high=0.9)
    split: str = setting(
        "auto",
        "what is tested on; auto: what the data say, else a share of each class at random; random: the latter always; "
        "order: the last of every ten samples in the order of their files' names",
        choices=("auto", "random", "order"),
    )
    server: str | None = setting(None, "images given to the server (a folder or packed files)")
    synthetic: str | None = setting(
        None,
        "labelled images made in each silo's style: glyphs, folder:PATH, server (real ones of data.server) or "
        "diffusion:MODEL (tiny: one for digits that comes with fairsilo), with options: ;learn=150 (steps in which a "
        "silo learns a word for its style, from ;images=10 a class), ;tokens=FOLDER (words learned before, "
        "domain.safetensors), ;steps=20, ;guidance=3",
    )
    synthetic_share: float = setting(0.1, "of them, as a share of a silo's training samples", low=0, open_low=True)
    synthetic_bad: float = setting(0.2, "share of bad ones among those rendered for glyphs", low=0, high=0.9)
    augment: str = setting(
        "none", "random changes of training images: such as crop + flip + rotation(degrees=30), or ga, fedgcr, flamby"
    )
    seed: int = setting(0, "of the rendering and of the splits; independent of the run's seed")

    @property
    def named_classes(self) -> tuple[str, ...] | None:
        """`classes`, with nothing in them where the data have none (`-`); None where they are not given."""
        return () if self.classes == ("-",) else self.classes

    @property
    def shares(self) -> dict[str, float]:
        """`share` as a dictionary: domain -> share or number of samples; of all domains under the empty name."""
        return shares_of(self.share)

    @property
    def counts(self) -> dict[str, float]:
        """`silos_per_domain` as a dictionary: domain -> number of silos; of all domains under the empty name."""
        return counts_of(self.silos_per_domain)

    def normal(self) -> DataSettings:
        """With what the protocol sets, and with mappings as texts, which can be hashed."""
        usual = {item.name: item.default for item in dataclasses.fields(self)}
        preset = PROTOCOLS.get(self.protocol or "", {})
        set_by = {key: value for key, value in preset.items() if getattr(self, key) == usual[key]}
        made = dataclasses.replace(self, **set_by) if set_by else self
        texts = {"share": as_text(shares_of(made.share)) or None}
        if not isinstance(made.silos_per_domain, int | float):
            texts["silos_per_domain"] = as_text(counts_of(made.silos_per_domain))
        return dataclasses.replace(made, **texts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class TrainSettings:
    rounds: int = setting(6, "rounds", low=1)
    epochs: int = setting(5, "local epochs a round", low=1)
    batch_size: int = setting(32, "samples a step", low=1)
    balance: bool = setting(
        False, "draw training samples with replacement, so that all classes of a silo come equally often"
    )
    optimizer: str = setting("sgd", "local optimiser", choices=("sgd", "adam", "adamw"))
    lr: float = setting(0.02, "local learning rate", low=0, open_low=True, search=around(10))
    lr_schedule: str = setting(
        "constant",
        "of the local learning rate over the rounds; cosine: towards zero, step: a tenth from four fifths of them on",
        choices=("constant", "cosine", "step"),
    )
    lr_groups: str | None = setting(
        None,
        "factors of the local learning rate for some tensors, such as prompts=10, head=0.1: by a piece of their names, "
        "or by group (body, head, batch-norm, norm, auxiliary)",
    )
    lr_warmup: int = setting(0, "rounds at a hundredth of the local learning rate; the schedule has the others", low=0)
    momentum: float = setting(0.9, "of local SGD", low=0, high=1)
    weight_decay: float = setting(1e-4, "local weight decay", low=0, search=around(100))
    adam_beta2: float = setting(0.999, "of local Adam and AdamW: of the second moment", low=0, high=0.999999)
    adam_eps: float = setting(1e-8, "of local Adam and AdamW: added to the root of the moment", low=0, open_low=True)
    clip: float | None = setting(None, "clip the norm of each local gradient to this", low=0, open_low=True)
    keep_optimizer_state: bool = setting(False, "momenta survive from round to round at each silo")
    weighting: str = setting(
        "auto", "a silo's share in the mean; auto: as the method has it", choices=("auto", "samples", "uniform")
    )
    participation: str = setting(
        "all", "who takes part: all, a share such as 0.5, or a count such as 10; drawn anew each round"
    )
    sampling: str = setting("uniform", "how participants are drawn", choices=("uniform", "size"))
    quorum: float = setting(0.5, "share of the participants that must answer", low=0, high=1)

    @property
    def lr_factors(self) -> dict[str, float]:
        """`lr_groups` as a dictionary: name -> factor of the learning rate."""
        return lr_factors(self.lr_groups)

    def at(self, round: int) -> TrainSettings:
        """As they are in a round: with the learning rate that the schedule has come to."""
        if self.lr_schedule == "constant" and not self.lr_warmup:
            return self
        return dataclasses.replace(self, lr=self.lr * self._share(round))

    def _share(self, round: int) -> float:
        """Of the learning rate in a round; within a round it is constant, and before round 1 that of round 1."""
        over, all_rounds = max(round, 1) - 1 - self.lr_warmup, self.rounds - self.lr_warmup
        if over < 0:
            return 0.01
        if self.lr_schedule == "cosine":
            return (1 + math.cos(math.pi * over / all_rounds)) / 2
        return 0.1 if self.lr_schedule == "step" and over >= max(1, 4 * all_rounds // 5) else 1.0


INVERSE = "inverse"
# What `fairsilo demo` shows beside its baseline: docs/reproduction.md says how it was chosen.
DEMO: dict[str, Any] = {
    "method": "elcfs | fedheal",
    "baseline": "fedavg",
    "data": {"name": "glyphs", "share": "scan=1, photo=0.5, print=0.25, sketch=0.125"},
    "train": {"rounds": 4, "epochs": 3},
    "evaluate": {"every": 2},
}
DEMO_SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class TaskSettings:
    loss: str = setting(
        "auto",
        "what is trained; auto: cross-entropy for classes and characters, its mean with Dice for masks, squared error "
        "for numbers",
        choices=("auto", "cross-entropy", "focal", "ce+dice", "dice", "squared", "absolute"),
    )
    class_weights: str | None = setting(
        None,
        "of classes in the loss: inverse (to their training samples over all silos, on average 1), or such as "
        "melanoma=4, naevus=0.5, the others 1",
    )
    gamma: float = setting(2.0, "of the focal loss: how much less samples count that are nearly right", low=0)
    smoothing: float = setting(0.0, "share of a label that is spread over all classes", low=0, high=0.9)
    offset: float = setting(0.0, "taken off the numbers to predict before training")
    scale: float = setting(1.0, "the numbers to predict are divided by it before training", low=0, open_low=True)


@dataclass(frozen=True)
class EvaluateSettings:
    every: int = setting(1, "evaluate every n-th round (and the last)", low=1)
    batch: int = setting(256, "samples a step when evaluating", low=1)
    metric: str = setting(
        "auto",
        "what is reported: a metric of the data's task; auto: of a public data set what its papers report, else the "
        "task's own choice, for classes accuracy",
    )
    selection: str = setting(
        "last",
        "which round is reported: the last, the mean of the last five evaluations, the best on the training silos' "
        "validation data, or (labelled as such) the best on the test data",
        choices=("last", "last5", "source-validation", "oracle"),
    )
    groups: str | None = setting(
        None,
        "columns of the data, such as sex, age: results also by their values, over all silos (groups of 5 or more test "
        "samples at a silo)",
    )
    ddof: int = setting(0, "of standard deviations over silos, domains and groups", low=0, high=1)
    examples: bool = setting(True, "of data with masks, keep a few test images with their outlines for the report")
    keep_local: bool = setting(False, "keep each round's local models in the run folder, for `fairsilo figure`")

    @property
    def columns(self) -> tuple[str, ...]:
        """`groups` as a tuple of names."""
        return names_of(self.groups)


@dataclass(frozen=True)
class EngineSettings:
    name: str = setting("auto", "where silos run", choices=("auto", "sequential", "processes", "lanes"))
    workers: int | None = setting(None, "worker processes; by default one per core", low=1)
    lanes: int | None = setting(None, "silos that train at once on a GPU (lanes); by default up to 4", low=1)
    keep_features: bool = setting(True, "run a frozen backbone once over each silo's data and keep what it gives")
    features_limit: float = setting(2.0, "GiB of kept features in memory; the rest lies in files", low=0)
    preset: str = setting(
        "exact", "fast: sets what changes rounding as is fastest on the device", choices=("exact", "fast")
    )
    precision: str = setting(
        "float32",
        "of products inside networks (tf32: GPUs); parameters, losses and optimisers stay float32",
        choices=("float32", "tf32", "bfloat16"),
    )
    channels_last: bool = setting(False, "images in the memory order that some machines' convolutions are faster in")
    onednn: bool = setting(True, "use oneDNN's kernels on a CPU")
    convolutions: str = setting(
        "kernels",
        "on a CPU: PyTorch's kernels, or products of matrices, which are faster on ARM",
        choices=("kernels", "matrices"),
    )
    recurrence: str = setting(
        "steps",
        "on a GPU: LSTM layers by cuDNN, kernels for every step; or one kernel a layer, faster with many lanes or runs",
        choices=("steps", "layers"),
    )
    fused: bool = setting(
        False, "on a GPU: batch normalisation, activations and depthwise convolutions by kernels of our own"
    )
    deterministic: bool = setting(
        False, "on a GPU: kernels that give the same numbers every time, where there are such; slower"
    )
    threads: int = setting(1, "threads a silo's step may use; results are compared at equal threads", low=1)
    device: str = setting("cpu", "cpu, cuda, or auto: the GPU that is there, if any", choices=("auto", "cpu", "cuda"))
    timeout: float | None = setting(None, "seconds after which a silo's answer is given up (processes)", low=0)
    checkpoint_every: int = setting(1, "write a checkpoint every n-th round (and the last)", low=1)
    strict: bool = setting(False, "stop at the first silo that fails instead of going on without it")
    newcomers: bool = setting(True, "across machines, sites that come after the run began take part from then on")


@dataclass(frozen=True)
class Experiment:
    """Everything a run depends on."""

    method: str = setting(
        "faa", "a method of the catalogue, with settings and compositions: 'fedprox(mu=0.1) | fedheal'"
    )
    baseline: str | None = setting(
        None, "a second method trained beside it on the same data and seed; fedavg where no method is named"
    )
    model: str = setting(
        "auto",
        "a network that `fairsilo models` lists (pretrained: clip:PATH, siglip:PATH, vit:PATH, resnet:PATH, "
        "efficientnet:PATH), or package:function; auto: what the method is built around, else what suits task and "
        "samples",
    )
    seed: int = setting(0, "of initial weights, batch order and participation", low=0)
    data: DataSettings = field(default_factory=DataSettings)
    task: TaskSettings = field(default_factory=TaskSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    evaluate: EvaluateSettings = field(default_factory=EvaluateSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)

    def __post_init__(self) -> None:
        check_fields(self)
        # also a mapping is taken; a text can be hashed, and is written as it can be given again
        groups = as_text(lr_factors(self.train.lr_groups))
        object.__setattr__(self, "train", dataclasses.replace(self.train, lr_groups=groups or None))
        object.__setattr__(self, "data", self.data.normal())
        weights = self.task.class_weights
        if weights is not None and weights != INVERSE:
            weights = as_text(class_weights(weights)) or None
            object.__setattr__(self, "task", dataclasses.replace(self.task, class_weights=weights))
        columns = ", ".join(self.evaluate.columns) or None
        object.__setattr__(self, "evaluate", dataclasses.replace(self.evaluate, groups=columns))
        for group in ("data", "task", "train", "evaluate", "engine"):
            check_fields(getattr(self, group), f"{group}.")
        participation_rule(self.train.participation)
        if self.train.lr_warmup >= self.train.rounds:
            raise FairsiloError(
                f"train.lr_warmup is {self.train.lr_warmup} and train.rounds {self.train.rounds}; "
                "some rounds must come after the warm-up"
            )
        sources = [key for key in ("name", "folder", "packed") if getattr(self.data, key)]
        if len(sources) > 1:
            raise FairsiloError(f"data.{sources[0]} and data.{sources[1]} are both given; give one source of data")
        if not sources:
            object.__setattr__(self, "data", dataclasses.replace(self.data, name="glyphs"))


def fields_of(owner: type, group: str = "") -> list[dict[str, Any]]:
    """Name, default, range and help of the settings that a dataclass holds."""
    return [
        {
            "name": f"{group}{item.name}",
            "default": item.default,
            "range": "true or false" if isinstance(item.default, bool) else range_text(item.metadata),
            "search": str(item.metadata.get("search") or ""),
            "help": _help(item.metadata),
        }
        for item in dataclasses.fields(owner)
    ]


def _help(metadata: Mapping[str, Any]) -> str:
    acts = f" (acts {metadata['rare']})" if metadata.get("rare") else ""
    return str(metadata.get("help", "")) + acts


def all_settings() -> list[dict[str, Any]]:
    """All that a run can be told, under the names that always work: those of groups with a dot."""
    hints = hints_of(Experiment)
    found: list[dict[str, Any]] = []
    for item in fields_of(Experiment):
        group: type = hints[item["name"]]
        found += fields_of(group, f"{item['name']}.") if dataclasses.is_dataclass(group) else [item]
    return found


@cache
def known_keys() -> Mapping[str, str]:
    """Dotted key -> dotted key, and each unambiguous last word -> its dotted key."""
    dotted = [item["name"] for item in all_settings()]
    keys = {key: key for key in dotted}
    leaves = [key.split(".")[-1] for key in dotted]
    for key, leaf in zip(dotted, leaves, strict=True):
        if leaves.count(leaf) == 1:
            keys[leaf] = key
    return keys


def experiment(settings: Mapping[str, Any] | None = None, overrides: Iterable[str] = ()) -> Experiment:
    """An experiment from nested or dotted settings and `key=value` texts; unknown keys are refused by name.

    Where no method is named, FAA is trained beside FedAvg.
    """
    flat = _flatten(settings or {}) | given(overrides)
    if "method" not in flat:
        flat.setdefault("baseline", "fedavg")
    nested = _nested(flat)
    hints = hints_of(Experiment)
    for group, values in nested.items():
        if dataclasses.is_dataclass(hints[group]):
            nested[group] = hints[group](**values)
    return Experiment(**nested)


def given(overrides: Iterable[str]) -> dict[str, Any]:
    """Dotted key -> value of `key=value` texts."""
    found = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise FairsiloError(f"{text!r} is no setting; settings are written key=value, such as rounds=20")
        known = "data.name" if key.strip() == "data" else _known(key.strip())
        found[known] = _read_value(known, value.strip())
    return found


def changed(base: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with other values of some settings, by their dotted keys."""
    nested = {
        key: dataclasses.replace(getattr(base, key), **value) if isinstance(value, dict) else value
        for key, value in _nested(values).items()
    }
    return dataclasses.replace(base, **nested)


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        group, _, leaf = key.partition(".")
        if leaf:
            nested.setdefault(group, {})[leaf] = value
        else:
            nested[group] = value
    return nested


def read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise FairsiloError(f"cannot read the configuration {path}: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise FairsiloError(f"{path} is not a text in UTF-8") from problem
    except yaml.YAMLError as problem:
        raise FairsiloError(f"{path} is not valid YAML: {' '.join(str(problem).split())}") from problem
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise FairsiloError(f"{path} must hold settings such as 'rounds: 20', not {type(content).__name__}")
    return content


def as_dict(settings: Experiment) -> dict[str, Any]:
    """Plain nested values, ready for YAML and for `experiment()` again."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return list(value) if isinstance(value, tuple) else value

    return {key: plain(value) for key, value in dataclasses.asdict(settings).items()}


def _known(key: str) -> str:
    keys = known_keys()
    if key not in keys:
        raise UnknownSettingError(key, keys)
    return keys[key]


def _flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    hints = hints_of(Experiment)
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if dataclasses.is_dataclass(hints.get(key)):
            if isinstance(value, str) and key == "data":
                value = {"name": value}
            if value is None:
                continue
            if not isinstance(value, Mapping):
                raise FairsiloError(f"{key} is {value!r}; it must be a group of settings such as {key}: {{...}}")
            for leaf, inner in value.items():
                flat[_known(f"{key}.{leaf}")] = inner
        else:
            flat[_known(str(key))] = value
    return flat


def _read_value(key: str, text: str) -> Any:
    """A value from the command line: as it stands for a field of text, else as YAML reads it; lists also by commas."""
    import yaml

    kinds = _kinds(key)
    if not text or (text in ("none", "null") and type(None) in kinds):
        return None
    if kinds <= {str, type(None)}:
        return text
    if tuple in kinds and not text.startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return [str(item) for item in value] if isinstance(value, list) and tuple in kinds else value


def _kinds(key: str) -> set[Any]:
    """The types a setting may have."""
    group, _, leaf = key.rpartition(".")
    hints = hints_of(Experiment)
    hint = hints_of(hints[group])[leaf] if group else hints[leaf]
    return {getattr(kind, "__origin__", kind) for kind in getattr(hint, "__args__", None) or (hint,)}
