"""Random changes of training images: what is drawn, before the first step, and what it does to a batch.

`data.augment` names changes joined by `+`, with settings in brackets: `crop + flip + rotation(degrees=30)`, or a set of
them that a paper uses (`SETS`). Geometry comes first, then colours, then holes, whatever the order of the names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core.calls import settings_in
from fairsilo.core.streams import Batches
from fairsilo.errors import FairsiloError
from fairsilo.fields import check_fields, range_text, setting

SETS = {
    "ga": "resized-crop + flip + jitter(hue=0.4) + grayscale",
    "fedgcr": "flip + rotation(degrees=30)",
    "flamby": "scaling(by=0.07, chance=0.5) + rotation(degrees=50, chance=0.5) + shear(degrees=0.1, chance=0.5) + crop"
    " + flip(chance=0.33) + upside-down(chance=0.33) + jitter(brightness=0.15, contrast=0.1, saturation=0, chance=0.5)"
    " + holes(chance=0.5)",
    "prostate": "flip + upside-down + turns",
}
LUMINANCE = (0.299, 0.587, 0.114)
COLOURS = ("jitter", "grayscale")  # these need pixels in a known unit: bytes


class Change(Protocol):
    """One kind of random change."""

    name: ClassVar[str]
    does: ClassVar[str]

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        """The choices for all images of some batches (channels x height x width each), one row per image."""
        ...


def chance(value: float) -> float:
    return setting(value, "how often an image is changed", low=0, high=1, open_low=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Crop:
    name: ClassVar[str] = "crop"
    does: ClassVar[str] = "moved up to a share of its height each way, by whole pixels; what comes in is black"
    margin: float = setting(0.125, "that share; one pixel at least", low=0, high=0.5, open_low=True)

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        margin = max(1, int(self.margin * shape[-2]))
        down, right = (batches.whole(-margin, margin + 1) for _ in range(2))
        return {"shifts": torch.stack([down, right], 1)}


@dataclass(frozen=True)
class Flip:
    name: ClassVar[str] = "flip"
    does: ClassVar[str] = "mirrored from left to right"
    chance: float = chance(0.5)

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        return {"mirrored": batches.chosen(self.chance)}


@dataclass(frozen=True)
class UpsideDown:
    name: ClassVar[str] = "upside-down"
    does: ClassVar[str] = "mirrored from top to bottom"
    chance: float = chance(0.5)

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        return {"upended": batches.chosen(self.chance)}


@dataclass(frozen=True)
class Turns:
    name: ClassVar[str] = "turns"
    does: ClassVar[str] = "turned by 0, 90, 180 or 270 degrees; square images only"

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        if shape[-1] != shape[-2]:
            raise FairsiloError(
                f"data.augment has turns, and images have {shape[-2]} x {shape[-1]} pixels; only square ones keep "
                "their shape (rotation takes any)"
            )
        return {"turns": batches.whole(0, 4)}


@dataclass(frozen=True)
class ResizedCrop:
    name: ClassVar[str] = "resized-crop"
    does: ClassVar[str] = "a part of it at full size, of a random share of its area, place and proportions"
    scale: float = setting(0.7, "least share of the area", low=0, high=1, open_low=True)
    ratio: float = setting(4 / 3, "most by which width and height change against each other", low=1)

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        area = batches.uniform(self.scale, 1)
        ratio = torch.exp(batches.uniform(-math.log(self.ratio), math.log(self.ratio)))
        wide, high = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
        across, down = (1 - wide) * batches.uniform(-1, 1), (1 - high) * batches.uniform(-1, 1)
        return {"affine": _affine((wide, 0, across), (0, high, down))}


@dataclass(frozen=True)
class Rotation:
    name: ClassVar[str] = "rotation"
    does: ClassVar[str] = "turned about its centre; what comes in is black"
    degrees: float = setting(30.0, "at most so far, either way", low=0, high=180, open_low=True)
    chance: float = chance(1.0)

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        angle = torch.deg2rad(batches.uniform(-self.degrees, self.degrees) * batches.chosen(self.chance))
        aspect = shape[-2] / shape[-1]  # coordinates go from -1 to 1 both ways, whatever the shape
        return {"affine": _affine((angle.cos(), -angle.sin() * aspect, 0), (angle.sin() / aspect, angle.cos(), 0))}


@dataclass(frozen=True)
class Scaling:
    name: ClassVar[str] = "scaling"
    does: ClassVar[str] = "larger or smaller about its centre; what comes in is black"
    by: float = setting(0.1, "at most by this share, either way", low=0, high=0.9, open_low=True)
    chance: float = chance(1.0)

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        factor = 1 / (1 + _either_way(self.by, self.chance, batches))
        return {"affine": _affine((factor, 0, 0), (0, factor, 0))}


@dataclass(frozen=True)
class Shear:
    name: ClassVar[str] = "shear"
    does: ClassVar[str] = "rows moved sideways against each other; what comes in is black"
    degrees: float = setting(10.0, "at most so far, either way", low=0, high=80, open_low=True)
    chance: float = chance(1.0)

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        angle = torch.deg2rad(batches.uniform(-self.degrees, self.degrees) * batches.chosen(self.chance))
        return {"affine": _affine((1, angle.tan() * shape[-2] / shape[-1], 0), (0, 1, 0))}


@dataclass(frozen=True)
class Jitter:
    name: ClassVar[str] = "jitter"
    does: ClassVar[str] = "brightness, contrast, and with three channels saturation and hue, in this order"
    brightness: float = setting(0.4, "multiplied by 1 plus or minus at most this", low=0, high=1)
    contrast: float = setting(0.4, "likewise, about the mean luminance", low=0, high=1)
    saturation: float = setting(0.4, "likewise, about each pixel's luminance", low=0, high=1)
    hue: float = setting(0.0, "moved at most by this share of the colour circle, either way", low=0, high=0.5)
    chance: float = chance(1.0)

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        chosen = batches.chosen(self.chance)
        found = {}
        for name in ("brightness", "contrast", "saturation", "hue"):
            most = getattr(self, name)
            amount = batches.uniform(-most, most) * chosen
            if most and (shape[0] == 3 or name in ("brightness", "contrast")):
                found[name] = amount if name == "hue" else 1 + amount
        return found


@dataclass(frozen=True)
class Grayscale:
    name: ClassVar[str] = "grayscale"
    does: ClassVar[str] = "without colour; images of three channels only"
    chance: float = chance(0.1)

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        if shape[0] != 3:
            raise FairsiloError(
                f"data.augment has grayscale, and images have {shape[0]} channels, not the 3 of colours"
            )
        # a saturation of zero; beside jitter's own factor, which `draws` multiplies it with
        return {"saturation": 1.0 - batches.chosen(self.chance).float()}


@dataclass(frozen=True)
class Holes:
    name: ClassVar[str] = "holes"
    does: ClassVar[str] = "black squares (coarse dropout); masks keep what they hide"
    most: int = setting(8, "of them in an image; at least one", low=1, high=64)
    side: float = setting(0.08, "of a square, as a share of the height", low=0, high=1, open_low=True)
    chance: float = chance(1.0)

    def draw(self, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        side = max(1, round(self.side * shape[-2]))
        number = batches.whole(1, self.most + 1) * batches.chosen(self.chance)
        top, left = (batches.whole(0, max(1, length - side + 1), self.most) for length in shape[-2:])
        made = torch.arange(self.most) < number[:, None]
        return {"holes": torch.stack([top, top + side * made, left, left + side * made], -1)}


# in the order in which they draw: a change added at the end leaves the draws of the others alone
CHANGES: tuple[type[Change], ...] = (
    Crop, Flip, UpsideDown, Turns, ResizedCrop, Rotation, Scaling, Shear, Jitter, Grayscale, Holes,
)  # fmt: skip


@lru_cache(maxsize=64)
def changes_of(text: str) -> tuple[Change, ...]:
    """The changes that `data.augment` names, in the order in which they draw.

    Raises:
        FairsiloError: There is no such change, it is named twice, or a setting of it is wrong.
    """
    kinds = {kind.name: kind for kind in CHANGES}
    found: dict[str, Change] = {}
    for piece in map(str.strip, SETS.get(text.strip(), text).split("+")):
        name, _, brackets = piece.partition("(")
        if name not in kinds or (brackets and not brackets.endswith(")")):
            rule = f"it must be none, a set ({', '.join(SETS)}) or changes joined by +: {', '.join(kinds)}"
            raise FairsiloError(f"data.augment is {text!r}; {rule}")
        if name in found:
            raise FairsiloError(f"data.augment is {text!r}, which has {name} twice")
        given, known = settings_in(brackets[:-1], piece), fields(kinds[name])  # type: ignore[arg-type]
        for key in given.keys() - {item.name for item in known}:
            has = ", ".join(f"{item.name} ({range_text(item.metadata)})" for item in known) or "none"
            raise FairsiloError(f"data.augment: {name} has no setting {key}; it has {has}")
        found[name] = kinds[name](**given)
        check_fields(found[name], f"data.augment: {name}.")
    return tuple(found[name] for name in kinds if name in found)


def needs_bytes(text: str) -> bool:
    """Whether some change computes with colours, for which pixels must have a known range."""
    return any(name in SETS.get(text.strip(), text) for name in COLOURS)


def draws(kinds: str, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
    """The random choices for all images of some batches (channels x height x width each), one row per image."""
    found: dict[str, Tensor] = {}
    for change in changes_of(kinds):
        for key, drawn in change.draw(shape, batches).items():
            if key not in found:
                found[key] = drawn
            else:  # several affine maps are one; so are two factors
                found[key] = found[key] @ drawn if key == "affine" else found[key] * drawn
    return found


def augmented(images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
    """Images (floats from 0, black, to 255; no images are changed in place) as it was drawn."""
    return _with_holes(_recoloured(moved(images, drawn), drawn), drawn)


def moved(images: Tensor, drawn: Mapping[str, Tensor], nearest: bool = False) -> Tensor:
    """The geometry alone, which masks share; `nearest` makes no values that were not there."""
    if "affine" in drawn:
        where = drawn["affine"][:, :2].to(images.dtype)
        grid = F.affine_grid(where, list(images.shape), align_corners=False)
        images = F.grid_sample(images, grid, mode="nearest" if nearest else "bilinear", align_corners=False)
    if "shifts" in drawn:
        images = _shifted(images, drawn["shifts"])
    if "mirrored" in drawn:
        images = torch.where(_per_image(drawn["mirrored"]), images.flip(3), images)
    if "upended" in drawn:
        images = torch.where(_per_image(drawn["upended"]), images.flip(2), images)
    if "turns" in drawn:
        for quarters in (1, 2):  # two bits of the number of quarters
            odd = drawn["turns"] // quarters % 2 == 1
            images = torch.where(_per_image(odd), torch.rot90(images, quarters, (2, 3)), images)
    return images


def _shifted(images: Tensor, shifts: Tensor) -> Tensor:
    count, _, height, width = images.shape
    down, right = shifts.unsqueeze(-1).unbind(1)
    rows, columns = (
        start + torch.arange(length, device=images.device) for start, length in ((down, height), (right, width))
    )
    sample = torch.arange(count, device=images.device)[:, None, None]
    found = images.permute(0, 2, 3, 1)[
        sample, rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None, :]
    ]
    inside = (rows == rows.clamp(0, height - 1))[:, :, None] & (columns == columns.clamp(0, width - 1))[:, None, :]
    return torch.where(inside[..., None], found, found.new_zeros(())).permute(0, 3, 1, 2).contiguous()


def _recoloured(images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
    if "brightness" in drawn:
        images = (images * _per_image(drawn["brightness"]).to(images.dtype)).clamp(0, 255)
    if "contrast" in drawn:
        middle = _luminance(images).mean((1, 2, 3), keepdim=True)
        images = _blended(images, middle, drawn["contrast"])
    if "saturation" in drawn:
        images = _blended(images, _luminance(images), drawn["saturation"])
    if "hue" in drawn:
        images = _turned_hue(images, drawn["hue"])
    return images


def _blended(images: Tensor, towards: Tensor, factor: Tensor) -> Tensor:
    return (towards + _per_image(factor).to(images.dtype) * (images - towards)).clamp(0, 255)


def _luminance(images: Tensor) -> Tensor:
    """Of each pixel, with one channel; the mean of the channels where they are not red, green and blue."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    red, green, blue = images.unbind(1)
    return (LUMINANCE[0] * red + LUMINANCE[1] * green + LUMINANCE[2] * blue).unsqueeze(1)


