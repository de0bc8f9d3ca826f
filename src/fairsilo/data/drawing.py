"""Digits drawn in the styles of the embedded federation's domains, for synthetic images (`fairsilo.data.synthetic`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from torch import Tensor

from fairsilo.core import streams
from fairsilo.errors import FairsiloError

Pixels = NDArray[np.float64]  # height x width, or height x width x 3, between 0 and 1


# Strokes of each figure in a box one wide and one high; corners are where one stroke ends and another begins.
STROKES: dict[str, tuple[tuple[tuple[float, float], ...], ...]] = {
    "0": (((0.5, 0), (0.2, 0.08), (0.1, 0.5), (0.2, 0.92), (0.5, 1), (0.8, 0.92), (0.9, 0.5), (0.8, 0.08), (0.5, 0)),),
    "1": (((0.28, 0.22), (0.55, 0)), ((0.55, 0), (0.55, 1))),
    "2": (((0.15, 0.28), (0.2, 0), (0.6, -0.05), (0.92, 0.15), (0.8, 0.5), (0.14, 1)), ((0.14, 1), (0.9, 1))),
    "3": (
        ((0.15, 0.1), (0.45, -0.05), (0.9, 0.02), (0.85, 0.42), (0.42, 0.47)),
        ((0.42, 0.47), (0.95, 0.5), (0.98, 0.95), (0.5, 1.05), (0.12, 0.86)),
    ),
    "4": (((0.62, 0), (0.08, 0.68)), ((0.08, 0.68), (0.94, 0.68)), ((0.66, 0.28), (0.66, 1))),
    "5": (
        ((0.84, 0), (0.26, 0)),
        ((0.26, 0), (0.2, 0.46)),
        ((0.2, 0.46), (0.5, 0.32), (0.95, 0.42), (0.95, 0.92), (0.5, 1.06), (0.12, 0.86)),
    ),
    "6": (
        ((0.78, 0.02), (0.4, 0.12), (0.08, 0.6), (0.16, 0.98), (0.55, 1.04)),
        ((0.55, 1.04), (0.94, 0.9), (0.88, 0.5), (0.5, 0.42), (0.2, 0.58), (0.13, 0.72)),
    ),
    "7": (((0.1, 0), (0.88, 0)), ((0.88, 0), (0.55, 0.45), (0.4, 1))),
    "8": (
        ((0.5, 0.47), (0.1, 0.38), (0.15, 0), (0.5, -0.03), (0.85, 0), (0.9, 0.38), (0.5, 0.47)),
        ((0.5, 0.47), (0.05, 0.56), (0.05, 0.98), (0.5, 1.04), (0.95, 0.98), (0.95, 0.56), (0.5, 0.47)),
    ),
    "9": (
        ((0.22, 0.98), (0.6, 0.88), (0.92, 0.4), (0.84, 0.02), (0.45, -0.04)),
        ((0.45, -0.04), (0.06, 0.1), (0.12, 0.5), (0.5, 0.58), (0.8, 0.42), (0.87, 0.28)),
    ),
}


class Easel:
    """Random numbers and canvas of one image."""

    def __init__(self, side: int, *purpose: object) -> None:
        self.random = np.random.default_rng(streams.key(*purpose))  # type: ignore[arg-type]
        self.side = side

    def between(self, low: float, high: float) -> float:
        return float(self.random.uniform(low, high))

    def colour(self, low: float, high: float) -> Pixels:
        return self.random.uniform(low, high, 3)

    def grain(self, *shape: int) -> Pixels:
        return self.random.standard_normal((self.side, self.side, *shape))

    def ramp(self) -> Pixels:
        """From 0 to 1 across the canvas, in a random direction."""
        angle = self.between(0, 2 * np.pi)
        steps = np.linspace(-0.5, 0.5, self.side)
        along: Pixels = np.cos(angle) * steps[None, :] + np.sin(angle) * steps[:, None]
        return 0.5 + along / 2**0.5

    def blurred(self, image: Pixels, radius: float) -> Pixels:
        """Out of focus, by a radius in hundredths of the canvas."""
        picture = Image.fromarray(_grey(image)).filter(ImageFilter.GaussianBlur(radius * self.side / 100))
        return np.asarray(picture, np.float64) / 255

    def by_hand(self, digit: str, pen: tuple[float, float], shift: float = 0.0) -> Pixels:
        """Strokes of an unsteady hand, ink between 0 and 1; the pen's width is a share of the canvas."""
        turn, slant, height = self.between(-0.2, 0.2), self.between(-0.15, 0.3), self.between(0.6, 0.78)
        size = np.array([height * self.between(0.55, 0.8), height])
        middle = np.array([0.5 + shift, 0.5]) + self.random.uniform(-0.06, 0.06, 2)
        turned = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        width = self.between(*pen) * self.side
        picture = Image.new("L", (self.side, self.side), 0)
        draw = ImageDraw.Draw(picture)
        for stroke in STROKES[digit]:
            points = np.array(stroke) - 0.5 + self.random.normal(0, 0.02, (len(stroke), 2))
            points[:, 0] -= slant * points[:, 1]
            path = (_smooth(points) * size) @ turned.T + middle
            for x, y in _dense(path * self.side):
                draw.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), fill=255)
        return np.asarray(picture, np.float64) / 255

    def in_type(self, digit: str, faces: tuple[str, ...], shift: float = 0.0) -> Pixels:
        """A figure in type, in a random weight."""
        face = _face(str(self.random.choice(faces)), round(self.side * self.between(0.7, 0.9)))
        weight = int(self.random.integers(4)) * max(1, self.side // 96)
        box = face.getbbox(digit, stroke_width=weight)
        drift = self.random.uniform(-0.06, 0.06, 2) + np.array([shift, 0.0])
        corner = np.array([self.side - box[0] - box[2], self.side - box[1] - box[3]]) / 2 + drift * self.side
        picture = Image.new("L", (self.side, self.side), 0)
        ImageDraw.Draw(picture).text((corner[0], corner[1]), digit, 255, font=face, stroke_width=weight)
        return np.asarray(picture.rotate(self.between(-5, 5), Image.Resampling.BILINEAR), np.float64) / 255


@cache
def _face(name: str, size: int) -> ImageFont.FreeTypeFont:
    if name == "pillow":
        face = ImageFont.load_default(size)
        if not isinstance(face, ImageFont.FreeTypeFont):
            raise FairsiloError("data.synthetic=glyphs draws type, and this Pillow was built without FreeType")
        return face
    import matplotlib

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"), size)


def _smooth(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Corners cut three times over; the ends stay."""
    for _ in range(3 if len(points) > 2 else 0):
        ahead = points[1:] - points[:-1]
        cut = np.stack([points[:-1] + ahead / 4, points[:-1] + 3 * ahead / 4], 1).reshape(-1, 2)
        points = np.concatenate([points[:1], cut, points[-1:]])
    return points


def _dense(path: NDArray[np.float64]) -> Iterator[tuple[float, float]]:
    """A point of the pen's way at every pixel or so."""
    for first, second in itertools.pairwise(path):
        for along in np.linspace(0, 1, 2 + int(np.abs(second - first).max())):
            x, y = first + along * (second - first)
            yield float(x), float(y)


def _grey(image: Pixels) -> NDArray[np.uint8]:
    return (image.clip(0, 1) * 255).round().astype(np.uint8)


def as_bytes(image: Pixels) -> Tensor:
    return torch.from_numpy(_grey(image)).permute(2, 0, 1).contiguous()


def _over(background: Pixels, colour: Pixels | float, ink: Pixels) -> Pixels:
    return background + (colour - background) * ink[..., None]


# --------------------------------------------------------------------------------------------------------- the styles
# Each draws one image of a digit, or the background alone where the digit is None.
def _scan(easel: Easel, digit: str | None) -> Pixels:
    """Dark pen on office paper that darkens to one side, sometimes ruled."""
    paper = easel.between(0.88, 1) - 0.12 * easel.ramp() + 0.02 * easel.grain()
    gap = easel.side // easel.random.integers(3, 6)
    if easel.random.random() < 0.3:
        paper[easel.random.integers(gap) :: gap] -= 0.12
    ink = easel.by_hand(digit, (0.07, 0.15)) if digit else np.zeros_like(paper)
    return _over(np.repeat(paper[..., None], 3, 2), easel.between(0.02, 0.3), ink)


def _photo(easel: Easel, digit: str | None) -> Pixels:
    """Pen over an imagined scene: soft coloured shapes in front of a sky or a wall."""
    scene = easel.colour(0.1, 0.9) + (easel.colour(0.1, 0.9) - easel.colour(0.1, 0.9)) * easel.ramp()[..., None]
    for _ in range(easel.random.integers(4, 9)):
        ramp, level = easel.ramp(), easel.between(0.35, 0.65)
        edge = ((ramp - level) * easel.between(4, 30)).clip(0, 1)
        scene = _over(scene, easel.colour(0, 1), 0.6 * edge * (easel.ramp() > easel.between(0.2, 0.7)))
    scene = (scene + 0.05 * easel.grain(3)).clip(0, 1)
    bright = float(scene.mean()) > 0.5
    pen = easel.colour(0, 0.2) if bright else easel.colour(0.85, 1)
    ink = easel.by_hand(digit, (0.07, 0.14)) if digit else np.zeros((easel.side, easel.side), np.float64)
    return _over(scene * 0.75 + 0.25 * bright, pen, ink)


def _print(easel: Easel, digit: str | None) -> Pixels:
    """Type on tinted paper under a screen of lines, sometimes reversed."""
    paper = np.array([1, 0.96, 0.87], np.float64) * easel.between(0.85, 1)
    lines = np.arange(easel.side) // max(1, easel.side // 32) % 2
    ground = np.broadcast_to(paper, (easel.side, easel.side, 3)) - easel.between(0, 0.12) * lines[:, None, None]
    pigment = np.broadcast_to(easel.colour(0, 0.3), ground.shape)
    if easel.random.random() < 0.25:
        ground, pigment = pigment, ground
    ink = easel.in_type(digit, ("pillow", "cmmi10")) if digit else np.zeros((easel.side, easel.side), np.float64)
    return _over(ground, pigment, ink)


def _sketch(easel: Easel, digit: str | None) -> Pixels:
    """The outline of a hand-drawn figure in pencil on rough paper."""
    paper = easel.between(0.86, 1) + 0.04 * easel.grain()
    pencil = np.zeros_like(paper)
    if digit:
        shape = Image.fromarray(_grey(easel.by_hand(digit, (0.11, 0.18))))
        width = 2 * max(1, easel.side // 64) + 1
        grown, shrunk = shape.filter(ImageFilter.MaxFilter(width)), shape.filter(ImageFilter.MinFilter(width))
        pencil = (np.asarray(grown, np.float64) - np.asarray(shrunk, np.float64)) / 255
    pencil = pencil * (easel.between(0.6, 0.95) + 0.15 * easel.grain()).clip(0, 1)
    return _over(np.repeat(paper[..., None], 3, 2), easel.between(0.1, 0.4), pencil)


def _street(easel: Easel, digit: str | None) -> Pixels:
    """A painted or mounted number on a framed plate, with others beside it, in slanting light."""
    plate = easel.colour(0.05, 0.95)
    bright = float(plate.mean()) > 0.5
    figure = easel.colour(0, 0.25) if bright else easel.colour(0.8, 1)
    ground = np.broadcast_to(plate, (easel.side, easel.side, 3))
    frame = np.zeros((easel.side, easel.side), np.float64)
    edge = round(easel.side * easel.between(0, 0.06))
    frame[:edge], frame[easel.side - edge :] = 1, 1
    ground = _over(ground, figure, 0.5 * frame)
    ink = np.zeros_like(frame)
    for shift in (-0.75, 0.75, 0.0) if digit else ():
        shown = digit if shift == 0 else str(easel.random.integers(10))
        if shift == 0 or easel.random.random() < 0.6:
            painted = easel.random.random() < 0.3
            assert shown is not None
            mark = easel.by_hand(shown, (0.09, 0.13), shift) if painted else easel.in_type(shown, ("pillow",), shift)
            ink = np.maximum(ink, mark)
    light = easel.between(0.6, 0.9) + 0.35 * easel.ramp()
    ink = easel.blurred(ink, easel.between(0, 2))
    return _over(ground, figure, ink) * light[..., None] + easel.between(0.05, 0.2) * easel.grain(3)


STYLES: dict[str, Callable[[Easel, str | None], Pixels]] = {
    "scan": _scan,
    "photo": _photo,
    "print": _print,
    "sketch": _sketch,
    "street": _street,
}
