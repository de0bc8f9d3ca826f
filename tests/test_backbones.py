"""Networks on frozen backbones: loading, what is trained and sent, kept features, and the methods around them."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tiny
import tiny_backbones
from fairsilo.core.arithmetic import Arithmetic
from fairsilo.core.samples import Split
from fairsilo.core.silo import prepare
from fairsilo.data.federation import Federation, pooled
from fairsilo.engine.base import Engine
from fairsilo.engine.events import Event
from fairsilo.engine.features import Prepared, Shelf, keep_features
from fairsilo.engine.host import Blueprint
from fairsilo.engine.loop import History, Loop
from fairsilo.engine.processes import Pool, Processes
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import FairsiloError
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.methods.contrasts import contrastive
from fairsilo.methods.parts.server_tuning import ServerTuning
from fairsilo.methods.text import method
from fairsilo.models import backbones
from fairsilo.models.backbones import Backbone, ClipNetwork, VitNetwork, backbone_network
from fairsilo.models.clip_networks import PromptedClip, emulated
from fairsilo.models.vit_networks import PromptedVit
from fairsilo.runs.saved import SavedRun

SHIPPED_CLIP = Path(backbones.__file__).parent / "pretrained" / "tiny-clip"
SHORT = dataclasses.replace(tiny.TRAINING, rounds=2)


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Kind -> model setting of a random backbone for 8 x 8 images."""
    folder = tmp_path_factory.mktemp("backbones")
    clip, vit = tiny_backbones.write_clip(folder / "clip"), tiny_backbones.write_vit(folder / "vit")
    deep, resnet = tiny_backbones.write_clip(folder / "deep", layers=6), tiny_backbones.write_resnet(folder / "r")
    return {"clip": f"clip:{clip}", "deep": f"clip:{deep}", "vit": f"vit:{vit}", "resnet": f"resnet:{resnet}"}


@pytest.fixture(scope="session")
def people8() -> Federation:
    return tiny_backbones.enlarged(tiny.federation())


def images(people: Federation) -> Tensor:
    return prepare(people["a"].train.inputs, torch.device("cpu"), torch.float32)


def run(
    how: str,
    model: str,
    people: Federation,
    *,
    keep: bool = True,
    folder: Path | None = None,
    listener: Any = None,
    pool: Pool | None = None,
    training: Any = SHORT,
    **more: Any,
) -> tuple[History, Loop, Prepared]:
    plan = tiny.plan(how, training, model=model)
    ready = keep_features(plan, people, tiny_backbones.enlarged(tiny.federation())["a"].train, wanted=keep, **more)
    engine: Engine
    if pool:
        engine = Processes(ready.plan, ready.federation, pool, folder=folder)
    else:
        engine = Sequential(ready.plan, ready.federation, listener is None, folder)
    run_folder = SavedRun(folder) if folder else None
    if run_folder:
        run_folder.create()
    extra = {"listener": listener} if listener else {}
    loop = Loop(ready.plan, ready.federation.roster, engine, records=run_folder, server_data=ready.server_data, **extra)
    return loop.run(), loop, ready


# ------------------------------------------------------------------------------------------------------------- loading
def test_checkpoints_in_the_hubs_format_load(places: dict[str, str], people8: Federation) -> None:
    import transformers

    x = images(people8)
    vit = backbone_network(places["vit"], 3)
    assert isinstance(vit, VitNetwork)
    own = transformers.ViTModel.from_pretrained(places["vit"].removeprefix("vit:"), add_pooling_layer=False).eval()
    torch.testing.assert_close(vit.token(x), own(x).last_hidden_state[:, 0])
    clip = backbone_network(places["clip"], 3)
    assert isinstance(clip, ClipNetwork)
    whole = transformers.CLIPModel.from_pretrained(places["clip"].removeprefix("clip:")).eval()
    tokens = clip.tokens(["a photo of a cat"])
    with torch.no_grad():
        found = whole(input_ids=tokens, pixel_values=x)
    torch.testing.assert_close(F.normalize(clip.images(x), dim=1), found.image_embeds)
    torch.testing.assert_close(F.normalize(clip.encode(tokens), dim=1), found.text_embeds)
    assert backbone_network(places["resnet"], 3)(x).prediction.shape == (24, 3)


def test_images_are_normalised_as_the_weights_were_trained(places: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "vit"
    shutil.copytree(places["vit"].removeprefix("vit:"), folder)
    (folder / "preprocessor_config.json").write_text('{"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.25, 0.3]}')
    vit = backbone_network(f"vit:{folder}", 3)
    assert isinstance(vit, VitNetwork)
    x = torch.rand(2, 3, 8, 8)
    mean, deviation = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1), torch.tensor([0.2, 0.25, 0.3]).view(1, 3, 1, 1)
    torch.testing.assert_close(vit.pixels(2 * x - 1), (x - mean) / deviation)


