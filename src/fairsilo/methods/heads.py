"""The head of a network and its body: what FedPer, FedRep, FedBABU and FedRoD treat differently."""

from __future__ import annotations

import torch.nn.functional as F
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


def linear_head(part: str, network: nn.Module) -> nn.Linear:
    """The network's last layer, from which its features' width is known."""
    head = getattr(network, "head", None)
    if not isinstance(head, nn.Linear):
        raise FairsiloError(f"{part} needs a network whose attribute `head` is a torch.nn.Linear over its features")
    return head


def features_width(part: str, network: nn.Module) -> int:
    """How many numbers the network's features have: what its head takes, or what the network says itself."""
    head = getattr(network, "head", None)
    first = next(iter(head), None) if isinstance(head, nn.Sequential) else head
    if isinstance(first, nn.Linear):
        return first.in_features
    width = getattr(network, "features_width", None)
    if not isinstance(width, int):
        raise FairsiloError(
            f"{part} must know how wide the network's features are; let its attribute `head` be a torch.nn.Linear over "
            "them, or give it an attribute `features_width`"
        )
    return width


def balanced_softmax(logits: Tensor, targets: Tensor, counts: Tensor) -> Tensor:
    """Cross-entropy of logits shifted by the log frequency of each class; an absent class does no harm."""
    return F.cross_entropy(logits + counts.to(logits.dtype).clamp(min=1e-12).log(), targets)


class Alternating:
    """Two optimisers that step in turn."""

    def __init__(self, silo: Silo) -> None:
        self.body, self.head = (
            make_optimizer(silo, chosen, name) for chosen, name in ((is_body, "body"), (is_head, "head"))
        )
        self.count = 0

    def step(self) -> None:
        self.count += 1
        (self.head if self.count % CYCLE == 0 else self.body).step()
