"""The golden rules of FedGCR: `RULES` joins those of check.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.method import Method
from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.core.samples import Split
from fairsilo.core.server import Server, Updates
from fairsilo.core.vectors import PARAMETER, Layout, Slot
from fairsilo.methods.contrasts import feature_contrast, group_contrast
from fairsilo.methods.loss_weights import cluster_losses, group_weights, influence, quantised
from fairsilo.methods.parts.clustering import CLUSTERS
from fairsilo.methods.parts.group_prompts import GroupPrompts
from fairsilo.methods.parts.group_weights import GroupWeights
from fairsilo.methods.received_loss import KEY
from fairsilo.methods.representations import Known, centres_of, representation
from fairsilo.tasks.classify import Classify

Case = dict[str, Any]
Pairs = Iterator[tuple[str, Any, Any]]  # what, got, expected
MANY = 10**12  # shares of the cases as numbers of samples


def number(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


@dataclass(frozen=True)
class Given(Part):
    """In the place of the clustering: clusters as the case has them."""

    name = "clustering"
    about = About(sends=(EACH_UPDATE,))

    clusters: str = ""

    def collect(self, server: Server, updates: Updates) -> Updates:
        numbers = map(int, self.clusters.split())
        server.facts[CLUSTERS] = dict(zip(server.names, numbers, strict=True))
        return updates


def rounds_weights(given: Case, losses: list[float], index: int, **settings: Any) -> Any:
    """A whole round of FedGR with the case's clusters and losses; its local models, where it has some."""
    from check import Rounds, flat_layout

    how = Method((Given(clusters=" ".join(map(str, given["clusters"]))), GroupWeights(**settings)), "fedgr")
    layout, start = flat_layout(1), number([0.0])
    deltas = [start] * len(losses)
    if "locals" in given:
        trained = [key for key in given["server_before"] if not key.startswith("frozen")]
        slots = (Slot(key, tuple(number(given["server_before"][key]).shape), PARAMETER) for key in trained)
        layout = Layout(slots, torch.float64)
        start, *local = (
            layout.pack({key: number(state[key]) for key in trained})
            for state in (given["server_before"], *given["locals"])
        )
        deltas = [one - start for one in local]
    run = Rounds(how, layout, start, len(losses), TrainSettings(rounds=max(index, 1)))
    run.server.round = index - 1
    run.close(deltas, [{KEY: loss} for loss in losses], samples=[round(share * MANY) for share in given["p"]])
    return run


def fedgcr_reweight_released(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    round_ = given["round_index_from_0"] + 1
    shares, clusters = number(given["p"]), torch.tensor(given["clusters"])
    losses = quantised(number(given["post_aggregation_train_loss"]))
    yield "quantised losses", losses, expected["quantised_loss"]
    beta = influence(round_, given["delta"], given["gamma_code"], released=True)
    yield "beta", beta, expected["beta"]
    means = cluster_losses(losses, clusters, shares)
    yield "cluster losses", means, [expected["cluster_loss"][cluster] for cluster in given["clusters"]]
    yield "weights", group_weights(shares, losses, clusters, beta, given["q"], weighted=True), expected["weights"]
    run = rounds_weights(
        given, losses.tolist(), round_, q=given["q"], delta=given["delta"], variant="released", loss_source="received"
    )
    yield "weights of a round", run.weights(), expected["weights"]
    for key, tensor in run.server.layout.views(run.server.vector).items():
        yield key, tensor, expected["new_server"][key]
    rows, used = number(given["cluster_inputs_first8"]), sorted(set(given["clusters"]))
    centres = centres_of(rows, clusters, rows.new_zeros(given["num_clusters"], rows.shape[1]))
    yield "centres", centres[used], number(expected["cluster_centres_first8"])[used]


def fedgcr_reweight_paper(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    shares, losses, clusters = number(given["p"]), number(given["losses"]), torch.tensor(given["clusters"])
    beta = influence(given["round_from_1"], given["delta"], given["gamma"])
    yield "beta", beta, expected["beta"]
    means = cluster_losses(losses, clusters, torch.ones_like(losses))
    yield "cluster losses", means, [expected["cluster_loss_plain_mean"][cluster] for cluster in given["clusters"]]
    found = group_weights(shares, losses, clusters, beta, given["q"])
    yield "weights", found, expected["weights_normalised"]
    settings = {key: given[key] for key in ("q", "delta", "gamma")}
    run = rounds_weights(given, given["losses"], given["round_from_1"], **settings)
    yield "weights of a round", run.weights(), expected["weights_normalised"]


def fedgcr_losses(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    logits, z, h = (number(given[key]) for key in ("logits", "z", "h"))
    received, previous = number(given["z_global"]), number(given["z_prev"])
    known = Known(number(given["cluster_centres"]), torch.tensor(given["own_cluster"]), number(given["h_prev_mean"]))
    output, tau = Output(logits, z, {"h": h}), given["tau"]
    ce = F.cross_entropy(logits, torch.tensor(given["labels"]))
    yield "ce", ce, expected["ce"]
    yield "GC, cosine", group_contrast(h, known, tau, "cosine").mean(), expected["gc_cosine_mean"]
    alike = feature_contrast(z, received, previous, 1.0, "cosine").mean()
    yield "RA, cosine", alike, expected["ra_cosine_no_temperature_mean"]
    yield "GC", group_contrast(h, known, tau, "dot"), expected["paper_gc_per_sample"]
    yield "RA", feature_contrast(z, received, previous, tau, "dot"), expected["paper_ra_per_sample"]
    released = GroupPrompts(variant="released", temperature=tau)
    terms = released.terms(output, known, received, previous, given["iter_ratio"])
    yield "released", ce + terms, expected["total_released"]
    weights = {"gc_weight": given["lambda1"], "ra_weight": given["lambda2"]}
    paper = GroupPrompts(similarity="dot", temperature=tau, **weights)
    yield "paper", ce + paper.terms(output, known, received, previous, given["iter_ratio"]), expected["paper_total"]


class Prompts(nn.Module):
    """A network whose prompts are its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Output:
        return Output(inputs, None, {"h": inputs})


def fedgcr_client_representation(case: Case) -> Pairs:
    from check import lone_silo

    given, expected = case["inputs"], case["outputs"]
    for key, count in (("released_first_3_batches", 3), ("paper_all_data", len(given["h_batches"]))):
        inputs = torch.cat([number(batch) for batch in given["h_batches"][:count]])
        targets = torch.tensor([label for batch in given["labels_batches"][:count] for label in batch])
        task = Classify(int(targets.max()) + 2)  # a class that nobody has changes nothing
        silo = lone_silo(Method(), Prompts(), Split(inputs, targets), TrainSettings(), task)
        yield key, representation(silo), expected[key]
        silo.evaluation_batch = 2
        yield f"{key}, in small batches", representation(silo), expected[key]


RULES: dict[str, Callable[[Case], Pairs]] = {
    rule.__name__: rule
    for rule in (fedgcr_reweight_released, fedgcr_reweight_paper, fedgcr_losses, fedgcr_client_representation)
}
