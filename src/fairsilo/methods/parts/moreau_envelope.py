"""pFedMe (Dinh et al., NeurIPS 2020). Differs from FedAvg by a personal model theta per silo, which trains under a pull
to the silo's copy of the shared model; that copy then takes a step towards it, batch by batch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.local import follow, gradient
from fairsilo.core.part import About, Part
from fairsilo.core.rates import require_one_rate
from fairsilo.core.server import Server
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.vectors import Layout
from fairsilo.errors import FairsiloError
from fairsilo.fields import around, setting
from fairsilo.methods.requirements import require_new_optimizer
from fairsilo.methods.steps import Towards


@dataclass(frozen=True)
class MoreauEnvelope(Part):
    """Both models start at the received one; theta goes on from batch to batch, and is given up with the round.

    Its steps are plain: train.momentum and train.weight_decay have no part in them (mu has the latter's place).
    """

    name = "moreau-envelope"
    about = About(
        paper="Dinh, Tran and Nguyen, Personalized Federated Learning with Moreau Envelopes, NeurIPS 2020",
        formula=(
            "K times theta <- theta - eta_p (grad L_i(theta) + lam (theta - w) + mu theta); w <- w - lam eta (w "
            "- theta)"
        ),
        results="personal",
    )
    does = frozenset({"uneven-steps"})

    lam: float = setting(15.0, "pull between the two models (lambda)", low=0, open_low=True, search=around(10))
    inner_steps: int = setting(5, "steps of the personal model a batch (K)", low=1)
    inner_lr: float | None = setting(
        None, "of the personal model (eta_p), the same in all rounds; by default train.lr", low=0, open_low=True
    )
    mu: float = setting(1e-3, "weight decay of the personal model", low=0)
    beta: float = setting(1.0, "share of the silos' mean in the new global model", low=0, high=1, open_low=True)

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_new_optimizer(self.name, training)
        require_one_rate(self.name, training, "takes plain steps of its own at one rate")
        if training.optimizer != "sgd":
            raise FairsiloError(f"{self.name} takes plain gradient steps of its own; set train.optimizer=sgd")
        if training.lr_schedule == "cosine" and not self.inner_lr:
            raise FairsiloError(
                f"{self.name} makes personal models anew each round, and in the last ones a cosine leaves them no "
                "learning rate; give inner_lr, or set train.lr_schedule=step or constant"
            )
        for key, rate in (("train.lr", training.lr), ("inner_lr", self.inner_lr or training.lr)):
            if self.lam * rate >= 2:
                raise FairsiloError(f"{self.name}: lam * {key} is {self.lam * rate:g}; from 2 on its steps diverge")

    def train(self, silo: Silo) -> Tensor:
        theta, shared = silo.parameters, silo.hold(f"{self.name}.shared", silo.start_parameters.clone())

        def step(silo: Silo, batch: Batch) -> Tensor:
            for _ in range(self.inner_steps):
                loss = gradient(silo, batch)
                with torch.no_grad():
                    pull = self.lam * (theta - shared) + self.mu * theta
                    theta.sub_(silo.model.gradients + pull, alpha=self.inner_lr or silo.training.lr)
            return loss

        loss = follow(silo, Towards(shared, theta, self.lam * silo.training.lr), silo.drawn(), step)
        silo.scratch[self.name] = silo.model.read()
        with torch.no_grad():
            theta.copy_(shared)
        return loss

    def phase(self, silo: Silo, step: int) -> Hashable:
        return silo.training.lr

    def personal(self, silo: Silo, vector: Tensor) -> Tensor:
        model: Tensor = silo.scratch[self.name]
        return model

    def step(self, server: Server, direction: Tensor) -> Tensor:
        return direction if self.beta == 1 else self.beta * direction
