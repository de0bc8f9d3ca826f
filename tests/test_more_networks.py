"""Networks beyond the small ones: their sizes, their shapes, what they refuse, and how they are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fairsilo
import tiny
import tiny_backbones
from fairsilo.core.output import Output, aligned, vectors_in
from fairsilo.core.vectors import FlatModel, Layout
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError
from fairsilo.laws.tiny import looped
from fairsilo.models import described
from fairsilo.models.backbones import backbone_network
from fairsilo.models.described import OWN
from fairsilo.models.efficientnets import SamePadding
from fairsilo.models.norms import NORMS
from fairsilo.models.registry import NETWORKS, build
from fairsilo.models.settings import UNetSettings
from fairsilo.runs.replayed import Replayed
from other_tasks import GROUNDS

# text, classes, channels, a batch
CASES = {
    "resnet-18": (4, 3, (4, 3, 32, 32)),
    "resnet-50": (4, 1, (4, 1, 32, 32)),
    "efficientnet-b0": (4, 3, (4, 3, 32, 32)),
    "efficientnet-lite0(weights=random)": (4, 2, (4, 2, 32, 32)),
    "vit-tiny(size=32, patch=16)": (4, 3, (4, 3, 32, 32)),
    "unet(width=8)": (2, 1, (2, 1, 32, 16)),
    "unet(norm=instance, width=8)": (2, 3, (2, 3, 32, 32)),
    "unet(norm=group, width=8)": (2, 3, (2, 3, 16, 16)),
    "unet(norm=no, width=8)": (2, 3, (2, 3, 16, 16)),
    "char-lstm": (9, 12, (3, 12)),
    "mlp": (5, 7, (3, 7)),
}


def batch(text: str) -> Tensor:
    stream = torch.Generator().manual_seed(0)
    classes, _, shape = CASES[text]
    if text == "char-lstm":
        return torch.randint(0, classes, shape, generator=stream)
    return torch.randn(shape, generator=stream)


@pytest.mark.parametrize("text", CASES)
def test_a_network_predicts_and_a_gradient_reaches_every_tensor(text: str) -> None:
    classes, channels, _ = CASES[text]
    module, inputs = build(text, classes, channels, 0), batch(text)
    output: Output = module(inputs)
    places = inputs.shape[2:] if "unet" in text else ()
    assert output.prediction.shape == (len(inputs), classes, *places)
    assert output.features is not None
    assert output.features.shape == (len(inputs), output.features.shape[1], *places)
    assert torch.equal(module.head(output.features), output.prediction)
    weights = torch.randn(output.prediction.shape, generator=torch.Generator().manual_seed(1))
    (output.prediction * weights).sum().backward()
    without = [name for name, one in module.named_parameters() if one.grad is None or not one.grad.abs().sum() > 0]
    assert without == []


@pytest.mark.parametrize("text", CASES)
def test_weights_depend_on_the_seed_alone_and_the_head_is_a_group(text: str) -> None:
    classes, channels, _ = CASES[text]
    torch.manual_seed(5)
    first, second, other = (build(text, classes, channels, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])
    assert not all(torch.equal(first[name], other[name]) for name in first if "head" not in name)
    groups = {slot.name: slot.group for slot in Layout.of(build(text, classes, channels, 3)).slots}
    assert {name for name, group in groups.items() if group == "head"} == {"head.weight", "head.bias"}
    norms = "batch-norm" in groups.values()
    assert norms == (text.startswith(("resnet", "efficientnet", "mlp")) or text == "unet(width=8)")


def test_running_statistics_of_a_unet_follow_as_fast_as_asked() -> None:
    def momenta(text: str) -> set[float | None]:
        return {one.momentum for one in build(text, 2, 3, 0).modules() if isinstance(one, nn.BatchNorm2d)}

    assert momenta("unet(width=8)") == {nn.BatchNorm2d(1).momentum}
    assert momenta("unet(width=8, bn_momentum=0.5)") == {0.5}
    with pytest.raises(FairsiloError, match=r"bn_momentum is for norm=batch, and norm is 'group'"):
        build("unet(norm=group, bn_momentum=0.5)", 2, 3, 0)


@pytest.mark.parametrize("text", [text for text in CASES if "unet" not in text or "group" in text])
def test_a_network_as_a_vector_answers_as_itself(text: str) -> None:
    """Also for another vector than the one it holds, which an LSTM's own bookkeeping of weights might miss."""
    classes, channels, _ = CASES[text]
    module, inputs = build(text, classes, channels, 0).eval(), batch(text)
    with torch.no_grad():
        before = module(inputs).prediction
        flat = FlatModel(module, Layout.of(module))
        assert torch.equal(flat.module(inputs).prediction, before)
        moved = flat.read() * 1.1
        answered = torch.func.functional_call(module, flat.layout.views(moved), (inputs,)).prediction
        flat.load(moved)
        assert torch.equal(flat.module(inputs).prediction, answered)
    assert not torch.equal(answered, before)


