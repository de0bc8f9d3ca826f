"""IOP-FL, inside part (Jiang et al., IEEE TMI 2023). Differs from FedAvg by a personal model per silo that follows its
local models as a running mean."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.core.messages import Message
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Silo
from fairsilo.fields import between, setting


@dataclass(frozen=True)
class Trajectory(Part):
    """v_i <- alpha v_i + (1 - alpha) w_i after each local training; the first is w_i."""

    name = "trajectory"
    about = About(
        paper="Jiang et al., IOP-FL: Inside-Outside Personalization for Federated Medical Image Segmentation, TMI 2023",
        formula="v_i <- alpha v_i + (1 - alpha) w_i",
        keeps=("its personal model v_i at the silo",),
        results="personal",
    )

    alpha: float = setting(0.1, "weight of the personal model as it was", low=0, high=0.9999, search=between(0.05, 0.9))

    def finish(self, silo: Silo, update: Message) -> None:
        local = silo.model.read()
        own = silo.memory.of(self).get("model")
        if own is not None:
            floats = silo.model.layout.floats
            local[:floats] = self.alpha * own[:floats] + (1 - self.alpha) * local[:floats]
        silo.memory.of(self)["model"] = local

    def personal(self, silo: Silo, vector: Tensor) -> Tensor:
        model: Tensor = silo.memory.of(self)["model"]
        return model
