"""Gradients of single samples, cut and added up; Opacus computes them. Its optimiser is not used: ours is over one flat
vector."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fairsilo.core.convolutions import MatrixConv2d
from fairsilo.core.measuring import seen
from fairsilo.core.output import as_output
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.streams import reseed
from fairsilo.core.vault import seed_of, uniform
from fairsilo.core.vectors import BATCH_NORMS, PARAMETER, tensors_of
from fairsilo.errors import FairsiloError

Clipped = Callable[[Batch, float], tuple[Tensor, Tensor]]  # batch and bound -> mean loss, sum of the cut gradients


def poisson(silo: Silo, epoch: int) -> list[Tensor]:
    """As many batches as an epoch has, each sample in each of them with the same probability, by itself.

    Which samples were drawn stays the silo's secret: the accountant counts on it.
    """
    count, size = len(silo.data.train), silo.training.batch_size
    return [
        torch.from_numpy((uniform(silo.secret("poisson", epoch, number), count) < size / count).nonzero()[0])
        for number in range(math.ceil(count / size))
    ]


@contextmanager
def sample_gradients(silo: Silo) -> Iterator[Clipped]:
    """A function of a batch and a bound that returns its mean loss and the sum of its samples' cut gradients."""
    reseed(seed_of(silo.secret("dropout")))  # drawn for places in a batch, which nobody may know
    changing: list[Any] = [module for module in silo.model.module.modules() if getattr(module, "inplace", False)]
    for module in changing:
        module.inplace = False  # the hooks that Opacus sets need what layers returned as it was
    by_matrices: list[Any] = [module for module in silo.model.module.modules() if type(module) is MatrixConv2d]
    for module in by_matrices:
        module.__class__ = nn.Conv2d  # the only kind that Opacus knows
    wrapped = _opacus().GradSampleModule(silo.model.module, loss_reduction="sum")
    tensors: dict[str, Any] = {**tensors_of(silo.model.module)}  # to which Opacus adds `grad_sample`
    trained = [(slot, tensors[slot.name]) for slot in silo.model.layout.slots if slot.role == PARAMETER]

    def clipped(batch: Batch, bound: float) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(silo.model.gradients)
        if not len(batch.indices):  # a draw may leave a batch empty, and that is a step like any other
            return total.new_zeros(()), total
        prediction = as_output(wrapped(seen(silo, batch, True))).prediction
        pairs = zip(torch.split(prediction, 1), torch.split(batch.targets, 1), strict=True)
        losses = torch.stack([silo.task.loss(*pair) for pair in pairs])  # one by one: no sample in another's loss
        with warnings.catch_warnings():  # the first layer's inputs need no gradient, which its hook remarks upon
            warnings.filterwarnings("ignore", "Full backward hook is firing")
            losses.sum().backward()  # type: ignore[no-untyped-call]
        found = [(slot, tensor.grad_sample.flatten(1)) for slot, tensor in trained if tensor.grad_sample is not None]
        lengths = torch.stack([rows.norm(dim=1) for _, rows in found]).norm(dim=0)
        factors = (bound / lengths.clamp(min=1e-30)).clamp(max=1.0)
        for slot, rows in found:
            total[slot.place] = factors @ rows
        wrapped.zero_grad(set_to_none=False)
        return losses.detach().mean(), total

    try:
        yield clipped
    finally:
        wrapped.to_standard_module()
        for module in changing:
            module.inplace = True
        for module in by_matrices:
            module.__class__ = MatrixConv2d


def refuse_unfit(part: str, network: nn.Module) -> None:
    """Refuse a network whose samples' gradients cannot be told apart."""
    for module in network.modules():
        own = list(module.parameters())
        mixes = isinstance(module, BATCH_NORMS) and (not own or any(one.requires_grad for one in own))
        if mixes or (isinstance(module, nn.RNNBase) and any(one.requires_grad for one in own)):
            kind = type(module).__name__
            raise FairsiloError(
                f"{part} needs the gradient of every sample by itself, which {kind} does not give; take another one, "
                "such as model='small-cnn(norm=group)'"
            )
    _opacus()


def _opacus() -> Any:
    try:
        import opacus
    except ImportError as problem:
        raise FairsiloError("gradients of samples are computed by Opacus: pip install 'fairsilo[privacy]'") from problem
    return opacus
