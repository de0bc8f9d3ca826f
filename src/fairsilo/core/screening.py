"""What makes a reply unusable: anything missing, unknown, of another shape or type, or not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import Group, Sends, Sizes, expected, extents
from fairsilo.core.messages import MODEL, Failure, Message, Reply
from fairsilo.core.server import Server
from fairsilo.core.vectors import Layout

# kinds of failures: of a silo whose training diverged, and of one that attaches something else that is not finite
DIVERGED, NOT_FINITE = "diverged", "not finite"
OF_TRAINING = (MODEL, "loss")  # what training makes and every method sends


def screened(kind: str, messages: Mapping[str, Message], replies: Iterable[Reply], server: Server) -> Iterator[Reply]:
    """Replace unusable replies by failures, which are logged, counted and left out like any other.

    Args:
        kind: The exchange.
        messages: What each silo was asked.
        replies: What came back.
        server: Knows what the method declares, and the sizes it is declared in.
    """
    for reply in replies:
        answer = reply.answer
        if isinstance(answer, Message):
            groups = expected(kind, messages[reply.silo], server.method.parts, server.task)
            flaw = flaw_of(answer, groups, server.silo_layout, server.sizes_for(reply.silo))
            reply = reply if flaw is None else replace(reply, answer=flaw)
        del answer
        yield reply
        del reply  # an update is as large as the model: free it before the next one is made


def flaw_of(answer: Message, groups: Iterable[Group], layout: Layout, sizes: Sizes) -> Failure | None:
    """The first thing that is wrong with a reply; None where nothing is."""
    found = dict(sizes)  # and the free sizes, as this reply has them
    known: set[str] = set()
    for group in groups:
        known |= {one.name for one in group}
        present = [one for one in group if one.name in answer.tensors or one.name in answer.numbers]
        if not present and all(one.optional for one in group):
            continue
        for one in group:
            flaw = _number_flaw(one, answer) if one.is_number else _tensor_flaw(one, answer, layout, found)
            if flaw is not None:
                return flaw
    twice = answer.tensors.keys() & answer.numbers.keys()
    unknown = [key for key in (*answer.tensors, *answer.numbers) if key not in known or key in twice]
    return Failure("malformed", f"sent {unknown[0]!r}, which is not declared") if unknown else None


def _number_flaw(one: Sends, answer: Message) -> Failure | None:
    if one.name not in answer.numbers:
        return Failure("malformed", f"did not send the number {one.name}")
    value = answer.numbers[one.name]
    kinds = (int,) if one.dtype == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        return Failure("malformed", f"{one.name} is {value!r}, not {'a whole' if one.dtype == 'int' else 'a'} number")
    if not math.isfinite(value):
        return Failure(_kind(one), f"{one.name} is {value}")
    if value < one.least:
        return Failure("malformed", f"{one.name} is {value}; the least is {one.least:g}")
    return None


def _tensor_flaw(
    one: Sends, answer: Message, layout: Layout, sizes: dict[str, int | tuple[int, ...]]
) -> Failure | None:
    tensor = answer.tensors.get(one.name)
    if not isinstance(tensor, Tensor):
        return Failure("malformed", f"did not send the tensor {one.name}")
    wanted = extents(one, layout, sizes)
    if not _fits(tuple(tensor.shape), wanted, sizes):
        shapes = ["x".join(map(str, shape)) or "one number" for shape in (tuple(tensor.shape), wanted)]
        return Failure("malformed", f"{one.name} has the shape {shapes[0]} where {shapes[1]} was expected")
    if not _of_type(tensor, one.dtype, layout):
        return Failure("malformed", f"{one.name} is of type {tensor.dtype}")
    if tensor.is_floating_point() and not finite(tensor):
        return Failure(_kind(one), f"{one.name} holds a NaN or an infinity")
    if one.least > -math.inf and tensor.numel() and float(tensor.min()) < one.least:
        return Failure("malformed", f"{one.name} holds {float(tensor.min()):g}; the least is {one.least:g}")
    return None


def _kind(one: Sends) -> str:
    return DIVERGED if one.name in OF_TRAINING else NOT_FINITE


def _fits(shape: tuple[int, ...], wanted: tuple[int | str, ...], sizes: dict[str, int | tuple[int, ...]]) -> bool:
    """Whether a shape is the wanted one; a free size takes the value it first has, which must not be 0."""
    if len(shape) != len(wanted):
        return False
    for have, size in zip(shape, wanted, strict=True):
        if isinstance(size, str):
            if not have or sizes.setdefault(size, have) != have:
                return False
        elif have != size:
            return False
    return True


def _of_type(tensor: Tensor, dtype: str, layout: Layout) -> bool:
    if dtype == "model":
        return tensor.dtype == layout.dtype
    exact = {"float64": torch.float64, "int64": torch.int64, "uint8": torch.uint8}
    if dtype in exact:
        return tensor.dtype == exact[dtype]
    if dtype == "float":
        return tensor.is_floating_point()
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool


def finite(tensor: Tensor) -> bool:
    """Whether all values are finite; checks the minimum and maximum (NaN is both), which needs no copy."""
    return not tensor.numel() or bool(torch.stack(tensor.aminmax()).isfinite().all())


def steadier(training: TrainSettings) -> str:
    """What usually helps where training diverges, with the settings as they are now."""
    clipping = "train.clip=1" if training.clip is None else f"train.clip below {training.clip:g}"
    return f"a smaller learning rate usually helps (train.lr is {training.lr:g} now), or clipped gradients ({clipping})"