def changed(place: str, folder: Path, *without: str) -> Path:
    """A copy of a backbone to be spoilt, without some of its files."""
    shutil.copytree(place.partition(":")[2], folder, ignore=shutil.ignore_patterns(*without))
    return folder


def set_config(folder: Path, tower: str | None = None, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (config[tower] if tower else config).update(values)
    (folder / "config.json").write_text(json.dumps(config))


def test_normalisation_is_found_where_whole_processors_are_saved(places: dict[str, str], tmp_path: Path) -> None:
    folder = changed(places["clip"], tmp_path / "clip")
    tiny_backbones.write_pixels(folder, 0.1, 0.2)
    nested = {"image_processor": {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.25, 0.3]}}
    (folder / "processor_config.json").write_text(json.dumps(nested))
    assert backbones._pixels("clip", str(folder)) == ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    flat = changed(places["clip"], tmp_path / "flat")
    (flat / "processor_config.json").write_text('{"processor_class": "CLIPProcessor"}')  # as older versions wrote it
    assert backbones._pixels("clip", str(flat)) == (3 * (0.5,), 3 * (0.5,))
    (flat / "processor_config.json").write_text("version https://git-lfs.github.com/spec/v1")
    backbones._pixels.cache_clear()
    assert "the processor_config.json of the backbone" in refused(f"clip:{flat}")


