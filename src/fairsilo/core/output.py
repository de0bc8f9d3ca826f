"""What a network returns, and what is compared between two networks."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor


class Output(NamedTuple):
    """What a network returns: its prediction and, where it has them, the features before the head."""

    prediction: Tensor
    features: Tensor | None = None
    extra: Any = None


def aligned(output: Output) -> Tensor:
    """What is compared between models: the network's features, unless it says something else (PromptFL: the classes'
    text features, since its image features never change)."""
    extra = output.extra if isinstance(output.extra, dict) else {}
    features: Tensor | None = extra.get("aligned", output.features)
    assert features is not None
    return features.flatten(1)


def as_output(result: Any) -> Output:
    """A network of the user's may return bare predictions."""
    return result if isinstance(result, Output) else Output(result)
