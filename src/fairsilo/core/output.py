"""What a network returns, and what is compared between two networks."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Output(NamedTuple):
    """What a network returns: its prediction and, where it has them, the features before the head.

    A network may also return its prediction alone; methods that compare features then refuse it.

    Attributes:
        prediction: B x classes for classification (logits); in general what the task's loss takes.
        features: B x anything, or None. `as_vectors` says what stands for them where one vector per sample is needed.
        extra: Anything else, such as a dictionary: `aligned` holds what alignment compares instead of the features,
            `attention` the weights of the silos' adapters (FedAG).

    Example:
        >>> import torch
        >>> from fairsilo import Output
        >>> output = Output(torch.zeros(4, 2), features=torch.zeros(4, 16))
        >>> output.prediction.shape, output.features.shape, output.extra
        (torch.Size([4, 2]), torch.Size([4, 16]), None)
    """

    prediction: Tensor
    features: Tensor | None = None
    extra: Any = None


def features_in(output: Output) -> Tensor:
    """The features of a network that is known to return them (the need `features`)."""
    assert output.features is not None
    return output.features


def as_vectors(features: Tensor) -> Tensor:
    """Features as one vector per sample (B x features): of maps (B x channels x H x W) the mean of each channel."""
    return features.flatten(2).mean(2) if features.dim() > 3 else features.flatten(1)


def vectors_in(output: Output) -> Tensor:
    """The features of a network that is known to return them, as one vector per sample."""
    return as_vectors(features_in(output))


def aligned(output: Output) -> Tensor:
    """What alignment compares between models (B x features): the network's features, or what it names instead.

    PromptFL names the classes' text features, since its image features never change.
    """
    extra = output.extra if isinstance(output.extra, dict) else {}
    features: Tensor | None = extra.get("aligned", output.features)
    assert features is not None
    return as_vectors(features)


def as_output(result: Any) -> Output:
    """The output of any network; one that returns its prediction alone has no features."""
    return result if isinstance(result, Output) else Output(result)


def widened(output: Output, dtype: torch.dtype) -> Output:
    """The same output with all its floats of one type: what a loss is computed from."""

    def wide(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: wide(one) for key, one in value.items()}
        return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

    return Output(*map(wide, output))
