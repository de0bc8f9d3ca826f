"""SigLIP where CLIP is: the features of `transformers`, contexts in their place, methods that train around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
from fairsilo.api import run
from fairsilo.errors import FairsiloError
from fairsilo.models.backbones import backbone_network, similarities
from fairsilo.models.siglip import SiglipNetwork
from tiny_backbones import enlarged, write_siglip

NAMES = ("cat", "alarm_clock", "dog")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_siglip(tmp_path_factory.mktemp("siglip"))


@pytest.fixture
def network(folder: Path) -> SiglipNetwork:
    made = backbone_network(f"siglip:{folder}", 3)
    assert isinstance(made, SiglipNetwork)
    return made


def tensor_of(output: Any) -> torch.Tensor:
    """Of some versions of `transformers` an output, of others its tensor."""
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def test_features_are_those_of_transformers(network: SiglipNetwork) -> None:
    images = 2 * torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(1)) - 1
    wanted = tensor_of(network.pretrained.get_image_features(pixel_values=images))
    torch.testing.assert_close(network.images(images), wanted)
    tokens = network.tokens(NAMES)
    assert tokens.shape == (3, 24)  # padded to the full length, whatever the texts
    torch.testing.assert_close(network.encode(tokens), tensor_of(network.pretrained.get_text_features(tokens)))
    assert network.width == 16


def test_its_choice_is_siglips_own(network: SiglipNetwork) -> None:
    images = 2 * torch.rand(9, 3, 8, 8, generator=torch.Generator().manual_seed(2)) - 1
    texts = network.prompts(NAMES)
    tokens = network.tokens([f"a photo of a {name}" for name in NAMES])
    own = network.pretrained(input_ids=tokens, pixel_values=images).logits_per_image
    ours = similarities(network.images(images), texts, network.scale)
    torch.testing.assert_close(ours, own - network.pretrained.logit_bias, rtol=1e-4, atol=1e-4)


def test_underscores_between_words_are_spaces(network: SiglipNetwork) -> None:
    assert torch.equal(network.tokens(["alarm_clock"]), network.tokens(["alarm clock"]))


def test_a_context_stands_before_the_text(network: SiglipNetwork) -> None:
    """With the embedded letters of a text as its context, a name is read as that text and the name."""
    embedding = network.pretrained.text_model.embeddings.token_embedding
    letters = network.tokens(["xy"])[0, :2]
    with_context = network.encode(network.tokens(["cat"], context=2), embedding(letters).detach())
    torch.testing.assert_close(with_context, network.encode(network.tokens(["xycat"])))
    other = network.encode(network.tokens(["cat"], context=2), embedding(letters.flip(0)).detach())
    assert not torch.allclose(with_context, other)


def test_a_text_that_is_too_long_is_named(network: SiglipNetwork) -> None:
    with pytest.raises(FairsiloError, match=r"a context of 10 has 25 tokens, and the text encoder takes at most 24"):
        network.tokens(["x" * 15], context=10)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    written = write_siglip(tmp_path / "without")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (written / name).unlink()
    network = backbone_network(f"siglip:{written}", 3)
    with pytest.raises(FairsiloError, match="the tokenizer of siglip:"):
        network.tokens(["cat"])


@pytest.mark.parametrize("how", ["clip-zero-shot", "fedclip", "promptfl"])
def test_what_is_built_around_clip_runs_on_it(how: str, folder: Path, tmp_path: Path) -> None:
    found = run(
        method=how,
        federation=enlarged(tiny.federation()),
        model=f"siglip:{folder}",
        train={"rounds": 1, "epochs": 1, "lr": 0.01},
        engine={"name": "sequential"},
        out=tmp_path / "run",
    )
    assert found.summary["generalisation"]["mean"] is not None
