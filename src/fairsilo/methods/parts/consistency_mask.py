"""FPHL, the mask half of FedHEAL (Chen et al., CVPR 2024). Differs from FedAvg by weights per parameter.

A silo's change of a parameter counts only where it points the way the silo has usually pushed that parameter.
`released` judges by the rounds before and asks for more than tau; `paper` includes this one and asks for at least tau.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.fields import between, setting
from fairsilo.methods.geometry import consistency, masked_mean


@dataclass(frozen=True)
class ConsistencyMask(Part):
    """q_ik = m_ik p_i / sum_j m_jk p_j; W_k <- W_k + sum_i q_ik D_ik; a parameter masked at all silos stays."""

    name = "consistency-mask"
    about = About(
        paper="Chen et al., Fair Federated Learning under Domain Skew, CVPR 2024",
        formula="c = l where D >= 0 else 1 - l;  m = [c above tau];  W_k <- W_k + sum_i m_ik p_i D_ik / sum_j m_jk p_j",
        sends=(EACH_UPDATE,),
        keeps=("per silo and parameter, in how many rounds it was raised (server)",),
    )
    needs = frozenset({"shared-tensors"})

    tau: float = setting(0.3, "how consistent a change must be", low=0, high=1, search=between(0.1, 0.7))
    variant: str = setting("released", "as the authors' code or as printed", choices=("released", "paper"))
    mask_buffers: bool = setting(False, "mask BatchNorm statistics too, as the released code does")

    def collect(self, server: Server, updates: Updates) -> Updates:
        memory = server.memory.of(self)
        counts: dict[str, Tensor] = dict(memory.get("raised", {}))
        rounds: dict[str, int] = dict(memory.get("rounds", {}))
        width = updates.layout.floats if self.mask_buffers else updates.layout.shared
        mask = torch.empty(len(updates), width, dtype=torch.bool, device=updates.deltas.device)
        for row, name in enumerate(updates.silos):
            change, past = updates.deltas[row, :width], rounds.get(name, 0)
            # the released code looks at W - w_i, so a parameter that does not move counts as an increase in both
            raised = change <= 0 if self.variant == "released" else change >= 0
            before = counts.get(name, torch.zeros_like(change))
            counts[name], rounds[name] = before + raised, past + 1
            if self.variant == "paper":
                mask[row] = consistency(counts[name], raised, past + 1) >= self.tau
            else:
                mask[row] = True if past == 0 else consistency(before, raised, past) > self.tau
        memory.update(raised=counts, rounds=rounds)
        server.facts["mask"] = mask
        return updates

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        direction = updates.mean(weights)
        direction[: server.facts["mask"].shape[1]] = masked_mean(updates.deltas, server.facts["mask"], weights)
        return direction
