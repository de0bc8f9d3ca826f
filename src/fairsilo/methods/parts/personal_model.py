"""Ditto (Li et al., ICML 2021). Differs from FedAvg by a second, personal model per silo, pulled to the shared one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.local import descend, pulled
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import Layout
from fairsilo.fields import around, setting
from fairsilo.methods.requirements import require_new_optimizer


@dataclass(frozen=True)
class PersonalModel(Part):
    """v <- v - eta (grad L_i(v) + lam (v - W)); the shared model trains and is averaged as in FedAvg."""

    name = "personal-model"
    about = About(
        paper="Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021",
        formula="v_i <- v_i - eta (grad L_i(v_i) + lam (v_i - W))",
        keeps=("its personal model v_i at the silo",),
        results="personal",
    )

    lam: float = setting(0.1, "pull of the personal model towards the shared one", low=0, search=around(10))
    aggregate_personal: bool = setting(False, "the personal models are averaged, as in FedHEAL's and GRACE's tables")

    @property
    def trains_bare(self) -> bool:
        return self.aggregate_personal

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        if self.aggregate_personal:
            require_new_optimizer(self.name, training)

    def train(self, silo: Silo) -> Tensor:
        own = silo.memory.of(self).get("model", silo.start)
        model, loss = pulled(silo, own, self.lam, silo.start_parameters)
        silo.memory.of(self)["model"] = model
        if self.aggregate_personal:
            silo.model.load(model)
            return loss
        silo.steps = 0  # those of the model that is sent are counted
        return descend(silo)

    def personal(self, silo: Silo, vector: Tensor) -> Tensor:
        model: Tensor = silo.memory.of(self)["model"]
        return model
