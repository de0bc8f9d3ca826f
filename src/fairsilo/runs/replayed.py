"""A finished run with its data: what diagnostics and figures look back at."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.measuring import measure, output_of
from fairsilo.core.messages import Request
from fairsilo.core.method import Method
from fairsilo.core.output import as_vectors
from fairsilo.core.part import Part
from fairsilo.core.round import open_evaluation
from fairsilo.core.samples import Split, joined
from fairsilo.core.silo import Memory, Silo
from fairsilo.core.vectors import AUXILIARY
from fairsilo.data.federation import Federation, pooled
from fairsilo.engine.blueprint import ModelMaker
from fairsilo.errors import FairsiloError
from fairsilo.runs.setup import federation_of, fingerprint, synthetic_of
from fairsilo.runs.trained import Trained


class Replayed:
    """A finished run with its data and, where they were kept, its local models of every round: for diagnostics."""

    def __init__(
        self,
        folder: str | Path,
        *,
        federation: Federation | None = None,
        method: Method | Part | None = None,
        model: ModelMaker | None = None,
        trust: bool = False,
    ) -> None:
        self.trained = Trained(folder, method=method, model=model, trust=trust)
        self.run_folder = self.trained.run_folder
        facts = self.trained.facts
        if "federation" in facts.get("objects", ()) and federation is None:
            raise FairsiloError(
                f"{folder} was begun from Python with a federation of its own; look at it there: "
                "Replayed(folder, federation=...)"
            )
        self.federation = federation or federation_of(self.trained.experiment)
        if self.trained.plan.method.pools:
            made = synthetic_of(self.trained.experiment, self.federation.roster, self.trained.folder)
            self.federation = pooled(self.federation, made.values())
        if fingerprint(self.trained.plan, self.federation.roster) != facts.get("fingerprint"):
            raise FairsiloError(f"{folder} was trained on other data than its config.yaml gives now")
        self.layout = self.trained.server.silo_layout
        self.silos = self.federation.names
        self.unseen = self.federation.unseen_names
        self.total_rounds = self.trained.plan.training.rounds
        self.samples = {silo.name: len(silo.train) for silo in self.federation.silos}
        self._tested: dict[str, list[Split]] = {}
        for silo in (*self.federation.silos, *self.federation.unseen):
            if len(silo.test):
                self._tested.setdefault(silo.domain, []).append(silo.test)
        inside = {silo.domain for silo in self.federation.silos}
        self.domains = {domain: domain not in inside for domain in self._tested}

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """Rounds whose local models were kept; refused where they cannot be compared with the global one."""
        name = self.trained.plan.method.name
        if self.trained.server.layout.size != self.layout.size:
            raise FairsiloError(
                f"this figure compares silos' models with the global one, which is another network in {name}"
            )
        found = tuple(self.run_folder.local_rounds())
        if not found:
            raise FairsiloError(
                f"{self.trained.folder} kept no local models, which this figure is made from; "
                "run it with evaluate.keep_local=true"
            )
        for silo in self.federation.silos:
            if not len(silo.validation):
                raise FairsiloError(f"silo {silo.name!r} has no validation samples, which figures measure models on")
        kept = [slot.name for slot in self.trained.model.layout.own if slot.group != AUXILIARY]
        if kept:
            raise FairsiloError(
                f"this figure looks at models as they were sent, and {name} keeps {kept[0]} at its silos"
            )
        return found

    @property
    def attends(self) -> bool:
        return self.trained.attention(self.federation.silos[0].train.take([0])[0]) is not None

    def attention(self, domain: str) -> Tensor:
        found = self.trained.attention(joined(self._tested[domain]).inputs)
        if found is None:
            raise FairsiloError(
                f"{self.trained.plan.method.name} has no attention between silos' adapters, as fedag has"
            )
        return found

    def sent(self, round: int) -> Tensor:
        return self.run_folder.read_local(round)[0]

    def local(self, round: int) -> dict[str, Tensor]:
        sent, changes = self.run_folder.read_local(round)
        return {name: sent + change for name, change in changes.items()}

    def after(self, round: int) -> Tensor | None:
        if round + 1 in self.rounds:
            return self.sent(round + 1)
        return self.trained.server.vector.cpu() if round == self.total_rounds else None

    def loss(self, vector: Tensor, silo: str, split: str) -> float:
        return measure(self._holding(vector, silo), split).loss

    @torch.no_grad()
    def features(self, vector: Tensor, silo: str, split: str, limit: int) -> tuple[Tensor, Tensor]:
        held = self._holding(vector, silo)
        data = held.data.split(split)
        held.model.eval()
        order = torch.randperm(len(data), generator=streams.generator(self.trained.plan.seed, "figure", silo, split))
        batch = held.batch(data, order[:limit].sort().values)
        found = output_of(held, batch).features
        if found is None:
            raise FairsiloError(
                "the network returns no features to look at; let it return fairsilo.Output with features"
            )
        return as_vectors(found).cpu(), batch.targets.cpu()

    def _holding(self, vector: Tensor, name: str) -> Silo:
        trained = self.trained
        known = [name] if name in self.silos else []
        message = open_evaluation(trained.server, known, [] if known else [name])[name]
        silo = trained.plan.silo(
            trained.model, self.federation[name], Request("evaluate", trained.server.round, message), Memory()
        )
        silo.load(vector.to(trained.plan.device))
        return silo
