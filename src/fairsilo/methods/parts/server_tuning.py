"""Fine-tuning on the server, on data given to it (FedAG's -ft baselines): after each aggregation (FedAvg-ft and
FedProx-ft), or once, after the last round and before its evaluation (FedCLIP-ft and FedOT-ft)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server
from fairsilo.core.vectors import Layout
from fairsilo.fields import around, setting
from fairsilo.methods.requirements import require_all_sent
from fairsilo.methods.server_data import tuned


@dataclass(frozen=True)
class ServerTuning(Part):
    """W <- W + direction, then epochs of Adam on the server's own data, with the network that the server holds."""

    name = "server-tuning"
    about = About(
        paper=(
            "baseline of Wang et al., Enhancing Foundation Models with Federated Domain Knowledge Infusion, ICML 2025"
        ),
        formula="W <- Adam epochs on server data, from W + sum_i p_i (w_i - W)",
    )
    needs = frozenset({"server-data"})

    tuning: str = setting("round", "when: after every round, or once, after the last", choices=("round", "end"))
    tuning_epochs: int = setting(3, "epochs on the server's data each time", low=0)
    tuning_lr: float = setting(1e-4, "of Adam on the server", low=0, open_low=True, search=around(10))
    tuning_batch: int = setting(32, "samples a step on the server", low=2)

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_all_sent(self.name, layout, "trains the whole model")

    def step(self, server: Server, direction: Tensor) -> Tensor:
        if self.tuning == "end":
            return direction
        start = server.vector.clone()
        start[: len(direction)] += direction
        return self._tuned(server, start)[: len(direction)] - server.vector[: len(direction)]

    def conclude(self, server: Server) -> None:
        if self.tuning == "end":
            floats, vector = server.layout.floats, server.vector.clone()
            vector[:floats] = self._tuned(server, server.vector)[:floats]
            server.vector = vector

    def _tuned(self, server: Server, start: Tensor) -> Tensor:
        return tuned(server, start, self.name, self.tuning_epochs, self.tuning_lr, self.tuning_batch)
