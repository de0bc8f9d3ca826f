"""Fused kernels compute what PyTorch's layers do: values, gradients, running statistics; on a GPU, or in Triton's
interpreter where there is none."""

from __future__ import annotations

import copy
import importlib.util
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairsilo.core import fused
from fairsilo.core.arithmetic import Arithmetic
from fairsilo.core.fused import DepthwiseConv2d, FusedBatchNorm2d, Squashed, by_fused_kernels
from fairsilo.core.vectors import FlatModel, Layout
from fairsilo.errors import FairsiloError
from fairsilo.laws.tiny import TRAINING, Ground, TinyNet
from fairsilo.methods.text import method

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def kernels() -> None:
    pytest.importorskip("triton", reason="Triton comes with PyTorch's builds for GPUs")


@pytest.fixture
def triton_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "find_spec", lambda _: importlib.util.find_spec("torch"))


def normalised(activation: nn.Module, channels: int, momentum: float = 0.3) -> nn.Sequential:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(channels, momentum=momentum, eps=1e-3)
    nn.init.uniform_(norm.weight, -2, 3)
    nn.init.uniform_(norm.bias, -1, 3)
    return nn.Sequential(norm, activation)


def fused_copy(network: nn.Module) -> nn.Module:
    other = copy.deepcopy(network)
    by_fused_kernels(other)
    return other


def noted_launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that run from now on."""
    launched: list[str] = []
    launch = fused._launch

    def noted(name: str, *given: Any, **more: Any) -> None:
        launched.append(name)
        launch(name, *given, **more)

    monkeypatch.setattr(fused, "_launch", noted)
    return launched


def found_by(network: nn.Module, images: Tensor) -> list[Tensor]:
    """Values, the gradients of a loss in which each value has a weight of its own, and what the layer remembers."""
    network, images = network.to(DEVICE), images.to(DEVICE, copy=True).requires_grad_()
    values = network(images)
    weights = torch.randn(values.shape, generator=torch.Generator().manual_seed(1)).to(values)
    gradients = torch.autograd.grad((values * weights).sum(), [images, *network.parameters()])
    return [values.detach(), *gradients, *(one.clone() for one in network.buffers())]


def assert_alike(plain: nn.Module, other: nn.Module, images: Tensor) -> None:
    """As near to the numbers of float64 as the library's float32 is, or nearly."""
    exact = found_by(copy.deepcopy(plain).double(), images.double())
    for best, theirs, ours in zip(exact, found_by(plain, images), found_by(other, images), strict=True):
        assert ours.shape == theirs.shape
        best, theirs, ours = best.double(), theirs.double(), ours.double()
        allowed = 3 * float((theirs - best).norm()) + 2e-6 * float(best.norm())
        assert float((ours - best).norm()) <= allowed


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    "activation", [nn.Identity(), nn.ReLU(inplace=True), nn.ReLU6()], ids=lambda one: type(one).__name__
)
@pytest.mark.parametrize(
    ("rows", "channels", "high", "wide", "piece"),
    [(3, 5, 4, 7, 4096), (2, 3, 1, 1, 4096), (4, 3, 9, 8, 64), (5, 2, 8, 8, 64)],
    ids=["one piece", "two values", "a last piece that is short", "whole pieces"],
)
def test_normalisation_is_batch_norm(
    rows: int, channels: int, high: int, wide: int, piece: int, activation: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "PIECE", piece)
    plain = normalised(activation, channels)
    other = fused_copy(plain)
    assert type(other[0]) is FusedBatchNorm2d  # type: ignore[index]
    shift = 50 * torch.arange(channels)[:, None, None]  # a mean far from zero, which a sum of squares would not survive
    images = torch.randn(rows, channels, high, wide) * 2 + shift
    for _ in range(2):  # running statistics go on from where they are
        assert_alike(plain, other, images)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(("affine", "running"), [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("piece", [4096, 16])
def test_a_norm_may_lack_weights_or_running_statistics(
    affine: bool, running: bool, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "PIECE", piece)
    plain = nn.Sequential(nn.BatchNorm2d(2, affine=affine, track_running_stats=running), nn.ReLU6())
    other = fused_copy(plain)
    launched = noted_launches(monkeypatch)
    images = 9 * torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    assert_alike(plain, other, images)
    assert launched
    launched.clear()
    assert_alike(plain.eval(), other.eval(), images)
    assert bool(launched) is not running  # by the batch alone at evaluation too


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "size"),
    [(3, 1, 1, (6, 7)), (5, 2, 0, (11, 9)), (5, 1, 2, (4, 4)), ((3, 5), (2, 1), (0, 2), (8, 8)), (1, 1, 0, (3, 3))],
)
def test_gradients_are_those_of_a_depthwise_convolution(
    kernel: int, stride: int, padding: int, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "BLOCK", 16)
    monkeypatch.setattr(fused, "PROGRAMS", 9)  # three shares a channel, which take turns
    torch.manual_seed(0)
    plain = nn.Conv2d(3, 3, kernel, stride, padding, groups=3)
    other = fused_copy(plain)
    assert type(other) is DepthwiseConv2d
    images = torch.randn(4, 3, *size)
    assert_alike(plain, other, images)


