"""A model of a finished run by scikit-learn's conventions: `predict` gives classes, and its tools take it as fitted.

scikit-learn is slow to import, so that this file is imported by `Trained.estimator` on use.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from torch import Tensor

from fairsilo.errors import FairsiloError

if TYPE_CHECKING:
    from fairsilo.runs.trained import Trained

WHICH = ("best", "last")
WORDS = "OSU"  # the kinds of arrays that hold names


def estimator_of(trained: Trained, silo: str | None, which: str, names: bool) -> TrainedClassifier | TrainedRegressor:
    """What `Trained.estimator` returns, after a look whether there is such a model.

    Raises:
        FairsiloError: There is none, or the task is no classification of samples and no regression.
    """
    task = trained.plan.task
    if task.output.per == "pixel":
        raise FairsiloError(
            f"scikit-learn's tools know classes and numbers of samples, and the task is {trained.roster.task}; "
            "use predict, which gives the masks"
        )
    if which not in WHICH:
        raise FairsiloError(f"which is {which!r}; it must be {' or '.join(WHICH)}")
    trained.holding(silo, which)
    if task.classes:
        return TrainedClassifier(trained, silo, which, names)
    if names:
        raise FairsiloError(f"names are of classes, and the task is {trained.roster.task}; leave names out")
    return TrainedRegressor(trained, silo, which)


class _Fitted(BaseEstimator):  # type: ignore[no-untyped-call]
    """What both kinds have in common: samples in, and no training."""

    trained: Trained
    silo: str | None
    which: str

    @property
    def n_features_in_(self) -> int:
        """The numbers of one sample."""
        return math.prod(self.trained.shape)

    def fit(self, X: Any, y: Any = None, **_: Any) -> NoReturn:  # noqa: N803
        """Refuses: whoever fits, such as a cross-validation, would take one and the same model for many.

        Raises:
            FairsiloError: Always.
        """
        raise FairsiloError(
            "this model is trained already, and only a run trains one; where a tool must fit, give it "
            "sklearn.frozen.FrozenEstimator(estimator)"
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_clone__(self) -> _Fitted:
        """Itself: a copy without what was trained would be nothing."""
        return self

    def _told(self, X: Any) -> NDArray[Any]:  # noqa: N803
        return self.trained.predict(self._samples(X), self.silo, self.which).numpy()

    def _samples(self, given: Any) -> Tensor:
        """As the run's data were: flat rows in their shape, and in the same type of numbers."""
        shape, dtype = self.trained.shape, getattr(torch, self.trained.roster.dtype)
        try:
            # a copy only where torch cannot share the memory, as of an array that is read-only or turned round
            samples = given if isinstance(given, Tensor) else torch.from_numpy(np.require(given, None, ["C", "W"]))
        except (TypeError, ValueError):
            raise FairsiloError(f"samples must be arrays of numbers, and these are {type(given).__name__}") from None
        if samples.dim() == 2 and samples.shape[1] == math.prod(shape):
            samples = samples.reshape(len(samples), *shape)
        if tuple(samples.shape[1:]) != shape or not len(samples):
            sizes = (tuple(samples.shape), ("N", *shape), ("N", math.prod(shape)))
            here, *allowed = dict.fromkeys("x".join(map(str, one)) or "a single number" for one in sizes)
            raise FairsiloError(f"the samples are {here}, and they must be {' or '.join(allowed)}, one or more")
        found = samples.to(dtype)
        if not dtype.is_floating_point and not torch.equal(found.to(samples.dtype), samples):
            raise FairsiloError(
                f"the run's samples were whole numbers ({self.trained.roster.dtype}), and some of these are not, or "
                "are too large; give them as they were before any scaling"
            )
        return found


class TrainedClassifier(ClassifierMixin, _Fitted):  # type: ignore[no-untyped-call]
    """A classifier that a run has trained.

    Attributes:
        classes_: What `predict` chooses from, in the order of the columns of `predict_proba`: numbers, or names.
    """

    def __init__(self, trained: Trained, silo: str | None = None, which: str = "best", names: bool = False) -> None:
        self.trained, self.silo, self.which, self.names = trained, silo, which, names

    @property
    def classes_(self) -> NDArray[Any]:
        return self.trained.classes_ if self.names else np.arange(len(self.trained.classes))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likeliest class of each sample."""
        return np.asarray(self.classes_[self._told(X).argmax(1)])

    def predict_proba(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Probabilities, N x classes."""
        return self._told(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """The share of samples whose class is predicted.

        Raises:
            FairsiloError: Classes are given by names where they are told by numbers, or the other way round.
        """
        wanted = np.asarray(y)
        if (wanted.dtype.kind in WORDS) != self.names:
            have, other = ("names", "numbers")[:: 1 if self.names else -1]
            raise FairsiloError(f"this estimator tells classes by their {have}, and these are {other}; see names=")
        return float(super().score(X, wanted, sample_weight))  # type: ignore[no-untyped-call]


class TrainedRegressor(RegressorMixin, _Fitted):  # type: ignore[no-untyped-call]
    """A model of numbers that a run has trained."""

    def __init__(self, trained: Trained, silo: str | None = None, which: str = "best") -> None:
        self.trained, self.silo, self.which = trained, silo, which

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """A number for each sample, in the units of the data."""
        return self._told(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """The coefficient of determination, R squared."""
        return float(super().score(X, np.asarray(y), sample_weight))  # type: ignore[no-untyped-call]
