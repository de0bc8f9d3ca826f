"""Convolutions whose kernel is a mixture of several networks' kernels."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RoutedConv(nn.Module):
    """A convolution whose kernel is, for each image, a mixture of given ones by weights in (0, 1)."""

    def __init__(self, conv: nn.Conv2d, kernels: Tensor, biases: Tensor | None) -> None:
        super().__init__()
        self.conv, self.kernels, self.biases = conv, kernels, biases
        wide = 2 * conv.in_channels
        layers = (nn.Linear(conv.in_channels, wide), nn.ReLU(), nn.Dropout(0.2), nn.Linear(wide, len(kernels)))
        self.router = nn.Sequential(*layers).to(kernels)

    def forward(self, images: Tensor) -> Tensor:
        weights = torch.sigmoid(self.router(images.mean((2, 3))))
        kernels = torch.einsum("nk,koihw->noihw", weights, self.kernels).flatten(0, 1)
        biases = None if self.biases is None else (weights @ self.biases).flatten()
        count, conv = len(images), self.conv
        joined = images.reshape(1, -1, *images.shape[2:])  # images side by side, as groups of one convolution
        place = (conv.stride, conv.padding, conv.dilation, conv.groups * count)
        mixed = F.conv2d(joined, kernels, biases, *place)  # type: ignore[arg-type]
        return mixed.view(count, -1, *mixed.shape[2:])


def routed(network: nn.Module, models: Sequence[Mapping[str, Tensor]]) -> nn.Module:
    """A frozen copy of a network whose convolutions have the kernels of all models (tensors by name) and a router."""
    network = copy.deepcopy(network).requires_grad_(False)
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.Conv2d) and module.padding_mode == "zeros" and f"{name}.weight" in models[0]:
            owner, _, leaf = name.rpartition(".")
            stacked = [
                torch.stack([view[key] for view in models])
                for key in (f"{name}.weight", f"{name}.bias")
                if key in models[0]
            ]
            setattr(
                network.get_submodule(owner),
                leaf,
                RoutedConv(module, stacked[0], stacked[1] if len(stacked) > 1 else None),
            )
    return network
