"""Anonymised clustering of silos (FedGCR, AAAI 2024): the server finds types of silos by what their images look like.

A Gaussian mixture over the silos' representations; nobody says which domain it has, only how many there are may be
known. A silo that sits a round out is clustered by its last representation. Clusters keep their numbers from round to
round as far as their members do.
Under the model that all received (`under=received`, as released) representations differ by the data alone. Under the
local models (`under=local`, Algorithm 1 of the paper) they also tell how far each was trained, and clusters may follow
that instead (docs/reproduction.md has numbers).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch

from fairsilo.core.attachments import EACH_UPDATE, Sends
from fairsilo.core.messages import Message
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.core.silo import Silo
from fairsilo.fields import setting
from fairsilo.methods.representations import Known, centres_of, mixture, renumbered, representation

WORDS = "the mean over its classes of their mean representation (one vector)"
CENTRES = "to each silo the clusters' mean representations, and which cluster is its own"
CLUSTERS = "clusters"  # at the server a fact: silo -> cluster; at a silo, in its scratch, what it knows of them


@dataclass(frozen=True)
class Clustering(Part):
    """h~_k = mean over classes of the class means of h; clusters t(k) of these, their centres H_t the members' mean."""

    name = "clustering"
    about = About(
        paper="Cheng et al., FedGCR: Federated Learning with Distinct Client Types, AAAI 2024",
        formula="h~_k = mean_c mean_(x in class c) h(x);  t = GMM({h~_k});  H_t = mean of h~_k over cluster t",
        sends=(
            Sends("clustering.representation", WORDS, ("features",)),
            Sends("clustering.centres", CENTRES, ("clusters", "features"), to="silos"),
            EACH_UPDATE,
        ),
        keeps=("its last mean representation at the silo", "the silos' last ones and clusters at the server"),
    )
    needs = frozenset({"classification", "features"})

    clusters: int = setting(0, "how many types of silos are looked for; 0: as many as silos have domains", low=0)
    covariance: str = setting("diag", "shape of a cluster", choices=("diag", "spherical", "tied", "full"))
    reg_covar: float = setting(1e-3, "added to the variances, as a share of their mean over all silos", low=1e-9)
    max_batches: int = setting(0, "batches the representation is made from; 0: all training data", low=0)
    under: str = setting(
        "received", "model that represents: as received, or local, after training", choices=("received", "local")
    )
    variant: str = setting(
        "paper", "released: from three batches, under the received model", choices=("paper", "released")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant == "released":
            object.__setattr__(self, "under", "received")
            object.__setattr__(self, "max_batches", self.max_batches or 3)

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        memory = server.memory.of(self)
        if silo in memory.get("clusters", {}):
            message.tensors[f"{self.name}.centres"] = memory["centres"]
            message.numbers[f"{self.name}.own"] = memory["clusters"][silo]
        return message

    def begin(self, silo: Silo) -> None:
        centres, previous = silo.message.tensors.get(f"{self.name}.centres"), silo.memory.of(self).get("representation")
        if centres is not None and previous is not None:
            centres, previous = silo.hold("cluster.centres", centres), silo.hold("cluster.previous", previous)
            own = silo.hold("cluster.own", torch.tensor(int(silo.message.numbers[f"{self.name}.own"])))
            silo.scratch[CLUSTERS] = Known(centres, own, previous)
        if self.under == "received":
            silo.scratch[self.name] = representation(silo, self.max_batches)

    def finish(self, silo: Silo, update: Message) -> None:
        found = silo.scratch[self.name] if self.under == "received" else representation(silo, self.max_batches)
        silo.memory.of(self)["representation"] = update.tensors[f"{self.name}.representation"] = found

    def collect(self, server: Server, updates: Updates) -> Updates:
        memory = server.memory.of(self)
        rows = dict(memory.get("representations", {}))
        for name, message in zip(updates.silos, updates.messages, strict=True):
            rows[name] = message.tensors[f"{self.name}.representation"]
        matrix = torch.stack(list(rows.values()))
        seed = server.stream(self.name).initial_seed() % 2**32
        labels = mixture(
            matrix.double().cpu().numpy(), self.clusters or server.domains, self.covariance, self.reg_covar, seed
        )
        clusters = renumbered(dict(zip(rows, labels, strict=True)), memory.get("clusters", {}))
        numbers = torch.tensor([clusters[name] for name in rows], device=matrix.device)
        memory.update(
            representations=rows, clusters=clusters, centres=centres_of(matrix, numbers, memory.get("centres"))
        )
        server.facts[CLUSTERS] = clusters
        server.note(f"clusters of {', '.join(map(str, sorted(Counter(labels).values(), reverse=True)))} silos")
        return updates
