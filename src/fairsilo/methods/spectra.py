"""Amplitude and phase of images: what HarmoFL and ELCFS do in the frequency domain.

An image keeps its phase; its amplitude is changed in a square window around the zero frequency, of half-size
floor(min(H, W) L), ends included. Images lie in 0..1: else the sign of a dark image's mean would be a phase, not an
amplitude.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fairsilo.core.attachments import Sizes

PLANE = ("channels", "rows", "columns")  # the shape of such a window's amplitudes, by the names of `window_sizes`


def amplitude(images: Tensor) -> Tensor:
    """|FFT| over the last two dimensions, the zero frequency in the middle."""
    spectrum: Tensor = torch.fft.fftshift(torch.fft.fft2(images), dim=(-2, -1))
    return spectrum.abs()


def window(height: int, width: int, share: float) -> tuple[slice, slice]:
    """Rows and columns of the low frequencies in a shifted spectrum."""
    half = int(min(height, width) * share)
    row, column = height // 2, width // 2
    return slice(row - half, row + half + 1), slice(column - half, column + half + 1)


def window_sizes(known: Sizes, share: float) -> dict[str, int]:
    """How many rows and columns the window has, where the size of the images is known."""
    height, width = known.get("height"), known.get("width")
    if not isinstance(height, int) or not isinstance(width, int):
        return {}
    rows, columns = window(height, width, share)
    return {"rows": len(range(height)[rows]), "columns": len(range(width)[columns])}


def low_amplitude(images: Tensor, share: float) -> Tensor:
    """The amplitude of images inside the window."""
    rows, columns = window(images.shape[-2], images.shape[-1], share)
    return amplitude(images)[..., rows, columns]


def with_low_amplitude(images: Tensor, low: Tensor, share: float, own: Tensor | float = 0.0) -> Tensor:
    """The images with their low-frequency amplitude replaced by own * theirs + (1 - own) * low."""
    spectrum = torch.fft.fftshift(torch.fft.fft2(images), dim=(-2, -1))
    size, phase = spectrum.abs(), spectrum.angle()
    rows, columns = window(images.shape[-2], images.shape[-1], share)
    mixed = size.clone()
    mixed[..., rows, columns] = own * size[..., rows, columns] + (1 - own) * low
    changed: Tensor = torch.fft.ifft2(torch.fft.ifftshift(torch.polar(mixed, phase), dim=(-2, -1)))
    return changed.real
