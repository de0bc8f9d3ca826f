"""What synthetic images teach: FedAG's adapter of each silo, trained on them alone, reads the silo's real images.

    python benchmarks/teaching.py ["diffusion:tiny;learn=150;guidance=2"] [--share 0.5] [--seed 0]

Real images are the silos' training images; no validation or test image is looked at. Beside it the same adapter
trained on as many real images and tested on the others: what there was to learn.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo import config
from fairsilo.core import streams
from fairsilo.core.pixels import Pixels
from fairsilo.core.samples import Split
from fairsilo.data.diffusion import Generator, learned_word
from fairsilo.data.synthetic import make_synthetic
from fairsilo.models.backbones import TEMPLATE, ClipNetwork, similarities
from fairsilo.models.clip_networks import AdapterBank, adapter_bank
from fairsilo.models.registry import build
from fairsilo.runs.setup import federation_of

EPOCHS = 35  # as many as FedAG's server makes in ten rounds: 5, and 3 a round
RATES = (1e-4, 1e-3)


def trained(clip: ClipNetwork, classes: tuple[str, ...], features: Tensor, labels: Tensor, rate: float) -> AdapterBank:
    with streams.ambient(0, "teaching"):
        bank = adapter_bank(clip, classes, TEMPLATE, 1, False, False)
    optimizer = torch.optim.Adam(bank.adapters.parameters(), rate)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(labels), generator=streams.generator(0, "teaching", epoch))
        for some in torch.split(order, 32):
            optimizer.zero_grad()
            F.cross_entropy(bank.logits(bank.adapted(features[some]))[0], labels[some]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return bank


def right(answers: Tensor, labels: Tensor) -> float:
    return 100 * float((answers.argmax(1) == labels).double().mean())


@torch.no_grad()
def read(bank: AdapterBank, features: Tensor, labels: Tensor) -> float:
    return right(bank.logits(bank.adapted(features))[0], labels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", nargs="?", default="diffusion:tiny;learn=150", help="as data.synthetic has it")
    parser.add_argument("--share", type=float, default=0.1, help="synthetic images, of the silo's number")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    data = {"name": "glyphs", "held_out": "street+photo"}
    people = federation_of(config.experiment({"method": "fedag", "data": data, "seed": given.seed}))
    classes = people.roster.classes

    def words() -> dict[str, Tensor]:
        generator = Generator.of(given.source.removeprefix("diffusion:"))
        return {one.name: learned_word(generator, one.train, classes, given.seed, one.name) for one in people.silos}

    made = make_synthetic(given.source, people.roster, given.share, 0.0, given.seed, words=words)
    clip = build("tiny-clip", len(classes), 3, seed=0)
    assert isinstance(clip, ClipNetwork)
    bank, pixels = adapter_bank(clip, classes, TEMPLATE, 1, False, False), Pixels.of(clip)

    @torch.no_grad()
    def seen(split: Split) -> tuple[Tensor, Tensor]:
        images, labels = split.take(range(len(split)))
        return bank.stem_in_blocks(pixels.from_unit(images.float() / 255)), labels

    for silo in people.silos:
        (real, labels), (drawn, asked) = seen(silo.train), seen(made[silo.name])
        order = torch.randperm(len(labels), generator=streams.generator(given.seed, "teaching", silo.name))
        some, others = order[: len(asked)], order[len(asked) :]
        alone = [right(similarities(images, bank.get_buffer("texts"), clip.scale), of)
                 for images, of in ((drawn, asked), (real, labels))]  # fmt: skip
        print(
            f"{silo.name}: CLIP alone reads {alone[0]:.1f} % of {len(asked)} synthetic, {alone[1]:.1f} % of real images"
        )
        for rate in RATES:
            by_drawn = read(trained(clip, classes, drawn, asked, rate), real, labels)
            by_real = read(trained(clip, classes, real[some], labels[some], rate), real[others], labels[others])
            print(f"  at {rate:g}, real images: {by_drawn:.1f} % after synthetic, {by_real:.1f} % after real ones")


if __name__ == "__main__":
    main()
