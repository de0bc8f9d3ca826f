"""Convolutions as products of matrices are convolutions: values, gradients, gradients of gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from fairsilo.core import convolutions
from fairsilo.core.convolutions import MatrixConv2d, by_matrices

SHAPES = [
    # in, out, kernel, stride, padding, height, width
    (3, 4, 3, 1, 1, 7, 6),
    (3, 4, 3, 2, 1, 8, 8),
    (2, 5, (3, 2), (1, 2), (2, 0), 6, 9),
    (4, 2, 1, 1, 0, 5, 5),
    (4, 2, 1, 2, 0, 5, 6),
    (1, 3, 5, 3, 2, 11, 10),
]


def two(shape: tuple[object, ...], bias: bool = False) -> tuple[nn.Conv2d, nn.Conv2d]:
    """A convolution, and the same by matrices."""
    inside, outside, kernel, stride, padding = shape[:5]
    plain, other = (nn.Conv2d(inside, outside, kernel, stride, padding, bias=bias).double() for _ in "ab")  # type: ignore[arg-type]
    other.load_state_dict(plain.state_dict())
    by_matrices(other)
    assert isinstance(other, MatrixConv2d)
    return plain, other


def images_for(shape: tuple[object, ...], count: int = 5) -> Tensor:
    inside, *_, high, wide = shape
    stream = torch.Generator().manual_seed(0)
    return torch.randn(count, inside, high, wide, generator=stream, dtype=torch.float64)  # type: ignore[call-overload]


def gradients(convolution: nn.Conv2d, images: Tensor, twice: bool) -> list[Tensor]:
    """Of a loss by images and parameters; and of the length of that gradient, where `twice`."""
    images = images.clone().requires_grad_()
    given = [images, *convolution.parameters()]
    loss = convolution(images).tanh().square().sum()
    found = list(torch.autograd.grad(loss, given, create_graph=twice))
    if twice:
        length = torch.stack([one.square().sum() for one in found]).sum()
        found += torch.autograd.grad(length, given)
    return [loss.detach(), *(one.detach() for one in found)]


@pytest.mark.parametrize(
    ("shape", "bias", "last", "room"),
    [(shape, *rest) for shape, rest in zip(SHAPES, itertools.cycle([(False, False, 4 << 20), (True, True, 3000)]))]
    + [(SHAPES[0], True, False, 1), (SHAPES[1], False, True, 20_000)],
)
def test_values_and_gradients_are_those_of_a_convolution(
    shape: tuple[object, ...], bias: bool, last: bool, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All images in one matrix of patches, a few, or one."""
    monkeypatch.setattr(convolutions, "ROOM", room)
    plain, other = two(shape, bias)
    images = images_for(shape)
    if last:
        images = images.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(other(images), plain(images))
    for twice in (False, True):
        for found, wanted in zip(gradients(other, images, twice), gradients(plain, images, twice), strict=True):
            torch.testing.assert_close(found, wanted)


def test_only_what_is_asked_for_has_a_gradient() -> None:
    plain, other = two(SHAPES[0])
    images = images_for(SHAPES[0])
    other(images).sum().backward()
    assert images.grad is None
    other.weight.grad = None
    other.requires_grad_(False)
    images.requires_grad_()
    other(images).square().sum().backward()
    assert other.weight.grad is None
    assert images.grad is not None
    (wanted,) = torch.autograd.grad(plain(images).square().sum(), images)
    torch.testing.assert_close(images.grad, wanted)


def test_other_convolutions_stay_as_they_are() -> None:
    network = nn.Sequential(
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.ConvTranspose2d(4, 4, 3),
        nn.Conv1d(4, 4, 3),
        nn.Conv2d(4, 4, 3, padding="same"),
    )
    kinds = list(map(type, network))
    by_matrices(network)
    assert list(map(type, network))[:5] == kinds[:5]
    same = nn.Conv2d(4, 4, 3, padding="same")
    images = torch.randn(2, 4, 6, 6)
    wanted = same(images)
    by_matrices(same)
    torch.testing.assert_close(same(images), wanted)
    torch.testing.assert_close(same(images[0]), wanted[0])  # one image without a batch