# ---------------------------------------------------------------------------------------------------------- sizes
def test_every_network_is_described() -> None:
    assert list(OWN) == list(NETWORKS)
    assert UNetSettings.__dataclass_fields__["norm"].metadata["choices"] == tuple(NORMS)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_table_says_how_many_parameters_there_are(name: str) -> None:
    description = OWN[name].description
    given = {"weights": "random"} if name == "efficientnet-lite0" else {}
    with torch.device("meta"):
        module = NETWORKS[name](description.classes, 3, **given)
    assert sum(one.numel() for one in module.parameters()) == description.parameters


@pytest.mark.parametrize(
    ("name", "known", "width"),
    [
        ("resnet-18", 11_689_512, 512),
        ("resnet-50", 25_557_032, 2048),
        ("efficientnet-b0", 5_288_548, 1280),
        ("efficientnet-lite0", 4_652_008, 1280),
        ("vit-tiny", 5_717_416, 192),
        ("vit-base", 86_567_656, 768),
    ],
)
def test_with_the_classes_of_imagenet_they_are_as_large_as_published(name: str, known: int, width: int) -> None:
    assert OWN[name].description.parameters + (1000 - 10) * (width + 1) == known


def test_shipped_backbones_are_as_large_as_the_table_says() -> None:
    for name in ("tiny-clip", "tiny-vit"):
        count = sum(one.numel() for one in build(name, 10, 3, 0).parameters())
        assert described.own_models()[name]["parameters"] == count


def test_the_resnets_halve_an_image_five_times() -> None:
    for name, width in (("resnet-18", 512), ("resnet-50", 2048)):
        module = build(name, 2, 3, 0).eval()
        with torch.no_grad():
            assert module.features[:-2](torch.zeros(1, 3, 64, 64)).shape == (1, width, 2, 2)


# ------------------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize("size", [(17, 32), (32, 40)])
def test_unet_refuses_sizes_it_cannot_halve_four_times(size: tuple[int, int]) -> None:
    with pytest.raises(FairsiloError) as problem:
        build("unet(width=8)", 2, 3, 0)(torch.zeros(1, 3, *size))
    assert str(problem.value) == (
        f"the images are {size[0]}x{size[1]}, and unet halves them 4 times: height and width must be multiples of 16; "
        "set data.size"
    )


def test_a_vision_transformer_refuses_other_sizes() -> None:
    with pytest.raises(FairsiloError, match=r"are 16x32, and this vision transformer takes 32x32; set data\.size=32"):
        build("vit-tiny(size=32)", 2, 3, 0)(torch.zeros(1, 3, 16, 32))
    with pytest.raises(FairsiloError, match="patches of 16 pixels do not divide an image of 40"):
        build("vit-tiny(size=40)", 2, 3, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("unet(norm=layer)", "unet.norm is 'layer'; it must be one of batch, instance, group, no"),
        ("unet(width=12)", "unet.width is 12; it must be a multiple of 8"),
        ("unet(norms=batch)", "'norms' is no setting of the model unet; did you mean 'norm'?"),
        ("resnet-18(depth=3)", "'depth' is no setting of the model resnet-18; it has none"),
        ("unet(group)", "'group' in 'unet(group)' is no setting; write key=value"),
        ("unet(norm=no, norm=no)", "norm is given twice in 'unet(norm=no, norm=no)'; give it once"),
        ("efficientnet-lite0(bn_momentum=2)", "efficientnet-lite0.bn_momentum is 2.0; it must be 0 to 1"),
    ],
)
def test_settings_are_checked(text: str, said: str) -> None:
    with pytest.raises(FairsiloError) as problem:
        build(text, 2, 3, 0)
    assert str(problem.value) == said


