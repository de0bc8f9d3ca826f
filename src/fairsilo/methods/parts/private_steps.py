"""DP-SGD (Abadi et al., CCS 2016). Differs from FedAvg by noisy steps to which no sample adds more than a bound."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from fairsilo.config import TrainSettings
from fairsilo.core.local import follow
from fairsilo.core.messages import Message
from fairsilo.core.optimizers import kept_optimizer
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.vault import normal
from fairsilo.core.vectors import Layout
from fairsilo.fields import setting
from fairsilo.methods.accounting import account, epsilon_of_part
from fairsilo.methods.requirements import require_plain_draws
from fairsilo.methods.sample_gradients import poisson, refuse_unfit, sample_gradients


@dataclass(frozen=True)
class PrivateSteps(Part):
    """g <- (sum_s g_s min(1, C / |g_s|) + N(0, (z C)^2)) / B over samples s, each drawn with probability B / n."""

    name = "dp-sgd"
    about = About(
        paper="Abadi et al., Deep Learning with Differential Privacy, CCS 2016",
        formula="g <- (sum_s g_s min(1, C / |g_s|) + N(0, (z C)^2)) / B;  s drawn with probability B / n_i",
        sends=(epsilon_of_part("dp-sgd"),),
        keeps=("in how many rounds it trained",),
        protects="each training sample of a silo",
    )
    needs = frozenset({"no-batch-norm", "separable-loss"})
    does = frozenset({"private-updates", "made-steps"})

    clip: float = setting(1.0, "C, the largest length of a sample's gradient", low=0, open_low=True)
    noise: float = setting(1.0, "z, the noise in units of it; 0: none, and no epsilon", low=0)
    delta: float = setting(1e-5, "the probability that epsilon does not hold", low=0, high=1, open_low=True)
    budget: float = setting(0.0, "epsilon beyond which nothing is sent; 0: no bound", low=0, rare="once spent")

    @property
    def trains_bare(self) -> bool:
        return True

    def modules(self, network: nn.Module) -> dict[str, nn.Module]:
        refuse_unfit(self.name, network)
        return {}

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_plain_draws(self.name, training)

    def train(self, silo: Silo) -> Tensor:
        with sample_gradients(silo) as gradients, kept_optimizer(silo) as optimizer:

            def step(silo: Silo, batch: Batch) -> Tensor:
                loss, total = gradients(batch, self.clip)
                total += self.noise * self.clip * normal(silo.secret(self.name, "noise", silo.steps), total)
                silo.model.gradients.copy_(total / silo.training.batch_size)
                return loss

            return follow(silo, optimizer, silo.batches(chosen=lambda epoch: poisson(silo, epoch)), step)

    def finish(self, silo: Silo, update: Message) -> None:
        rate = min(1.0, silo.training.batch_size / len(silo.data.train))
        account(self, silo, update, self.noise, rate, silo.steps)
