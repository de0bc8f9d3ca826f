"""The head of a network and its body: what FedPer, FedRep, FedBABU and FedRoD treat differently."""

from __future__ import annotations

from torch import Tensor, nn

from fairsilo.core.optimizers import make_optimizer
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import PARAMETER, Layout, Slot
from fairsilo.errors import FairsiloError

CYCLE = 11  # batches of which FedRep, by batches, trains the head with the last


def is_head(slot: Slot) -> bool:
    return slot.group == "head"


def is_body(slot: Slot) -> bool:
    """All that is not the head; what parts train beside the network trains with the body."""
    return not is_head(slot)


def require_head(part: str, layout: Layout, body: bool = False) -> None:
    """A head, and where asked also a body, that can be trained."""
    trained = [slot for slot in layout.slots if slot.role == PARAMETER]
    if body and trained and all(map(is_head, trained)):
        raise FairsiloError(f"{part} trains the body of the network, and all of it is frozen")
    if not any(map(is_head, trained)):
        raise FairsiloError(
            f"{part}: the network has no head of its own; let its last layer be the attribute `head`, as in "
            "fairsilo.models.networks.Network"
        )


def second_head(part: str, network: nn.Module) -> nn.Module:
    """A new head like the network's own: linear in the features, of a sample or of each pixel."""
    head = getattr(network, "head", None)
    if isinstance(head, nn.Linear):
        return nn.Linear(head.in_features, head.out_features, bias=head.bias is not None)
    if isinstance(head, nn.Conv2d) and head.kernel_size == (1, 1):
        return nn.Conv2d(head.in_channels, head.out_channels, 1, bias=head.bias is not None)
    raise FairsiloError(
        f"{part} needs a network whose attribute `head` is linear in its features: a torch.nn.Linear, or a convolution "
        "of 1x1"
    )


def features_width(part: str, network: nn.Module) -> int:
    """How many numbers the network's features have: what its head takes, or what the network says itself."""
    head = getattr(network, "head", None)
    first = next(iter(head), None) if isinstance(head, nn.Sequential) else head
    if isinstance(first, nn.Linear):
        return first.in_features
    if isinstance(first, nn.Conv2d):  # of maps, alignment compares the mean over their pixels
        return first.in_channels
    width = getattr(network, "features_width", None)
    if not isinstance(width, int):
        raise FairsiloError(
            f"{part} must know how wide the network's features are; let its attribute `head` be a torch.nn.Linear over "
            "them, or give it an attribute `features_width`"
        )
    return width


def shifted(logits: Tensor, counts: Tensor) -> Tensor:
    """Logits (B x classes, or such maps) plus the log frequency of each class: a softmax of them is balanced.

    An absent class does no harm.
    """
    shape = (-1, *[1] * (logits.dim() - 2))
    return logits + counts.to(logits.dtype).clamp(min=1e-12).log().view(shape)


class Alternating:
    """Two optimisers that step in turn."""

    def __init__(self, silo: Silo) -> None:
        self.body, self.head = (
            make_optimizer(silo, chosen, name) for chosen, name in ((is_body, "body"), (is_head, "head"))
        )
        self.silo = silo

    def step(self) -> None:
        (self.head if heads_turn(self.silo) else self.body).step()


def heads_turn(silo: Silo) -> bool:
    """Whether the step to come is the head's, of two that step in turn."""
    return (silo.steps + 1) % CYCLE == 0
