"""What figures are called and what they show, in the order in which pages have them."""

from __future__ import annotations

from typing import NamedTuple

from fairsilo.errors import FairsiloError, nearest


class Caption(NamedTuple):
    """A title, and sentences below."""

    title: str
    about: str


CAPTIONS: dict[str, Caption] = {
    "gap-variance": Caption(
        "How unequal the generalisation gaps are",
        "Population variance over silos of the gap between the loss of the aggregated and of the silo's own model on "
        "its validation data, for three ways to aggregate the same local models (FFT-GP, Fig. 6; its equation 6 is "
        "2 M² times this).",
    ),
    "weight-gap": Caption(
        "How a silo's gap answers to its weight",
        "Change of a silo's generalisation gap against the change of its aggregation weight when GA perturbs the "
        "weights of the same local models, one mark per round, with the least-squares line and Pearson's ρ of each "
        "silo (FFT-GP, Fig. 2).",
    ),
    "a-distance": Caption(
        "How far local features move away from global ones",
        "Proxy A-distance 2 (1 − 2 error) of a linear classifier that tells the features of the global model the silo "
        "was sent from those of its trained model, on the silo's own data (GRACE, Fig. 2a).",
    ),
    "t-sne": Caption(
        "Features in and out of domain",
        "One t-SNE map of the features of the global model and of each local model, on the data of the silos and of "
        "the unseen domain (FFT-GP, Fig. 7; GRACE, Fig. 2b).",
    ),
    "loss-surface": Caption(
        "The loss between the global and two local models",
        "Loss on the unseen domain over the plane through the global model and the local models of two silos; the "
        "numbers are the losses of these three (FFT-GP, Fig. 5).",
    ),
    "update-consistency": Caption(
        "How steadily silos push parameters one way",
        "Share of the parameters of one tensor by how consistently a silo's training raised or lowered them over "
        "rounds, beside what coin tosses would give (FedHEAL, Fig. 2).",
    ),
    "attention": Caption(
        "Whose adapters answer for each domain",
        "Attention between the silos' adapters when all of them answer, as they do for an unseen domain: the mean over "
        "the test images of each domain (FedAG, Fig. 6, which shows single images).",
    ),
}


def refuse_unknown(name: str) -> None:
    if name not in CAPTIONS:
        raise FairsiloError(f"no figure is named {name!r}{nearest(name, CAPTIONS)}")