@pytest.mark.usefixtures("kernels")
def test_gradients_of_gradients_are_those_of_the_library() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 3, 3, groups=3, bias=False), *normalised(nn.ReLU6(), 3))
    other = fused_copy(plain)
    images = torch.randn(4, 3, 5, 5)

    def second(network: nn.Module) -> list[Tensor]:
        given = images.to(DEVICE, copy=True).requires_grad_()
        loss = (network.to(DEVICE)(given) ** 3).sum()
        (first,) = torch.autograd.grad(loss, given, create_graph=True)
        return list(torch.autograd.grad((first**2).sum(), [given, *network.parameters()]))

    for one, mine in zip(second(plain), second(other), strict=True):
        assert float((one - mine).norm()) <= 5e-5 * float(one.norm())


def test_what_the_kernels_are_not_for_stays_as_it_is(triton_there: None) -> None:
    layers = nn.Sequential(
        nn.InstanceNorm2d(4),
        nn.ReLU(),
        nn.BatchNorm1d(4),
        nn.Conv2d(4, 8, 3, groups=4),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, groups=4, dilation=2),
        nn.Conv2d(4, 4, 9, groups=4),
        nn.Conv2d(4, 4, 3, groups=4, padding="same"),
        nn.Conv2d(4, 4, 3, groups=4, padding=1, padding_mode="reflect"),
    )
    kinds = [type(one) for one in layers]
    by_fused_kernels(layers)
    assert [type(one) for one in layers] == kinds


def test_an_activation_is_applied_once_and_by_whom_it_follows(triton_there: None) -> None:
    network = nn.Sequential(nn.BatchNorm2d(2), nn.ReLU6(), nn.ReLU(), nn.BatchNorm2d(2), nn.SiLU())
    by_fused_kernels(network)
    assert [type(one) for one in network] == [FusedBatchNorm2d, Squashed, nn.ReLU, FusedBatchNorm2d, nn.SiLU]
    assert [one.squash for one in network if isinstance(one, FusedBatchNorm2d)] == [2, 0]


@pytest.mark.parametrize("how", ["evaluation", "cumulative", "bfloat16", "channels last", "double", "too many"])
def test_where_the_kernels_do_not_fit_the_library_s_numbers_come_out(
    how: str, triton_there: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), *normalised(nn.ReLU6(), 2))
    images = 9 * torch.randn(3, 2, 5, 6)
    if how == "evaluation":
        plain.eval()
    if how == "cumulative":
        plain[1].momentum = None  # type: ignore[assignment]
    if how == "double":
        plain, images = plain.double(), images.double()
    if how == "channels last":
        images = images.contiguous(memory_format=torch.channels_last)
    if how == "too many":
        monkeypatch.setattr(fused, "ADDRESSES", 8)
    other = fused_copy(plain)
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "bfloat16"), torch.no_grad():
        assert torch.equal(other(images), plain(images))
    for one, mine in zip(plain.buffers(), other.buffers(), strict=True):
        assert torch.equal(one, mine)


def test_one_value_a_channel_is_refused_as_by_the_library(triton_there: None) -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        fused_copy(nn.BatchNorm2d(2))(torch.zeros(1, 2, 1, 1))


def test_without_triton_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "find_spec", lambda _: None)
    by_fused_kernels(nn.Linear(2, 2))  # asks for none
    with pytest.raises(FairsiloError, match=r"engine\.fused=true needs Triton"):
        by_fused_kernels(nn.Sequential(nn.BatchNorm2d(2)))


def test_only_a_gpu_gets_them(triton_there: None) -> None:
    network = nn.Sequential(nn.BatchNorm2d(2))
    FlatModel(network, Layout.of(network), arithmetic=Arithmetic(fused=True))
    assert type(network[0]) is nn.BatchNorm2d


def fused_network(classes: int, channels: int) -> nn.Module:
    network = TinyNet(classes, channels)
    by_fused_kernels(network)
    return network


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("how", ["fft-gp", "fedmix"])
def test_runs_come_to_the_same_model(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cuda":
        pytest.skip("silos here train on the CPU; benchmarks/gpu_law.py --fused does the same on a GPU")
    launched = noted_launches(monkeypatch)
    training = replace(TRAINING, rounds=1)
    plain, other = (Ground(model).loop(method(how), training).run() for model in ("", fused_network))
    assert {"normalise", "differentiate"} <= set(launched)
    assert float((plain.vector - other.vector).norm()) <= 1e-5 * float(plain.vector.norm())
    for before, after in zip(plain.rows, other.rows, strict=True):
        assert after["loss"] == pytest.approx(before["loss"], rel=1e-4)