# ------------------------------------------------------------------------------------------------------------- details
def test_unet_without_norm_weights_remembers_nothing() -> None:
    module = build("unet(norm=no, width=8)", 2, 3, 0)
    norms = [one for one in module.modules() if isinstance(one, nn.BatchNorm2d)]
    assert len(norms) == 18
    assert not any(list(one.parameters()) + list(one.buffers()) for one in norms)
    inputs = torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(module.train()(inputs).prediction, module.eval()(inputs).prediction)


def test_unet_sees_its_input_at_full_resolution() -> None:
    """The joined levels carry a single pixel's change to the same place of the map."""
    module = build("unet(width=8)", 2, 1, 0).eval()
    inputs = torch.zeros(2, 1, 32, 32)
    inputs[1, 0, 5, 20] = 5
    with torch.no_grad():
        change = (module(inputs).features[1] - module(inputs).features[0]).abs().sum(0)
    assert divmod(int(change.argmax()), 32) in [(row, column) for row in range(3, 8) for column in range(18, 23)]


def test_the_lstm_reads_the_whole_text_and_answers_for_its_end() -> None:
    module = build("char-lstm", 5, 6, 0).eval()
    text = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 1, 2, 3, 4, 0], [0, 1, 2, 3, 4, 1]])
    with torch.no_grad():
        features = module(text).features
        states = module.lstm(module.embedding(text))[0]
    assert text.dtype == torch.int64
    assert features.shape == (3, 256)
    assert torch.equal(features, states[:, 5])
    assert (features[0] - features[2]).norm() > (features[0] - features[1]).norm() > 0
    assert build("char-lstm(vocabulary=30)", 5, 6, 0).embedding.num_embeddings == 30


def test_maps_are_averaged_for_alignment_and_vectors_stay() -> None:
    maps = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5)
    assert torch.equal(aligned(Output(maps, maps)), maps.mean((2, 3)))
    vectors = torch.rand(2, 7)
    assert torch.equal(aligned(Output(vectors, vectors)), vectors)
    assert aligned(Output(vectors, torch.rand(2, 3, 4))).shape == (2, 12)
    assert torch.equal(vectors_in(Output(vectors, maps)), maps.mean((2, 3)))


class Unpooled(tiny.TinyNet):
    """A classifier whose features are maps; the prediction is that of their means."""

    def forward(self, inputs: torch.Tensor) -> Output:
        found = super().forward(inputs)
        assert found.features is not None
        return Output(found.prediction, found.features[:, :, None, None].expand(-1, -1, 2, 3))


@pytest.mark.parametrize("how", ["fedproto", "fedproc", "moon", "grace"])
def test_methods_take_maps_as_their_means_over_the_image(how: str, people: Federation) -> None:
    """Maps that are constant over the image are as good as vectors: the same numbers, and as much is sent."""
    vectors, maps = (looped(tiny.plan(how, model=model), people) for model in (tiny.TinyNet, Unpooled))
    assert vectors.server.sizes["features"] == maps.server.sizes["features"]
    torch.testing.assert_close(maps.run().vector, vectors.run().vector, rtol=1e-4, atol=1e-5)


