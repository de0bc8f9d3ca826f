"""What makes an update unusable: found at the server, and at the silo before it is sent."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fairsilo.core.messages import MODEL, Failure, Message, Reply
from fairsilo.core.vectors import Layout


def screened(replies: Iterator[Reply], layout: Layout) -> Iterator[Reply]:
    """Replace malformed updates by failures, so that they are named, counted and left out like any other."""
    for reply in replies:
        flaw = flaw_of(reply.answer, layout) if isinstance(reply.answer, Message) else None
        yield reply if flaw is None else Reply(reply.silo, flaw, reply.seconds)
        del reply  # an update is as large as the model: let it go before the next one is made


def flaw_of(update: Message, layout: Layout) -> Failure | None:
    """What is wrong with an update: its length, its sample count, or a number that is not finite."""
    delta = update.tensors.get(MODEL)
    if delta is None or delta.dim() != 1 or len(delta) != layout.size:
        length = "no model" if delta is None else f"{delta.numel()} numbers"
        return Failure("malformed", f"sent {length} where {layout.size} numbers were expected")
    samples = update.numbers.get("samples")
    if not isinstance(samples, int) or samples < 1:
        return Failure("malformed", f"says it trained on {samples!r} samples")
    for key, tensor in update.tensors.items():
        if tensor.is_floating_point() and not finite(tensor):
            return Failure("not finite", f"{key} holds a NaN or an infinity")
    for key, number in update.numbers.items():
        if isinstance(number, float) and number - number != 0:
            return Failure("not finite", f"{key} is {number}")
    return None


def finite(tensor: Tensor) -> bool:
    """Whether every number is finite; by the extremes, which needs no copy of the tensor (NaN is both of them)."""
    return not tensor.numel() or bool(torch.stack(tensor.aminmax()).isfinite().all())