def _turned_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Hue, saturation and value with the hue moved; (value and saturation are those of the hexagonal HSV)."""
    value, least = images.amax(1), images.amin(1)
    span = value - least
    red, green, blue = images.unbind(1)
    safe = torch.where(span > 0, span, torch.ones_like(span))
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )  # in sixths of the circle
    hue = hue + 6 * turn.to(images.dtype)[:, None, None]

    def channel(offset: float) -> Tensor:
        place = (offset + hue) % 6
        return value - span * torch.minimum(place, 4 - place).clamp(0, 1)

    return torch.stack([channel(5), channel(3), channel(1)], 1)


def _with_holes(images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
    if "holes" not in drawn:
        return images
    top, bottom, left, right = (edge.unsqueeze(-1) for edge in drawn["holes"].unbind(-1))
    rows, columns = (torch.arange(length, device=images.device) for length in images.shape[-2:])
    across, down = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    hidden = (across[..., :, None] & down[..., None, :]).any(1)
    return torch.where(hidden[:, None], images.new_zeros(()), images)


def _either_way(most: float, chance: float, batches: Batches) -> Tensor:
    """Numbers between -most and most, zero where an image is left alone."""
    return batches.uniform(-most, most) * batches.chosen(chance)


def _affine(first: tuple[Tensor | float, ...], second: tuple[Tensor | float, ...]) -> Tensor:
    """Images x 3 x 3: where in the image, from -1 to 1, a place of the changed image is taken from."""
    count = max(len(one) for one in (*first, *second) if isinstance(one, Tensor))
    rows = [torch.stack([torch.as_tensor(one).float().expand(count) for one in row], 1) for row in (first, second)]
    return torch.stack([*rows, torch.tensor([0.0, 0.0, 1.0]).expand(count, 3)], 1)


def _per_image(numbers: Tensor) -> Tensor:
    return numbers[:, None, None, None]
