"""What a network is trained for: the loss, how its predictions are scored, and what the targets mean to the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

if TYPE_CHECKING:
    from torch import Tensor

    from fairsilo.core.streams import Batches


@dataclass(frozen=True)
class Metric:
    """A number that says how good predictions are, and in which direction it is better.

    Attributes:
        name: As `evaluate.metric` names it.
        about: What it says, in a few words.
        higher_is_better: False for errors, such as a mean absolute error.
        share: Whether it lies between 0 and 1 and is shown in percent; else it is in units of the data.

    Example:
        >>> Metric("kappa", "agreement beyond chance").rank(0.4)
        0.4
    """

    name: str
    about: str
    higher_is_better: bool = True
    share: bool = True  # between 0 and 1, shown in percent; else a number in units of the data

    def rank(self, value: float) -> float:
        """The value on a scale where more is better: what decisions about the best model compare."""
        return value if self.higher_is_better else -value

    def as_dict(self) -> dict[str, Any]:
        """What folders keep of it, so that results are read without the code that measured them."""
        return {"name": self.name, "higher_is_better": self.higher_is_better, "share": self.share}

    def said(self, value: float) -> str:
        """The value for a sentence, with what it is of and in."""
        name = self.name.replace("-", " ")
        return f"{name} {100 * value:.1f} %" if self.share else f"{name} {value:.4g}"


@dataclass(frozen=True)
class Measure:
    """What a model reaches on some samples.

    Attributes:
        loss: Mean loss, accumulated in float64.
        metric: The metric that the task reports.
        samples: How many samples were measured.
        metrics: All metrics of the task by name. A metric that is undefined on these samples is left out.
        per_class: Numbers with one entry per class, such as the samples of each, so that a class without samples
            can be told from one that is always wrong. Empty for tasks without classes.
        per_pair: Numbers with one entry per pair of classes, row by row, such as how often which is taken for which.
        errors: Standard errors of metrics by name, from the number of samples. May be left out, for some or for all.
    """

    loss: float
    metric: float
    samples: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    per_class: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    per_pair: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ending:
    """What a network must end in: so many values, for each sample, pixel or position of a text."""

    values: int
    per: str = "sample"


class Task(Protocol):
    """What is learned from the samples: how a prediction is scored, and what a network must end in.

    fairsilo's own tasks are `classify`, `segment`, `regress` and `next-character`. A task of your own is a class with
    these methods, or one derived from theirs.
    """

    @property
    def name(self) -> str: ...

    @property
    def classes(self) -> int:
        """How many classes targets consist of; 0 where they are numbers."""
        ...

    @property
    def output(self) -> Ending:
        """What a network must end in."""
        ...

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Everything that `measure` may find."""
        ...

    @property
    def per_class(self) -> tuple[str, ...]:
        """The names of numbers with one entry per class that `measure` finds."""
        ...

    @property
    def per_pair(self) -> tuple[str, ...]:
        """The names of tables of classes by classes that `measure` finds."""
        ...

    @property
    def reported(self) -> Metric:
        """The metric that results, the choice of rounds and the best model of a silo are about."""
        ...

    @property
    def guess(self) -> float:
        """The loss of a guess that knows nothing."""
        ...

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """What is trained: the mean over a batch."""
        ...

    def predicted(self, prediction: Tensor) -> Tensor:
        """What a user is told of a network's output: probabilities of classes, numbers in their own units."""
        ...

    def tally(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Sums over a batch in float64, from which `measure` is computed: tallies of batches add up."""
        ...

    def measure(self, tally: Tensor) -> Measure:
        """Loss and metrics of all samples that a tally holds."""
        ...

    def strata(self, targets: Tensor) -> Tensor:
        """A whole number per sample: splits and silos get the same share of samples with equal numbers."""
        ...

    def occurrences(self, targets: Tensor) -> Tensor | None:
        """How many samples show each class (int64, one entry per class); None for tasks without classes."""
        ...

    def fault(self, targets: Tensor) -> str | None:
        """What is wrong with a silo's targets, as the end of a sentence that begins with the silo; None if nothing."""
        ...

    def draws(self, kinds: str, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        """The random choices for all samples of some batches, one row per sample; made before training.

        `kinds` is `data.augment`. What it must not be is refused here, before a run begins.
        """
        ...

    def augment(self, inputs: Tensor, targets: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """A training batch changed as it was drawn: inputs, and targets where they follow them (a mask is mirrored).

        Images come as floats from 0 to 255 and become what the network sees afterwards; other inputs come as they are.
        """
        ...

    def caption(self, target: Tensor, classes: Sequence[str]) -> str:
        """What is written beside an example in a report, from its target and the names of the classes."""
        ...


class Blending(Task, Protocol):
    """A task that says what stands for several targets at once: methods that average samples (FedMix) need it."""

    def blended(self, targets: Tensor) -> Tensor:
        """Of groups of targets (groups x members x ...) one for each, of the shape of a network's prediction.

        `loss` takes what this returns in place of targets. Of classes it is the share of each.
        """
        ...


def blends(task: Task) -> TypeGuard[Blending]:
    return callable(getattr(task, "blended", None))


def separable(task: Task) -> bool:
    """Whether the loss of a batch is the mean of its samples' losses; a task that says nothing is taken at its word."""
    return bool(getattr(task, "separable", True))
