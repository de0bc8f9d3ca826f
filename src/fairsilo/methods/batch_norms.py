"""BatchNorm at test time: what DSBN, Tent and IOP-FL's outside part have in common."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from fairsilo.core.silo import Silo
from fairsilo.core.vectors import BATCH_NORMS, Layout, Slot
from fairsilo.errors import FairsiloError


def is_batch_norm(slot: Slot) -> bool:
    return slot.group == "batch-norm"


def require_batch_norms(part: str, layout: Layout, affine: bool = False) -> None:
    if affine and not any(is_batch_norm(slot) and slot.role == "parameter" for slot in layout.slots):
        raise FairsiloError(
            f"{part} trains scale and shift of BatchNorm, and the network has none to train; "
            "take one that has, such as model=resnet-18"
        )
    if not any(is_batch_norm(slot) and slot.role == "buffer" for slot in layout.slots):
        raise FairsiloError(
            f"{part} adapts batch normalisation, and the network has no BatchNorm with running statistics; "
            "take one that has, such as model=resnet-18"
        )


def batch_norms(module: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [one for one in module.modules() if isinstance(one, BATCH_NORMS)]


def use_batch_statistics(module: nn.Module) -> None:
    """Evaluation mode, but for BatchNorm, which normalises by what it sees."""
    module.eval()
    for norm in batch_norms(module):
        norm.train()


def mean_entropy(logits: Tensor) -> Tensor:
    """Of the predicted distributions."""
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()


def estimate_statistics(silo: Silo, inputs: Iterable[Tensor]) -> None:
    """Running statistics from these batches alone, each counting alike."""
    norms = batch_norms(silo.model.module)
    momenta = [norm.momentum for norm in norms]
    use_batch_statistics(silo.model.module)
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the cumulative mean
        for batch in inputs:
            silo.forward(batch)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    silo.model.eval()
