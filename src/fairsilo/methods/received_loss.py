"""The loss of the received model on a silo's training data, measured before training: what AFL, q-FFL, TERM and FedFV
weigh silos by. The task's training loss, never a test loss."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.core.attachments import Sends
from fairsilo.core.measuring import measure
from fairsilo.core.messages import Message
from fairsilo.core.part import Part
from fairsilo.core.server import Updates
from fairsilo.core.silo import Silo

KEY = "received.loss"
RECEIVED_LOSS = Sends(KEY, "the received model's loss on its training data")


@dataclass(frozen=True)
class ReportsReceivedLoss(Part):
    """A part whose silos send that loss, and do nothing else in local training."""

    def begin(self, silo: Silo) -> None:
        measure_received(silo)

    def finish(self, silo: Silo, update: Message) -> None:
        report_received(silo, update)


def measure_received(silo: Silo) -> None:
    silo.scratch[KEY] = measure(silo, "train").loss


def report_received(silo: Silo, update: Message) -> None:
    update.numbers[KEY] = silo.scratch[KEY]


def received_losses(updates: Updates) -> Tensor:
    return updates.numbers(KEY)