def test_figures_take_maps_as_their_means_over_the_image(tmp_path: Path) -> None:
    ground = GROUNDS["segment"]
    fairsilo.run(
        method="fedavg",
        federation=ground.federation(),
        model=ground.network,
        out=tmp_path / "run",
        train={"rounds": 1, "epochs": 1},
        evaluate={"keep_local": True},
        engine={"name": "sequential"},
    )
    replay = Replayed(tmp_path / "run", federation=ground.federation(), model=ground.network)
    after = replay.after(1)
    assert after is not None
    features, _ = replay.features(after, "a", "test", 5)
    assert features.shape == (5, 6)  # the six channels of the last map


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "before", "after"),
    [(8, 3, 2, 0, 1), (7, 3, 2, 1, 1), (8, 5, 2, 1, 2), (9, 5, 1, 2, 2)],
)
def test_padding_as_tensorflow_pads(size: int, kernel: int, stride: int, before: int, after: int) -> None:
    padded = SamePadding(kernel, stride)(torch.ones(1, 1, size, 4))
    column = padded[0, 0, :, padded.shape[-1] // 2].tolist()
    assert column == before * [0.0] + size * [1.0] + after * [0.0]


# ---------------------------------------------------------------------------------------------------------------- text
def test_settings_reach_a_function_of_the_users() -> None:
    assert build("test_more_networks:own(width=5)", 2, 3, 0).weight.shape == (2, 5)
    assert described.names_code("test_more_networks:own(width=5)")
    assert not described.names_code("unet(norm=group)")
    assert not described.names_code("resnet:./folder(1)")


def own(classes: int, channels: int, width: int = 1) -> nn.Module:
    return nn.Linear(width, classes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("small-cnn", ""),
        ("unet", ""),
        ("tiny-vit", ""),
        ("efficientnet-lite0", ""),
        ("resnet-18", "resnet-18 starts from random weights; model=resnet:PATH starts from pretrained ones"),
        (
            "efficientnet-lite0(weights=random)",
            "efficientnet-lite0 starts from random weights; model=efficientnet-lite0 starts from pretrained ones",
        ),
    ],
)
def test_random_weights_are_said_where_pretrained_ones_are_usual(text: str, said: str) -> None:
    assert described.start_of(text) == said


def test_a_run_says_that_its_weights_are_random(tmp_path: Path) -> None:
    heard: list[str] = []
    fairsilo.run(
        method="fedavg",
        model="vit-tiny(size=6, patch=3)",
        federation=tiny.federation(),
        rounds=1,
        epochs=1,
        out=tmp_path / "run",
        engine={"name": "sequential"},
        listener=lambda event: heard.append(event.text) if event.kind == "note" else None,
    )
    said = "vit-tiny starts from random weights; model=vit:PATH starts from pretrained ones"
    assert said in heard
    assert said in json.loads((tmp_path / "run" / "run.json").read_text())["notes"]


def test_about_knows_names_with_settings_and_kinds_of_backbones() -> None:
    assert described.about("unet(norm=no)")["name"] == "unet"
    assert described.about("vit:some/where")["name"] == "vit:PATH"
    with pytest.raises(FairsiloError, match="unknown model 'unett'; did you mean 'unet'") as listed:
        described.about("unett")
    with pytest.raises(FairsiloError) as checked:
        described.check("unett")
    assert str(listed.value) == str(checked.value)  # with the ways to other networks


# ---------------------------------------------------------------------------------------------------------- pretrained
def test_a_pretrained_efficientnet_is_trained_whole(tmp_path: Path) -> None:
    name = f"efficientnet:{tiny_backbones.write_efficientnet(tmp_path)}"
    frozen, trained = backbone_network(name, 3), backbone_network(name, 3).whole()
    assert not any(one.requires_grad for one in frozen.pretrained.parameters())
    assert all(one.requires_grad for one in trained.parameters())
    inputs = torch.rand(4, 3, 32, 32)
    output = trained.eval()(inputs)
    assert output.prediction.shape == (4, 3)
    pooled = trained.pretrained(trained.pixels(inputs)).last_hidden_state.mean((2, 3))
    assert torch.equal(output.features, pooled)
    norms = [one for one in trained.modules() if isinstance(one, nn.BatchNorm2d)]
    assert [one.momentum for one in norms] == pytest.approx(len(norms) * [0.01])
    assert "batch-norm" in {slot.group for slot in Layout.of(trained).slots}
    output.prediction.square().sum().backward()
    assert all(one.grad is not None for one in trained.parameters())
