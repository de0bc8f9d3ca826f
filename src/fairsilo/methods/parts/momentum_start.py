"""FedAG (Wang et al., ICML 2025), the silo's half: local training starts near the silo's own last model, since the one
that comes back was trained on synthetic images; and the silo says how good those images are."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fairsilo.core.attachments import Sends
from fairsilo.core.messages import Message
from fairsilo.core.part import About, Part
from fairsilo.core.samples import Split
from fairsilo.core.silo import Silo
from fairsilo.fields import between, setting
from fairsilo.methods.class_means import class_means, features_of, quality
from fairsilo.methods.infusion import momentum_start
from fairsilo.methods.parts.domain_adapters import QUALITY, DomainAdapters

SCORES = "how near the features of each synthetic image are to the mean feature of its class"


@dataclass(frozen=True)
class MomentumStart(Part):
    """w <- gamma w_own + (1 - gamma) W received; alpha_i = cos(h(s_i), p_y) for each synthetic image."""

    name = "momentum-start"
    about = About(
        paper="Wang et al., Enhancing Foundation Models with Federated Domain Knowledge Infusion, ICML 2025",
        formula="w <- gamma w_own + (1 - gamma) W;  alpha_i = cos(h(s_i), p_{y_i}), p_c = mean of h(x) over class c",
        sends=(Sends(QUALITY, SCORES, ("synthetic",), "float", optional="the silo was given no synthetic images"),),
        keeps=("the silo's last trained model, at the silo",),
    )
    needs = frozenset({"classification", "features", "part:domain-adapters"})

    gamma: float = setting(0.9, "share of the silo's last model in the start", low=0, high=1, search=between(0.5, 1))

    def begin(self, silo: Silo) -> None:
        own, floats = silo.memory.of(self).get("model"), silo.model.layout.floats
        if own is None:
            return
        start = momentum_start(own, silo.start, self.gamma)
        start[floats:] = torch.maximum(own[floats:], silo.start[floats:])  # counters count, they do not mix
        silo.start_from(start)

    def finish(self, silo: Silo, update: Message) -> None:
        if self.gamma:
            silo.memory.of(self)["model"] = silo.model.read()
        given = silo.memory.get(DomainAdapters.name, {})
        if given:
            silo.model.eval()
            means = class_means(features_of(silo, silo.data.train), silo.task.classes)
            made = features_of(silo, Split(given["images"], given["labels"]))
            update.tensors[QUALITY] = torch.cat([quality(features, labels, means) for features, labels in made])
