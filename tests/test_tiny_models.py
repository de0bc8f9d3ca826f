"""The tiny backbones: how their training data is drawn and read, and, where they are shipped, the weights."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

PRETRAINING = Path(__file__).parents[1] / "pretraining"
if not PRETRAINING.is_dir():
    pytest.skip("the pretraining folder is not here", allow_module_level=True)
sys.path.insert(0, str(PRETRAINING))
import scenes  # noqa: E402
import shapes  # noqa: E402
import signs  # noqa: E402
import train  # noqa: E402

sys.path.remove(str(PRETRAINING))

CPU = torch.device("cpu")
SHIPPED = Path(str(files("fairsilo.models").joinpath("pretrained")))


@pytest.fixture(scope="module")
def digits() -> shapes.Bank:
    pieces = shapes.skeleton_pieces(signs.signs()[:10], 9, 0, CPU)
    return shapes.bank(pieces, 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("tokenizer")
    texts = [caption.text for some in signs.captions(signs.signs()) for caption in some]
    signs.write_tokenizer(target, texts)
    return target


# ---------------------------------------------------------------------------------------------------------- captions
def test_every_digit_has_the_prompts_used_downstream() -> None:
    found = signs.captions(signs.signs())
    for number, word in enumerate(signs.DIGITS):
        neutral = {caption.text for caption in found[number] if caption.style == -1}
        for name in (str(number), word, f"digit {number}", f"digit {word}"):
            assert {f"a photo of a {name}", f"a picture of a {name}", f"a photo of the {name}"} <= neutral
        assert f"a sketch of the digit {word}" in {caption.text for caption in found[number]}


def test_a_caption_covers_its_own_class_and_for_letters_both_cases() -> None:
    classes = signs.signs()
    keys = [sign.key for sign in classes]
    for number, some in enumerate(signs.captions(classes)):
        assert all(number in caption.covers for caption in some)
    letter = {caption.text: caption for caption in signs.captions(classes)[keys.index("B")]}
    assert letter["a photo of a b"].covers == {keys.index("B"), keys.index("b")}
    assert letter["a photo of a capital b"].covers == {keys.index("B")}


def test_merges_make_every_word_one_token() -> None:
    pairs = signs.merges(signs.Counter({"seven": 3, "even": 2}))
    assert "seven</w>" in {first + second for first, second in pairs}
    assert "even</w>" in {first + second for first, second in pairs}


def test_tokenizer_files_load_in_transformers(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    first, last = vocabulary[signs.BOS], vocabulary[signs.EOS]
    assert (first, last) == (len(vocabulary) - 2, len(vocabulary) - 1)
    found = tokenizer("a photo of a 7")["input_ids"]
    words = [vocabulary[f"{word}</w>"] for word in ("a", "photo", "of", "a", "7")]
    assert found == [first, *words, last]
    assert tokenizer("A Photo of a SEVEN")["input_ids"][-2] == vocabulary["seven</w>"]
    assert last not in tokenizer("größer, 123 unknownword!")["input_ids"][1:-1]
    assert tokenizer(["7", "a photo of a 7"], padding=True)["input_ids"][0][2:] == [last] * 5
    # transformers 4 reads these two instead of tokenizer.json
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#version")
    for line in lines[1:]:
        first_part, second_part = line.split(" ")
        assert first_part + second_part in vocabulary


def test_all_captions_leave_room_for_learned_context(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    classes = signs.signs()[:12]
    found = signs.library(classes, tokenizer)
    assert found.lengths.max() <= signs.POSITIONS - 16
    assert found.tokens.shape == (len(found.lengths), signs.POSITIONS)
    assert found.covers[found.neutral[3]][:, 3].all()
    assert (found.style[found.styled[:, 2]] == 2).all()


# ---------------------------------------------------------------------------------------------------------- training
@pytest.fixture(scope="module")
def reader(folder: Path) -> train.Reader:
    transformers: Any = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    return train.Reader(signs.signs()[:10], tokenizer, CPU, 0)


def test_a_caption_describes_images_of_its_class_and_style(reader: train.Reader) -> None:
    rows = torch.cat([reader.neutral[3, :1], reader.styled[3, 1, :1], reader.neutral[4, :1]])
    agree = reader.describes(rows, torch.tensor([3, 3, 4]), torch.tensor([0, 1, 1]))
    assert agree.tolist() == [[True, False, False], [True, True, False], [False, False, True]]


def test_filler_words_stand_between_the_start_and_the_caption(reader: train.Reader) -> None:
    rows = reader.draw()
    assert len(rows) == 50
    found, end = reader.written(rows), int(reader.tokens.max())
    moved = 0
    for row, tokens in zip(rows.tolist(), found.tolist(), strict=True):
        caption = reader.tokens[row, 1 : reader.lengths[row]].tolist()
        length = tokens.index(end) + 1
        assert tokens[0] == end - 1
        assert tokens[length - len(caption) : length] == caption
        assert set(tokens[1 : length - len(caption)]) <= set(reader.filler.tolist())
        moved += length > len(caption) + 1
    assert 0 < moved < 40


def test_the_loss_is_least_when_matches_are_alike() -> None:
    agree = torch.tensor([[True, True, False], [False, False, True]])
    good = train.matching_loss(20 * agree.float(), agree)
    assert good < train.matching_loss(torch.zeros(2, 3), agree) < train.matching_loss(-20 * agree.float(), agree)
    assert good == pytest.approx(np.log(2) / 4, abs=1e-3)  # two matches share the first image's weight


# ------------------------------------------------------------------------------------------------------------ shapes
def test_the_fonts_of_glyphs_are_refused() -> None:
    import matplotlib

    from fairsilo.data.glyphs import FONTS

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for name in (name for some in FONTS.values() for name in some):
        assert shapes.forbidden(folder / f"{name}.ttf"), name
    # The font of last resort holds no characters, only boxes.
    assert [path.name for path in shapes.font_files(folder) if "LastResort" not in path.name] == []


def test_the_drawing_code_takes_nothing_from_glyphs() -> None:
    for name in ("signs.py", "shapes.py", "scenes.py"):
        text = (PRETRAINING / name).read_text(encoding="utf-8")
        assert "import fairsilo" not in text
        assert "from fairsilo" not in text
        assert "sklearn" not in text
        assert "matplotlib" not in text


def test_skeletons_fill_their_square_and_differ(digits: shapes.Bank) -> None:
    assert digits.shapes.shape[1:] == (shapes.SIDE, shapes.SIDE)
    ink = digits.shapes.float() / 255
    assert (ink.mean((1, 2)) > 0.01).all()
    margin = (shapes.SIDE - shapes.FILL) // 2 - 3
    assert ink[:, :margin].max() == 0
    assert ink[:, :, :margin].max() == 0
    assert len(torch.unique(digits.shapes.flatten(1), dim=0)) == len(digits.shapes)


def test_skeletons_are_the_same_for_the_same_seed() -> None:
    one, two = (shapes.skeleton_pieces(signs.signs()[7:8], 8, 3, CPU) for _ in range(2))
    assert all(np.array_equal(first[0], second[0]) for first, second in zip(one, two, strict=True))


def test_every_skeleton_belongs_to_a_class_and_every_figure_can_be_drawn() -> None:
    assert set(shapes.SKELETONS) <= {sign.key for sign in signs.signs()}
    for name in signs.SHAPES:
        assert shapes.figure_shape(name, np.random.default_rng(0)).max() == 255


def test_a_class_without_shapes_is_an_error(digits: shapes.Bank) -> None:
    with pytest.raises(ValueError, match="class 1 has no shape"):
        shapes.bank([(digits.shapes[:2].numpy(), 0, shapes.TYPE)], 2)


# ------------------------------------------------------------------------------------------------------------ scenes
def test_images_have_256_levels_and_every_style(digits: shapes.Bank) -> None:
    images, labels, styles = scenes.Painter(digits, CPU, 0, digits_only=True).batch(60)
    assert images.shape == (60, 3, scenes.SIZE, scenes.SIZE)
    assert images.min() >= -1
    assert images.max() <= 1
    levels = (images + 1) * 127.5
    assert torch.allclose(levels, levels.round(), atol=1e-3)
    assert set(styles.tolist()) == set(range(len(signs.STYLES)))
    assert labels.max() < 10
    assert (images.flatten(1).std(1) > 0.01).float().mean() > 0.95


def test_images_depend_on_the_seed_alone(digits: shapes.Bank) -> None:
    one, two, other = (scenes.Painter(digits, CPU, seed, digits_only=True).batch(20)[0] for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("style", signs.STYLES)
def test_a_style_can_be_drawn_once(style: str, digits: shapes.Bank) -> None:
    images, labels = scenes.Painter(digits, CPU, 0, digits_only=True).styled(style, 1)
    assert images.isfinite().all()
    assert len(labels) == 1


# ------------------------------------------------------------------------------------------------ the shipped weights
def shipped(name: str) -> str:
    if not (SHIPPED / name / "model.safetensors").is_file():
        pytest.skip(f"no weights in {SHIPPED / name}; pretraining/README.md says how they are made")
    return str(SHIPPED / name)


def test_shipped_weights_are_small() -> None:
    folders = [Path(shipped(name)) for name in ("tiny-clip", "tiny-vit")]
    assert sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()) < 4_000_000


def glyph_images() -> tuple[torch.Tensor, torch.Tensor]:
    from fairsilo.data.glyphs import glyphs

    domains = glyphs(per_domain=100).domains.values()
    images = torch.cat([domain.inputs for domain in domains]).float() / 127.5 - 1
    return images, torch.cat([domain.targets for domain in domains])


def test_shipped_clip_names_digits_unseen() -> None:
    folder = shipped("tiny-clip")
    transformers: Any = pytest.importorskip("transformers")
    clip = transformers.CLIPModel.from_pretrained(folder).float().eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert clip.config.text_config.max_position_embeddings == signs.POSITIONS
    images, labels = glyph_images()
    tokens = tokenizer([f"a photo of a {n}" for n in range(10)], padding=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        seen = clip.visual_projection(clip.vision_model(pixel_values=images).pooler_output)
        read = clip.text_projection(clip.text_model(input_ids=tokens).pooler_output)
    found = (seen @ torch.nn.functional.normalize(read, dim=1).T).argmax(1)
    assert (found == labels).float().mean() > 0.4


def test_shipped_vit_separates_digits() -> None:
    folder = shipped("tiny-vit")
    transformers: Any = pytest.importorskip("transformers")
    vit = transformers.ViTModel.from_pretrained(folder, add_pooling_layer=False).float().eval()
    images, labels = glyph_images()
    with torch.no_grad():
        features = vit(pixel_values=images).last_hidden_state[:, 0]
    # The class means of one half name the other half.
    means = torch.stack([features[::2][labels[::2] == n].mean(0) for n in range(10)])
    found = torch.cdist(features[1::2], means).argmin(1)
    assert (found == labels[1::2]).float().mean() > 0.4
