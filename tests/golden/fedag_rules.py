"""The golden cases of FedAG: the server's losses, and what a silo starts from and says of its synthetic images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.methods.class_means import class_means, quality
from fairsilo.methods.infusion import divergence, momentum_start, server_losses
from fairsilo.models.clip_networks import AdapterBank, mixed

Case = dict[str, Any]
Pairs = Iterator[tuple[str, Any, Any]]  # what, got, expected


def number(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def fedag_bank(given: Case, as_printed: bool) -> AdapterBank:
    """The server's network with the case's weights; of CLIP it needs the width and the scale alone."""
    texts = number(given["text_features"])
    clip: Any = SimpleNamespace(width=texts.shape[1], scale=number(given["logit_scale_for_normalised"]))
    texts = texts if as_printed else F.normalize(texts, dim=1)  # as CLIP gives them
    bank = AdapterBank(clip, texts, len(given["adapters"]), as_printed=as_printed).double()
    state = {"mixer.weight": number([given["attention_mlp"]["w"]]), "mixer.bias": number([given["attention_mlp"]["b"]])}
    for index, adapter in enumerate(given["adapters"]):
        for layer, weight, bias in ((0, "W2", "b2"), (2, "W1", "b1")):
            state[f"adapters.{index}.{layer}.weight"] = number(adapter[weight])
            state[f"adapters.{index}.{layer}.bias"] = number(adapter[bias])
    state["route"] = number([-1])
    bank.load_state_dict(state)
    return bank


def fedag_server_losses(case: Case) -> Pairs:
    given = case["inputs"]
    images, own, labels = number(given["image_features"]), given["own_domain"], torch.tensor(given["labels"])
    client, scores = number(given["client_logits"]), number(given["quality"])
    for key, as_printed in (("as_printed", True), ("normalised_scale100", False)):
        expected, bank = case["outputs"][key], fedag_bank(given, as_printed)
        phi = bank.logits(bank.adapted(images))
        beta = bank.attend(phi)
        yield f"{key} phi", phi.detach(), expected["phi_all"]
        yield f"{key} beta", beta.detach(), expected["beta"]
        yield f"{key} eta", mixed(beta, phi).detach(), expected["eta"]
        yield f"{key} answer", bank.tail(images).prediction.detach(), expected["eta"]
        bank.load_state_dict({**bank.state_dict(), "route": number([own])})
        yield f"{key} own answer", bank.tail(images).prediction.detach(), expected["phi_all"][own]
        yield f"{key} KL(theta||phi)", divergence(client, phi[own]).detach(), expected["kl_theta_phi"]
        yield f"{key} KL(phi||theta)", divergence(phi[own], client).detach(), expected["kl_phi_theta"]
        for reduction in ("sum", "mean"):
            found = server_losses(phi, beta, own, labels, client, scores, given["lambda"], given["delta"], reduction)
            yield f"{key} J", found.mutual.detach(), expected["J"]
            yield f"{key} CE inside", found.inside.detach(), expected["ce_in"]
            yield f"{key} CE across", found.across.detach(), expected["ce_cross"]
            yield f"{key} R", found.lead.detach(), expected["regulariser"]
            yield f"{key} G {reduction}", found.total.detach(), expected[f"G_{reduction}_over_samples"]


def fedag_client(case: Case) -> Pairs:
    given, expected = case["inputs"], case["outputs"]
    start = momentum_start(number(given["W_prev"]), number(given["W_hat"]), given["gamma"])
    yield "start", start, expected["W_init"]
    features, labels = number(given["real_features"]), torch.tensor(given["real_labels"])
    halves = [(features[:3], labels[:3]), (features[3:], labels[3:])]  # prototypes come from batches
    means = class_means(halves, len(expected["prototypes"]))
    yield "prototypes", means, expected["prototypes"]
    made = number(given["synthetic_features"]), torch.tensor(given["synthetic_labels"])
    yield "quality", quality(*made, means), expected["quality"]


RULES: dict[str, Callable[[Case], Pairs]] = {
    "fedag_server_losses": fedag_server_losses,
    "fedag_client": fedag_client,
}