@pytest.mark.parametrize(
    ("kind", "mean", "deviation"),
    [
        ("clip", (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
        ("vit", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ("resnet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ],
)
def test_where_nothing_says_images_are_normalised_as_is_usual_for_the_kind(
    kind: str, mean: tuple[float, ...], deviation: tuple[float, ...], places: dict[str, str], tmp_path: Path
) -> None:
    folder = changed(places[kind], tmp_path / kind, "preprocessor_config.json")
    network = backbone_network(f"{kind}:{folder}", 3)
    assert isinstance(network, Backbone)
    x = torch.rand(2, 3, 8, 8)
    expected = (x - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(deviation).view(1, 3, 1, 1)
    torch.testing.assert_close(network.pixels(2 * x - 1), expected)


def refused(name: str) -> str:
    with pytest.raises(FairsiloError) as problem:
        backbone_network(name, 3)
    return str(problem.value)


def test_missing_weights_are_one_sentence(places: dict[str, str], tmp_path: Path) -> None:
    assert "there is no folder" in refused(f"vit:{tmp_path / 'nowhere'}")
    assert "there is no folder 'nowhere'" in refused("clip:nowhere")
    shutil.copytree(
        places["vit"].removeprefix("vit:"), tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors")
    )
    assert "cannot be loaded" in refused(f"vit:{tmp_path / 'bare'}")
    assert "names no weights" in refused("clip:")
    assert "\n" not in refused(f"vit:{tmp_path / 'bare'}")


def test_weights_that_lack_tensors_are_refused(places: dict[str, str], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "holes"
    shutil.copytree(places["vit"].removeprefix("vit:"), folder)
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(next(name for name in tensors if "layernorm.weight" in name))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert "lack 1 tensors, such as layernorm.weight" in refused(f"vit:{folder}")


LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), "cannot be loaded: SafetensorError: "),
        (lambda file: file.write_text(LFS_POINTER), "cannot be loaded: SafetensorError: "),
        (lambda file: file.rename(file.with_name("pytorch_model.bin")), "are in pytorch_model.bin, which may run code"),
        (lambda file: file.write_text(""), "cannot be loaded: SafetensorError: "),
        (lambda file: set_config(file.parent, hidden_size=32), "tensors differ, such as embeddings.cls_token"),
        (lambda file: set_config(file.parent, hidden_size="wide"), "cannot be loaded: "),
        (lambda file: file.with_name("config.json").write_text("[]"), "cannot be loaded: "),
    ],
    ids=["cut short", "pointer", "pickled", "empty", "another width", "no width", "no config"],
)
def test_damaged_weights_are_one_sentence(
    spoil: Callable[[Path], object], sentence: str, places: dict[str, str], tmp_path: Path
) -> None:
    folder = changed(places["vit"], tmp_path / "vit")
    spoil(folder / "model.safetensors")
    with pytest.raises(FairsiloError, match=sentence) as problem:
        backbone_network(f"vit:{folder}", 3)
    assert str(problem.value).startswith(f"the weights of the backbone vit:{folder} ")
    assert "\n" not in str(problem.value)


def write_foreign_vocabulary(folder: Path) -> None:
    """As many tokens as there were, and the same end, but none for our letters."""
    vocabulary = json.loads((folder / "vocab.json").read_text())
    foreign = {token if "text|>" in token else chr(0x4E00 + number): number for token, number in vocabulary.items()}
    (folder / "vocab.json").write_text(json.dumps(foreign))


@pytest.mark.parametrize(
    ("without", "spoil", "reason"),
    [
        (["vocab.json", "merges.txt", "*token*"], None, "it has 2 tokens, and the text encoder 190"),
        (["vocab.json", "merges.txt"], None, "it has 2 tokens, and the text encoder 190"),
        (
            ["vocab.json", "merges.txt", "*token*"],
            lambda folder: [
                shutil.copy(file, folder) for file in (SHIPPED_CLIP / "vocab.json", SHIPPED_CLIP / "merges.txt")
            ],
            "it has 806 tokens, and the text encoder 190",
        ),
        ([], write_foreign_vocabulary, "'cat' and 'dog' are the same to it"),
        (
            [],
            lambda folder: set_config(folder, "text_config", eos_token_id=7),
            "its texts do not end as those of the text encoder",
        ),
    ],
    ids=["no files", "no vocabulary", "too large", "same words", "another end"],
)
def test_a_tokenizer_that_is_not_the_weights_own_is_refused(
    without: list[str], spoil: Callable[[Path], object] | None, reason: str, places: dict[str, str], tmp_path: Path
) -> None:
    folder = changed(places["clip"], tmp_path / "clip", *without)
    if spoil:
        spoil(folder)
    for how in ("clip-zero-shot", "promptfl"):
        with pytest.raises(FairsiloError) as problem:
            tiny.plan(how, model=f"clip:{folder}").flat()
        start = f"the tokenizer of clip:{folder} is missing or does not belong to the weights: "
        assert str(problem.value) == start + reason


def test_a_damaged_tokenizer_is_one_sentence(places: dict[str, str], tmp_path: Path) -> None:
    folder = changed(places["clip"], tmp_path / "clip")
    (folder / "vocab.json").write_text(LFS_POINTER)
    with pytest.raises(FairsiloError, match=r"the tokenizer of clip:.* cannot be loaded: Exception: Error while"):
        tiny.plan("promptfl", model=f"clip:{folder}").flat()


def test_the_end_that_old_configs_give_is_accepted(places: dict[str, str], tmp_path: Path) -> None:
    """OpenAI's own say 2, and mean the highest number."""
    folder = changed(places["clip"], tmp_path / "clip")
    set_config(folder, "text_config", eos_token_id=2)
    old, new = backbone_network(f"clip:{folder}", 3), backbone_network(places["clip"], 3)
    assert isinstance(old, ClipNetwork)
    assert isinstance(new, ClipNetwork)
    assert torch.equal(old.prompts(["cat", "dog"]), new.prompts(["cat", "dog"]))


def test_underscores_in_class_names_are_spaces(places: dict[str, str]) -> None:
    clip = backbone_network(places["clip"], 2)
    assert isinstance(clip, ClipNetwork)
    assert torch.equal(clip.tokens(["a big__alarm_clock", "7", "_"]), clip.tokens(["a big alarm clock", "7", "_"]))
    assert clip.tokens(["_"]).shape == (1, 3)  # a class of that name keeps it
    assert torch.equal(clip.prompts(["alarm_clock", "mug"]), clip.prompts(["alarm clock", "mug"]))
    one, other = (PromptedClip(clip, (name, "mug"), 4).get_buffer("tokens") for name in ("alarm_clock", "alarm clock"))
    assert torch.equal(one, other)


def test_class_prompts_are_encoded_once(places: dict[str, str]) -> None:
    seen: list[int] = []
    shared = backbones._loaded("clip", places["clip"].removeprefix("clip:"))
    handle = shared.text_model.register_forward_hook(lambda *_: seen.append(1))
    try:
        plan = tiny.plan("fedclip", model=places["clip"], classes=("one", "two", "three of them"))
        first, second = (plan.flat().module.get_buffer("texts") for _ in range(2))
        assert len(seen) == 1
        expected = second.clone()
        first.zero_()
        assert torch.equal(second, expected)
        assert torch.equal(plan.flat().module.get_buffer("texts"), expected)
        clip = backbone_network(places["clip"], 3)
        assert isinstance(clip, ClipNetwork)
        assert not torch.equal(clip.prompts(plan.names, "the {}"), expected)  # another template
        assert not torch.equal(clip.prompts(("1", *plan.names[1:]), "a picture of a {}"), expected)  # other classes
        assert len(seen) == 3
    finally:
        handle.remove()
    torch.testing.assert_close(
        expected, F.normalize(clip.encode(clip.tokens([f"a picture of a {name}" for name in plan.names])), dim=1)
    )


def test_the_shipped_weights_and_their_card_are_packaged() -> None:
    settings = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    package = SHIPPED_CLIP.parents[2]  # as it was imported
    patterns = settings["tool"]["setuptools"]["package-data"]["fairsilo"]
    packaged = {file for pattern in patterns for file in package.glob(pattern)}
    assert SHIPPED_CLIP.parent / "README.md" in packaged
    assert {file for file in SHIPPED_CLIP.parent.rglob("*") if file.is_file()} <= packaged


def test_prompts_that_do_not_fit_are_named(places: dict[str, str]) -> None:
    clip = backbone_network(places["clip"], 3)
    assert isinstance(clip, ClipNetwork)
    with pytest.raises(FairsiloError, match="tokens, and the text encoder takes at most 40"):
        clip.prompts(["x" * 50])
    with pytest.raises(FairsiloError, match=r"has no \{\} for the class"):
        clip.prompts(["cat"], "a photo")


@pytest.mark.parametrize(
    ("how", "model", "sentence"),
    [
        ("fedclip", "small-cnn", "is built around CLIP; set model=tiny-clip"),
        ("vpt", "clip", "is built around a vision transformer; set model=tiny-vit"),
        ("fedavg", "clip", "CLIP alone is not trained: compose the method with fedclip"),
        ("fedclip | promptfl", "clip", "both build the network"),
        ("fedclip | fedmix", "clip", "needs gradients of the inputs, and the first stage of the network is frozen"),
        ("promptfl(context_length=40)", "clip", "'0' behind a context of 40 has 43 tokens, and the text encoder takes"),
    ],
)
def test_what_does_not_go_together_is_said(
    how: str, model: str, sentence: str, places: dict[str, str], people8: Federation
) -> None:
    with pytest.raises(FairsiloError, match=sentence):
        tiny.plan(how, model=places.get(model, model)).check(people8.roster, False)


def test_an_image_size_the_backbone_cannot_take_is_said(places: dict[str, str], people: Federation) -> None:
    with pytest.raises(FairsiloError, match=r"the images are 6x6, and vit:.* takes 8x8; set data.size=8"):
        tiny.plan("vpt", model=places["vit"]).check(people.roster, False)


@pytest.mark.parametrize(
    ("how", "kind"), [("vpt", "vit"), ("fedavg", "vit"), ("fedclip", "clip"), ("fedavg", "resnet")]
)
@pytest.mark.parametrize("channels", [2, 4])
def test_images_with_other_channels_than_a_backbones_are_refused(
    how: str, kind: str, channels: int, places: dict[str, str]
) -> None:
    people = tiny_backbones.enlarged(tiny.federation(), channels=channels)
    with pytest.raises(
        FairsiloError, match=rf"the images have {channels} channels, and {kind}:.* takes 3 \(RGB\), or 1"
    ):
        tiny.plan(how, model=places[kind], channels=channels).check(people.roster, False)
    grey = tiny_backbones.enlarged(tiny.federation(), channels=1)
    tiny.plan(how, model=places[kind], channels=1).check(grey.roster, False)


# ----------------------------------------------------------------------------------------------------------- training
def test_only_declared_tensors_are_trained_and_sent(places: dict[str, str], people8: Federation) -> None:
    shared = backbones._loaded("clip", places["clip"].removeprefix("clip:"))
    before = {name: tensor.clone() for name, tensor in shared.state_dict().items()}
    for how, expected in (
        ("fedclip", 2 * (12 * 12 + 12)),
        ("fedclip(adapter_width=4)", 12 * 48 + 48 + 48 * 12 + 12),
        ("promptfl", 16 * 16),
    ):
        _, loop, _ = run(how, places["clip"], people8)
        assert loop.server.layout.size == expected
    run("clip-lora", places["clip"], people8)
    assert all(torch.equal(before[name], tensor) for name, tensor in shared.state_dict().items())
    assert not any(parameter.requires_grad for parameter in shared.parameters())


def test_low_rank_changes_of_a_single_silo_are_those_of_the_central_method(
    places: dict[str, str], people8: Federation
) -> None:
    together = pooled(people8)
    one, loop, _ = run("fedlora(rank=2)", places["clip"], together)
    other, _, _ = run("clip-lora(rank=2)", places["clip"], together)
    assert torch.equal(one.vector, other.vector)
    assert loop.server.layout.size == 2 * 2 * 2 * (2 * 16)  # blocks, projections, factors of rank 2 and 16 features
    several, _, _ = run("fedlora(rank=2)", places["clip"], people8)
    assert not torch.equal(several.vector, one.vector)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "how", ["fedclip", "promptfl", "fedclip | fft-gp", "promptfl | ditto", "fedclip | ga(warmup=0)"]
)
def test_kept_features_give_the_same_training_bit_for_bit(
    how: str, places: dict[str, str], people8: Federation
) -> None:
    one, _, kept = run(how, places["clip"], people8)
    other, _, plain = run(how, places["clip"], people8, keep=False)
    assert tiny.numbers(one) == tiny.numbers(other)
    assert kept.said.startswith("features of the frozen backbone are kept")
    assert plain.said.endswith("engine.keep_features is off")
    assert kept.federation["a"].train.inputs.shape == (24, 12)


def test_features_past_the_limit_lie_in_files(places: dict[str, str], people8: Federation, tmp_path: Path) -> None:
    one, _, _ = run("fedclip", places["clip"], people8)
    other, _, kept = run("fedclip", places["clip"], people8, limit=0.0, folder=None)
    assert "in memory" in kept.said  # without a folder there is nowhere else to go
    plan = tiny.plan("fedclip", SHORT, model=places["clip"])
    mapped = keep_features(plan, people8, limit=1e-6, folder=tmp_path / "features")
    assert "MiB of them in files" in mapped.said
    assert len(list((tmp_path / "features").iterdir())) > 3
    engine = Sequential(mapped.plan, mapped.federation, strict=True)
    assert torch.equal(Loop(mapped.plan, mapped.federation.roster, engine).run().vector, one.vector)
    assert torch.equal(one.vector, other.vector)


def test_runs_beside_each_other_share_features(
    places: dict[str, str], people8: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    images = ClipNetwork.images
    monkeypatch.setattr(ClipNetwork, "images", lambda clip, some: (seen.append(len(some)), images(clip, some))[1])
    alone, _, _ = run("fedclip | ga(warmup=0)", places["clip"], people8)
    shelf, kept = Shelf(1.0), {}
    for how in ("fedclip", "fedclip | ga(warmup=0)"):
        seen.clear()
        shared, _, kept[how] = run(how, places["clip"], copy.deepcopy(people8), shelf=shelf)
    assert not seen  # the second run needs no image
    assert kept["fedclip"].said == kept["fedclip | ga(warmup=0)"].said
    assert tiny.numbers(shared) == tiny.numbers(alone)
    count, room = len(shelf.found), shelf.room
    assert count == 12  # four silos' three splits; the server's data are one of them
    run("fedclip", places["deep"], people8, shelf=shelf)
    assert len(shelf.found) == 2 * count  # another backbone sees other features
    assert shelf.room == room - (2**30 - room)
    full = Shelf(0.0)
    run("fedclip", places["clip"], people8, shelf=full)
    assert not full.found


@pytest.mark.parametrize(
    ("how", "kind", "changes", "reason"),
    [
        ("vpt", "vit", {}, "what is trained stands inside the encoder"),
        ("fedclip", "clip", {"augment": "crop"}, "images are changed at random"),
        ("fedclip | harmofl", "clip", {}, "amplitude-norm works on the images themselves"),
    ],
)
def test_where_features_cannot_be_kept_it_is_said(
    how: str, kind: str, changes: dict[str, Any], reason: str, places: dict[str, str], people8: Federation
) -> None:
    plan = tiny.plan(how, SHORT, model=places[kind], **changes)
    found = keep_features(plan, people8)
    assert reason in found.said
    assert found.federation is people8
    assert not found.plan.stemmed


def test_a_network_without_a_frozen_part_is_left_alone(people: Federation) -> None:
    assert keep_features(tiny.plan("fedavg"), people).said == ""


def test_text_features_of_several_prompts_are_known_at_a_time(places: dict[str, str]) -> None:
    """A method may go back and forth between the received model, the last one and its own."""
    module = tiny.plan("promptfl", model=places["clip"]).flat().module.requires_grad_(False)
    seen: list[int] = []
    handle = module.clip.pretrained.text_model.register_forward_hook(lambda *_: seen.append(1))
    contexts = [torch.randn_like(module.context) for _ in range(6)]
    try:
        found = []
        for context in contexts[:3] * 4:
            module.context.copy_(context)
            found.append(module.texts())
        assert len(seen) == 3
        assert all(torch.equal(found[i], found[i % 3]) for i in range(12))
        assert not torch.equal(found[0], found[1])
        for context in contexts:  # and not without end
            module.context.copy_(context)
            module.texts()
        assert len(module.known) == 4
    finally:
        handle.remove()


@pytest.mark.parametrize("how", ["fedclip", "promptfl", "fedclip | fedprox"])
def test_silos_of_different_size_count_alike_unless_told_otherwise(
    how: str, places: dict[str, str], people8: Federation
) -> None:
    small = dataclasses.replace(
        people8["a"], train=Split(people8["a"].train.inputs[:8], people8["a"].train.targets[:8])
    )
    uneven = dataclasses.replace(people8, silos=(small, *people8.silos[1:]))
    for weighting, alike in (("auto", True), ("uniform", True), ("samples", False)):
        history, _, _ = run(how, places["clip"], uneven, training=dataclasses.replace(SHORT, weighting=weighting))
        weights = history.rounds[0]["weights"]
        assert (weights["a"] == pytest.approx(1 / 3)) is alike
        if not alike:
            assert weights["a"] == pytest.approx(8 / sum(len(silo.train) for silo in uneven.silos))
    assert not method(how).individual_updates  # the mean needs no update of a single silo, whatever its weights


def test_a_batch_of_one_is_refused_where_images_of_a_batch_are_told_apart(
    places: dict[str, str], people8: Federation
) -> None:
    alone = dataclasses.replace(SHORT, batch_size=1)
    with pytest.raises(FairsiloError, match=r"train\.batch_size is 1; give 2 at least, or clip_loss=classes"):
        tiny.plan("fedclip", alone, model=places["clip"]).check(people8.roster, False)
    tiny.plan("fedclip(clip_loss=classes)", alone, model=places["clip"]).check(people8.roster, False)


def test_text_features_are_computed_again_only_when_the_prompt_changes(
    places: dict[str, str], people8: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    encode = ClipNetwork.encode
    monkeypatch.setattr(ClipNetwork, "encode", lambda self, *given: (calls.append(1), encode(self, *given))[1])
    plan = tiny.plan("promptfl", model=places["clip"])
    module = plan.flat().module
    assert isinstance(module, PromptedClip)
    x = images(people8)
    with torch.no_grad():
        first = module(x).prediction
        module(x)
        assert len(calls) == 1
        module.context.add_(0.1)
        assert not torch.equal(module(x).prediction, first)
        assert len(calls) == 2
    module(x)
    module(x)
    assert len(calls) == 4  # with gradients, always


def test_the_context_stands_between_start_and_class(places: dict[str, str]) -> None:
    """By hand: embedded tokens with the context in place, positions added, through the encoder."""
    clip = backbone_network(places["clip"], 3)
    assert isinstance(clip, ClipNetwork)
    tokens = clip.tokens(["x x cat"])
    context = torch.randn(2, 16)
    text = clip.pretrained.text_model
    embedded = text.embeddings.token_embedding(tokens).clone()
    embedded[:, 1:3] = context
    handle = text.embeddings.token_embedding.register_forward_hook(lambda *_: embedded)
    expected = clip.encode(tokens)
    handle.remove()
    torch.testing.assert_close(clip.encode(tokens, context), expected)
    assert not torch.allclose(clip.encode(tokens), expected)


def test_alignment_in_promptfl_is_on_text_features(places: dict[str, str], people8: Federation) -> None:
    from fairsilo.methods.parts.feature_alignment import aligned

    module = tiny.plan("promptfl", model=places["clip"]).flat().module
    assert isinstance(module, PromptedClip)
    found = aligned(module(images(people8)))
    assert found.shape == (3, 12)
    torch.testing.assert_close(found, module.texts())


def test_the_contrastive_loss_by_hand() -> None:
    prediction, targets = torch.randn(4, 3), torch.tensor([0, 2, 2, 1])
    logits = torch.stack([prediction[:, target] for target in targets], 1)
    rows = -logits.log_softmax(1).diagonal().mean()
    columns = -logits.log_softmax(0).diagonal().mean()
    torch.testing.assert_close(contrastive(prediction, targets), (rows + columns) / 2)


def test_prompts_stand_beside_the_patches_of_each_image(places: dict[str, str], people8: Federation) -> None:
    vit = backbone_network(places["vit"], 3)
    assert isinstance(vit, VitNetwork)
    x, prompts = images(people8), torch.randn(2, 16)
    plain = vit.token(x)
    found = vit.token(x, prompts)
    torch.testing.assert_close(found[3:4], vit.token(x[3:4], prompts), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found, vit.token(x, prompts.expand(len(x), -1, -1)))
    assert not torch.allclose(found, plain)
    assert torch.equal(vit.token(x), plain)  # nothing of the prompts stays in the backbone, which others share


def test_networks_on_two_devices_do_not_move_each_others_backbone(places: dict[str, str]) -> None:
    one, two, three = (backbones.backbone_network(places["clip"], 3) for _ in range(3))
    names = list(one.state_dict())
    two.to("meta")
    three.double().to("meta")
    assert (one.scale.device.type, one.scale.dtype) == ("cpu", torch.float32)
    assert (two.scale.device.type, two.scale.dtype) == ("meta", torch.float32)
    assert (three.scale.device.type, three.scale.dtype) == ("meta", torch.float64)
    assert two.mean.device.type == "meta"  # the network's own buffers went along
    assert list(two.state_dict()) == names
    two.to_empty(device="cpu")
    assert two.pretrained is one.pretrained  # back at the shared weights, which nobody emptied


def test_a_frozen_backbone_is_never_in_training_mode(
    places: dict[str, str], people8: Federation, tmp_path: Path
) -> None:
    """Its dropout, where it has any, is no part of what is trained."""
    x = images(people8)
    model = f"vit:{tiny_backbones.write_vit(tmp_path / 'vit', dropout=0.5)}"
    flat = tiny.plan("vpt(head_dropout=0)", model=model).flat()
    assert isinstance(flat.module, PromptedVit)
    flat.train()
    assert flat.module.dropout.training
    trained = flat.module(x).prediction
    flat.eval()
    assert torch.equal(trained, flat.module(x).prediction)
    folder = changed(places["clip"], tmp_path / "clip")
    set_config(folder, "text_config", attention_dropout=0.5)
    prompted = tiny.plan("promptfl", model=f"clip:{folder}").flat()
    assert isinstance(prompted.module, PromptedClip)
    prompted.train()
    assert torch.equal(prompted.module.texts(), prompted.module.texts())
    whole = tiny.plan("fedavg", model=model).flat()  # nothing is frozen here
    whole.train()
    assert not torch.equal(whole.module(x).prediction, whole.module(x).prediction)


def test_lora_and_offsite_start_as_clip_itself(places: dict[str, str], people8: Federation) -> None:
    x = images(people8)
    plain = tiny.plan("clip-zero-shot", model=places["clip"]).flat()
    low = tiny.plan("clip-lora", model=places["clip"]).flat()
    torch.testing.assert_close(low.module(x).prediction, plain.module(x).prediction)
    deep = tiny.plan("fedot", model=places["deep"])
    server = deep.server_flat()
    assert server is not None
    plain = tiny.plan("clip-zero-shot", model=places["deep"]).flat()
    torch.testing.assert_close(server.module(x).prediction, plain.module(x).prediction)
    assert not torch.allclose(deep.flat().module(x).prediction, plain.module(x).prediction)  # through an emulator


def test_offsite_tuning_trains_the_ends_and_answers_with_all_blocks(
    places: dict[str, str], people8: Federation
) -> None:
    history, loop, ready = run("fedot", places["deep"], people8)
    shared = backbones._loaded("clip", places["deep"].removeprefix("clip:"))
    layers = shared.vision_model.encoder.layers
    assert loop.server.layout.size == sum(p.numel() for layer in (layers[0], layers[5]) for p in layer.parameters())
    assert len(ready.plan.flat().module.clip.pretrained.vision_model.encoder.layers) == 4  # ends and two of four
    assert history.rows[-1]["model"] == "global"
    for how, model, sentence in (
        ("fedot", "clip", "1 blocks at each end leave nothing of the 2 for the middle"),
        ("fedot(ends=3)", "deep", "3 blocks at each end leave nothing of the 6 for the middle"),
        ("fedot(emulator=5)", "deep", "the emulator has 5 blocks, and between the ends there are 4"),
    ):
        with pytest.raises(FairsiloError, match=sentence):
            tiny.plan(how, model=places[model]).flat()


def test_the_server_tunes_the_whole_encoder_not_the_emulator(places: dict[str, str], people8: Federation) -> None:
    alone, _, _ = run("fedot", places["deep"], people8)
    still, loop, _ = run("fedot | fedavg-ft(tuning_epochs=0)", places["deep"], people8)
    torch.testing.assert_close(still.vector, alone.vector)
    server, given = loop.server, tiny_backbones.enlarged(tiny.federation())["a"].train
    server.network = pytest.fail  # what silos have, the emulator, is not asked for

    def loss(vector: Tensor) -> float:
        """Of the network with all blocks, on the server's data."""
        assert server.own_model is not None
        server.own_model.load(vector)
        server.own_model.eval()
        inputs = prepare(given.inputs, torch.device("cpu"), torch.float32)
        with torch.no_grad():
            return float(F.cross_entropy(server.own_model.module(inputs).prediction, given.targets))

    moved = ServerTuning(tuning_epochs=20, tuning_lr=0.001).step(server, torch.zeros_like(server.vector))
    assert loss(server.vector + moved) < 0.9 * loss(server.vector)


def test_the_emulator_has_evenly_spaced_blocks() -> None:
    assert emulated(2, 8, 4) == [2, 4, 7, 9]
    assert emulated(1, 2, 1) == [1]
    assert emulated(1, 3, 3) == [1, 2, 3]


def test_pooled_data_are_everybodys_once(people8: Federation) -> None:
    found = pooled(people8)
    assert found.names == ("pooled",)
    assert len(found["pooled"].train) == 72
    assert len(found["pooled"].test) == 54
    assert found.unseen == people8.unseen
    more = pooled(people8, [people8["u"].test])
    assert len(more["pooled"].train) == 72 + 18


@pytest.mark.filterwarnings("ignore")  # a CPU without bfloat16 instructions warns, and computes all the same
@pytest.mark.parametrize(("how", "kind"), [("fedclip", "clip"), ("vpt", "vit"), ("fedavg", "resnet")])
def test_half_precision_is_the_backbones_alone(
    how: str, kind: str, places: dict[str, str], people8: Federation
) -> None:
    x = images(people8)
    before = torch.backends.mkldnn.enabled  # PyTorch turns it off for good where the CPU has no such instructions
    full, half = (tiny.plan(how, model=places[kind], arithmetic=Arithmetic(p)).flat() for p in ("float32", "bfloat16"))
    full.eval()
    half.eval()
    one, other = full.module(x), half.module(x)
    torch.backends.mkldnn.enabled = before
    assert other.prediction.dtype == torch.float32
    assert half.layout.dtype == torch.float32
    assert not torch.equal(one.features, other.features)
    torch.testing.assert_close(one.features, other.features, rtol=0.05, atol=0.05)


@pytest.mark.filterwarnings("ignore")  # as above
def test_half_precision_reaches_the_text_encoder_where_prompts_are_trained(places: dict[str, str]) -> None:
    before = torch.backends.mkldnn.enabled
    full, half = (
        tiny.plan("promptfl", model=places["clip"], arithmetic=Arithmetic(p)).flat().module
        for p in ("float32", "bfloat16")
    )
    assert isinstance(full, PromptedClip)
    assert isinstance(half, PromptedClip)
    weights = torch.randn(12, generator=torch.Generator().manual_seed(0))
    found = []
    for module in (full, half):
        texts = module.texts()
        (texts @ weights).square().sum().backward()
        assert texts.dtype == torch.float32
        assert module.context.grad is not None
        found.append((texts.detach(), module.context.grad.clone()))
    plain = [module.clip.prompts(["cat", f"dog{number}"])[0] for number, module in enumerate((full, half))]
    torch.backends.mkldnn.enabled = before
    for one, other in zip(*found, strict=True):
        assert not torch.equal(one, other)
        assert F.cosine_similarity(one.flatten(), other.flatten(), dim=0) > 0.99
    torch.testing.assert_close(plain[0], plain[1], rtol=1e-5, atol=1e-6)  # prompts nobody trains stay exact


# --------------------------------------------------------------------------------------- laws, for what has a backbone
# FedAG and FedOT need more than the settings of this file; they have tests of their own
AROUND = [name for name, entry in CATALOGUE.items() if entry.model and name not in ("fedag", "fedot", "fedot-ft")]
LAWFUL = [*AROUND, "fedclip | fft-gp", "promptfl | grace", "fedclip | ditto", "vpt | fedsam", "promptfl | per-fedavg"]


def kind_of(how: str) -> str:
    return "clip" if "clip" in CATALOGUE[how.split(" | ")[0].split("(")[0]].model else "vit"


class Crash(BaseException):
    pass


@pytest.mark.slow  # the laws do it for a sample
@pytest.mark.parametrize("how", LAWFUL)
def test_engines_agree_and_a_crash_changes_nothing(
    how: str, places: dict[str, str], people8: Federation, pool: Pool, tmp_path: Path
) -> None:
    model = places[kind_of(how)]
    whole, _, _ = run(how, model, people8, folder=tmp_path / "whole")
    beside, _, _ = run(how, model, people8, pool=pool)
    assert tiny.numbers(whole)["vector"] == tiny.numbers(beside)["vector"]
    assert whole.rows == beside.rows

    def crash(event: Event) -> None:
        if event.kind == "closed" and event.round == 2:
            raise Crash

    with pytest.raises(Crash):
        run(how, model, people8, folder=tmp_path / "cut", listener=crash)
    resumed, _, _ = run(how, model, people8, folder=tmp_path / "cut")
    assert tiny.numbers(resumed) == tiny.numbers(whole)
    assert torch.isfinite(whole.vector).all()


def test_a_blueprint_with_a_backbone_is_small_to_send(places: dict[str, str]) -> None:
    import pickle

    plan: Blueprint = tiny.plan("fedclip", model=places["clip"])
    assert len(pickle.dumps(plan)) < 10_000
