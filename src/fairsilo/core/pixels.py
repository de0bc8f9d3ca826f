"""How a network wants its images: in [-1, 1], or with a mean and a deviation of its own.

A network (or one inside it) that has the attribute `normalisation = (mean, std)`, one number per channel or one for
all, for pixels in [0, 1], gets (x / 255 - mean) / std. Without it images lie in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fairsilo.errors import FairsiloError

Normalisation = tuple[Sequence[float], Sequence[float]]


class Pixels:
    """Images as bytes, as pixels in [0, 1], and as one network sees them."""

    def __init__(self, normalisation: Normalisation | None = None) -> None:
        if normalisation is not None and not all(deviation > 0 for deviation in normalisation[1]):
            raise FairsiloError(f"the network's normalisation divides by {list(normalisation[1])}; it must be above 0")
        self.normalisation = normalisation
        self._tensors: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, network: nn.Module) -> Pixels:
        found = (getattr(module, "normalisation", None) for module in network.modules())
        return cls(next((one for one in found if one is not None), None))

    def seen(self, inputs: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Images (uint8) as the network sees them, on the device; anything else passes."""
        inputs = inputs.to(device)
        return self.from_bytes(inputs.to(dtype)) if inputs.dtype == torch.uint8 else inputs

    def from_bytes(self, values: Tensor) -> Tensor:
        """What the network sees of pixels from 0 to 255, held as floats of its type; they are changed in place."""
        if self.normalisation is None:
            return values.div_(127.5).sub_(1.0)
        mean, deviation = self._scale(values.device, values.dtype)
        return values.div_(255).sub_(mean).div_(deviation)

    def to_unit(self, inputs: Tensor) -> Tensor:
        """Pixels in [0, 1] again, from what the network sees."""
        if self.normalisation is None:
            return (inputs + 1) / 2
        mean, deviation = self._scale(inputs.device, inputs.dtype)
        return inputs * deviation + mean

    def from_unit(self, pixels: Tensor) -> Tensor:
        """What the network sees of pixels in [0, 1]."""
        if self.normalisation is None:
            return 2 * pixels - 1
        mean, deviation = self._scale(pixels.device, pixels.dtype)
        return (pixels - mean) / deviation

    def _scale(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        assert self.normalisation is not None
        if (device, dtype) not in self._tensors:
            mean, deviation = (torch.tensor(one, dtype=dtype).view(-1, 1, 1).to(device) for one in self.normalisation)
            self._tensors[device, dtype] = mean, deviation
        return self._tensors[device, dtype]
