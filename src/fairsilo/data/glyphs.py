"""The embedded federation: ten digits in five domains, drawn from what scikit-learn and matplotlib ship.

Handwriting comes from scikit-learn's 1,797 scanned digits, divided among three domains so that no original is
in two; printed figures come from matplotlib's fonts, divided between two domains and, font by font, among the
splits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from fairsilo.core.streams import key
from fairsilo.data import embedded
from fairsilo.data.dataset import TEST, TRAIN, VALIDATION, Dataset, Domain
from fairsilo.errors import FairsiloError

CLASSES = tuple("0123456789")
HANDWRITTEN = ("scan", "photo", "sketch")
# Only fonts whose digits are ordinary digits; the symbol fonts beside them draw brackets or nothing at all.
FONTS = {
    "print": (
        "DejaVuSerif",
        "DejaVuSerif-Bold",
        "DejaVuSerif-BoldItalic",
        "DejaVuSerif-Italic",
        "STIXGeneral",
        "STIXGeneralBol",
        "STIXGeneralBolIta",
        "STIXGeneralItalic",
        "cmb10",
        "cmr10",
        "cmti10",
        "cmtt10",
    ),
    "street": (
        "DejaVuSans",
        "DejaVuSans-Bold",
        "DejaVuSans-BoldOblique",
        "DejaVuSans-Oblique",
        "DejaVuSansMono",
        "DejaVuSansMono-Bold",
        "DejaVuSansMono-BoldOblique",
        "DejaVuSansMono-Oblique",
        "cmss10",
    ),
}
DOMAINS = embedded.DOMAINS["glyphs"]
SHARES = {VALIDATION: 0.13, TEST: 0.25}  # of each class; the rest trains
ORIGINALS = 1797  # handwriting groups are 0..1796, printed groups (font, digit) follow
HANDFUL = 128  # images drawn at once
OVERSAMPLING = 2  # shapes are drawn this much larger than the image and averaged down, for smooth edges
FIGURE = 64  # pixels of the square in which a printed figure is drawn once
# Coloured plates as they hang in streets: blue, green, red, yellow, brown, white, black.
PLATES = (
    (0.10, 0.30, 0.70),
    (0.05, 0.45, 0.25),
    (0.75, 0.12, 0.12),
    (0.95, 0.80, 0.15),
    (0.42, 0.26, 0.15),
    (0.92, 0.92, 0.90),
    (0.12, 0.12, 0.14),
)


class Plan(NamedTuple):
    """What to draw in one domain: per image the row of its shape, its class, its split and its group."""

    shapes: Tensor  # float, K x 1 x h x w, ink between 0 and 1
    row: NDArray[np.int64]
    label: NDArray[np.int64]
    split: NDArray[np.int8]
    group: NDArray[np.int64]


class Brush:
    """Random numbers and canvas for one handful of images: every draw of theirs comes from here."""

    def __init__(self, seed: int, domain: str, number: int, size: int, count: int) -> None:
        self.random = np.random.default_rng(key(seed, "glyphs", domain, "render", number))
        self.size, self.canvas, self.count = size, size * OVERSAMPLING, count

    def uniform(self, low: float, high: float, channels: int = 1) -> Tensor:
        """One number per image and channel, shaped to multiply images."""
        return torch.from_numpy(self.random.uniform(low, high, (self.count, channels, 1, 1)).astype(np.float32))

    def chance(self, probability: float) -> Tensor:
        """One when the event happens to the image, else zero."""
        return (self.uniform(0, 1) < probability).float()

    def noise(self, side: int, channels: int = 1) -> Tensor:
        """Independent normal noise per pixel."""
        shape = (self.count, channels, side, side)
        return torch.from_numpy(self.random.standard_normal(shape, dtype=np.float32))

    def clouds(self, cells: int, channels: int = 1) -> Tensor:
        """Smooth noise on the canvas: normal at the corners of a coarse grid, bilinear between them."""
        canvas = (self.canvas, self.canvas)
        return F.interpolate(self.noise(cells, channels), canvas, mode="bilinear", align_corners=False)

    def reduce(self, image: Tensor) -> Tensor:
        """From the canvas down to the image."""
        return F.avg_pool2d(image, OVERSAMPLING)


def glyphs(seed: int = 0, size: int = 32, per_domain: int = 1000) -> Dataset:
    """The embedded federation of five domains, the same for the same arguments on every call."""
    if not 16 <= size <= 256:
        raise FairsiloError(f"glyphs size is {size}, but must lie between 16 and 256 pixels.")
    if not 100 <= per_domain <= 100_000:
        raise FairsiloError(f"glyphs per_domain is {per_domain}, but must lie between 100 and 100000 images.")
    domains = {name: _domain(name, seed, size, per_domain) for name in DOMAINS}
    return Dataset("glyphs", CLASSES, domains, embedded.DATASETS["glyphs"], source=_sources())


def _sources() -> dict[str, str]:
    return {
        "handwriting": "scikit-learn load_digits (UCI optical recognition of handwritten digits)",
        "photographs": "scikit-learn load_sample_image (china.jpg, flower.jpg)",
        "type": "DejaVu, STIX and Computer Modern fonts as shipped with matplotlib",
    }


def _domain(name: str, seed: int, size: int, count: int) -> Domain:
    plan = _plan_type(name, seed, count) if name in FONTS else _plan_handwriting(name, seed, count)
    images = torch.empty(count, 3, size, size, dtype=torch.uint8)
    for number, chosen in enumerate(_chunks(plan.split)):
        shapes = plan.shapes[torch.from_numpy(plan.row[chosen])]
        drawn = _RENDERERS[name](shapes, Brush(seed, name, number, size, len(chosen)))
        images[torch.from_numpy(chosen)] = (drawn.clamp(0, 1) * 255).round().to(torch.uint8)
    return Domain(
        name=name,
        inputs=images,
        targets=torch.from_numpy(plan.label),
        split=torch.from_numpy(plan.split),
        group=torch.from_numpy(plan.group),
    )


def _chunks(split: NDArray[np.int8]) -> Iterator[NDArray[np.int64]]:
    """The images in handfuls of one split, so that a street number has no neighbours from another split."""
    for value in (TRAIN, VALIDATION, TEST):
        members = np.flatnonzero(split == value)
        for start in range(0, len(members), HANDFUL):
            yield members[start : start + HANDFUL]


# ---- which original or font is drawn in which domain and split


def _plan_handwriting(name: str, seed: int, count: int) -> Plan:
    """Each class's originals are dealt to the three handwritten domains, then to the splits of each."""
    shapes, labels = _handwriting()
    pools = []
    for digit in range(len(CLASSES)):
        random = np.random.default_rng(key(seed, "glyphs", "originals", digit))
        originals = random.permutation(np.flatnonzero(labels == digit))
        pools.append(originals[HANDWRITTEN.index(name) :: len(HANDWRITTEN)])
    row, splits = _deal(pools, count, name, seed)
    return Plan(shapes, row, labels[row], splits, group=row)


def _plan_type(name: str, seed: int, count: int) -> Plan:
    """Whole fonts are dealt to the splits, so that the test shows type never seen in training."""
    fonts = np.random.default_rng(key(seed, "glyphs", name, "fonts")).permutation(len(FONTS[name]))
    pools = [fonts * len(CLASSES) + digit for digit in range(len(CLASSES))]
    row, splits = _deal(pools, count, name, seed)
    first = ORIGINALS + (0 if name == "print" else len(FONTS["print"]) * len(CLASSES))
    return Plan(_type(name), row, row % len(CLASSES), splits, group=row + first)


def _deal(
    pools: list[NDArray[np.int64]], count: int, name: str, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Rows and splits of all images: each class's pool is cut into splits, each drawn from as often as needed."""
    rows, splits = [], []
    for digit, pool in enumerate(pools):
        images = count // len(CLASSES) + (digit < count % len(CLASSES))
        parts = np.split(pool, np.cumsum([max(2, round(share * len(pool))) for share in SHARES.values()]))
        quotas = [round(share * images) for share in SHARES.values()]
        for split, part, quota in zip((*SHARES, TRAIN), parts, [*quotas, images - sum(quotas)], strict=True):
            # More images than originals: the same originals again, drawn differently.
            rows.append(np.resize(part, quota))
            splits.append(np.full(quota, split, np.int8))
    # Mixed, so that the beginning of a domain looks like the domain.
    order = np.random.default_rng(key(seed, "glyphs", name, "order")).permutation(count)
    return np.concatenate(rows)[order], np.concatenate(splits)[order]


# ---- the raw material, read once per process


@cache
def _handwriting() -> tuple[Tensor, NDArray[np.int64]]:
    """The 8 x 8 scans with an empty margin of one pixel, enlarged smoothly five times, and their labels."""
    file = _shipped("data/digits.csv.gz")
    if file is None:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
    else:
        rows = np.loadtxt(file, delimiter=",")
        images, labels = rows[:, :-1], rows[:, -1]
    scans = F.pad(torch.from_numpy(images.astype(np.float32) / 16).reshape(-1, 1, 8, 8), (1, 1, 1, 1))
    shapes = F.interpolate(scans, scale_factor=5, mode="bicubic", align_corners=False)
    return shapes, labels.astype(np.int64)


@cache
def _type(domain: str) -> Tensor:
    """Every digit of every font of the domain, font after font, centred in a square."""
    figures = [_figure(font, digit) for font in FONTS[domain] for digit in CLASSES]
    return torch.stack(figures).unsqueeze(1)


def _figure(font: str, digit: str) -> Tensor:
    face = _face(font)
    left, top, right, bottom = face.getbbox(digit)
    square = Image.new("L", (FIGURE, FIGURE), 0)
    corner = ((FIGURE - left - right) / 2, (FIGURE - top - bottom) / 2)
    ImageDraw.Draw(square).text(corner, digit, 255, font=face)
    return torch.from_numpy(np.asarray(square, np.float32) / 255)


@cache
def _face(font: str) -> ImageFont.FreeTypeFont:
    """The font at the size that makes its zero fill three quarters of the square's height."""
    import matplotlib

    path = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf")
    _, top, _, bottom = ImageFont.truetype(path, FIGURE).getbbox("0")
    return ImageFont.truetype(path, round(FIGURE * 0.75 * FIGURE / (bottom - top)))


@cache
def _photographs() -> tuple[Tensor, ...]:
    arrays = [np.asarray(_photograph(name), np.float32) / 255 for name in ("china.jpg", "flower.jpg")]
    return tuple(torch.from_numpy(array).permute(2, 0, 1).contiguous() for array in arrays)


def _photograph(name: str) -> NDArray[np.uint8]:
    file = _shipped(f"images/{name}")
    if file is None:
        from sklearn.datasets import load_sample_image

        return np.asarray(load_sample_image(name))
    with Image.open(file) as picture:
        return np.asarray(picture)


def _shipped(place: str) -> Path | None:
    """A file of scikit-learn's, without importing it and SciPy, which takes longer than all the drawing; None where a
    release keeps it elsewhere."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).parent / "datasets" / place
    return file if file.exists() else None


# ---- shapes on the canvas


def _pose(brush: Brush, turn: float, slant: float, zoom: tuple[float, float], drift: float) -> Tensor:
    """Random affine maps from canvas to shape; angles in radians, shifts in halves of the canvas."""
    angle = brush.uniform(-turn, turn).flatten()
    shear = brush.uniform(-slant, slant).flatten()
    scale = brush.uniform(*zoom).flatten()
    shift = brush.uniform(-drift, drift, 2).flatten(1)
    cosine, sine = angle.cos() / scale, angle.sin() / scale
    first = torch.stack([cosine, sine + shear * cosine, shift[:, 0]], 1)
    second = torch.stack([-sine, cosine - shear * sine, shift[:, 1]], 1)
    return torch.stack([first, second], 1)


def _place(shapes: Tensor, pose: Tensor, canvas: int) -> Tensor:
    """The shapes on the canvas."""
    steps = (torch.arange(canvas) * 2 + 1) / canvas - 1
    # Written out rather than F.affine_grid, which costs half as much as the sampling itself.
    along, across, shift = pose[:, None, None, :, :].unbind(-1)
    grid = along * steps.reshape(1, 1, -1, 1) + (across * steps.reshape(1, -1, 1, 1) + shift)
    return F.grid_sample(shapes, grid, padding_mode="zeros", align_corners=False)


def _stroke(grey: Tensor, threshold: Tensor, softness: float) -> Tensor:
    """Ink where the grey value passes the threshold; a lower threshold is a thicker pen."""
    return ((grey - threshold) / softness + 0.5).clamp(0, 1)


def _handwritten(shapes: Tensor, brush: Brush) -> Tensor:
    pose = _pose(brush, turn=0.15, slant=0.2, zoom=(0.97, 1.15), drift=0.07)
    grey = _place(shapes, pose, brush.canvas)
    return _stroke(grey, brush.uniform(0.32, 0.5), 0.25)


def _outline(ink: Tensor, width: int) -> Tensor:
    """The band around the edge of the ink: grown minus shrunk."""
    grown, shrunk = ink, ink
    for _ in range(width):
        grown, shrunk = _grow(grown), 1 - _grow(1 - shrunk)
    return grown - shrunk


def _grow(ink: Tensor) -> Tensor:
    """The largest value among a pixel and its neighbours; shifts are several times faster than max_pool2d."""
    wide = F.pad(ink, (1, 1, 1, 1), mode="replicate")
    rows = torch.maximum(torch.maximum(wide[..., :-2, :], wide[..., 2:, :]), wide[..., 1:-1, :])
    return torch.maximum(torch.maximum(rows[..., :-2], rows[..., 2:]), rows[..., 1:-1])


def _over(background: Tensor, colour: Tensor, ink: Tensor | float) -> Tensor:
    return background + (colour - background) * ink


def _luminance(image: Tensor) -> Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)
    return (image * weights).sum(1, keepdim=True)


# ---- the five domains; each takes shapes, one per image, and returns N x 3 x size x size


def _scan(shapes: Tensor, brush: Brush) -> Tensor:
    """Dark ink on a white page, with the scanner's slight unevenness."""
    ink = brush.reduce(_handwritten(shapes, brush))
    paper = brush.uniform(0.9, 1) + 0.02 * brush.noise(brush.size)
    return _over(paper, brush.uniform(0.02, 0.25), ink).expand(-1, 3, -1, -1)


def _photo(shapes: Tensor, brush: Brush) -> Tensor:
    """Handwriting over a crop of a photograph, lighter or darker than the crop, whichever stands out."""
    ink = _handwritten(shapes, brush)
    scene = _crops(brush)
    # What counts is the scene under and around the digit; the crop's corners may be as bright as they like.
    under = (_luminance(scene) * ink).mean((2, 3), keepdim=True) / ink.mean((2, 3), keepdim=True)
    bright = (under > 0.5).float()
    # Flattened towards the other end of the scale, since a scene as contrasty as the pen hides the digit.
    scene = _over(scene, bright, 0.25)
    pen = _over(brush.uniform(0.8, 1, 3), brush.uniform(0, 0.25, 3), bright)
    return brush.reduce(_over(scene, pen, 0.95 * ink))


def _crops(brush: Brush) -> Tensor:
    """Random square crops of the photographs, mirrored or not, as large as the canvas."""
    which = brush.random.integers(len(_photographs()), size=brush.count)
    side = brush.uniform(0.12, 0.3)
    flip = 1 - 2 * brush.chance(0.5)
    centre = brush.uniform(-1, 1, 2)
    scenes = torch.empty(brush.count, 3, brush.canvas, brush.canvas)
    steps = torch.linspace(-1, 1, brush.canvas)
    for index, photograph in enumerate(_photographs()):
        mine = torch.from_numpy(np.flatnonzero(which == index))
        height, width = photograph.shape[1:]
        tall, wide = side[mine] * (width / height), side[mine]
        x = centre[mine, 0, None] * (1 - wide) + flip[mine] * wide * steps.reshape(1, 1, 1, -1)
        y = centre[mine, 1, None] * (1 - tall) + tall * steps.reshape(1, 1, -1, 1)
        # All crops of one photograph are sampled as one tall picture, to save a copy of it per crop.
        grid = torch.stack([x + 0 * y, y + 0 * x], -1).reshape(1, -1, brush.canvas, 2)
        crop = F.grid_sample(photograph[None], grid, padding_mode="reflection", align_corners=True)
        scenes[mine] = crop.reshape(3, len(mine), brush.canvas, brush.canvas).transpose(0, 1)
    return scenes


def _print(shapes: Tensor, brush: Brush) -> Tensor:
    """Type in dark ink on cream paper, sometimes reversed, with a halftone screen under it."""
    pose = _pose(brush, turn=0.06, slant=0.05, zoom=(0.75, 1.15), drift=0.15)
    ink = _stroke(_place(shapes, pose, brush.canvas), brush.uniform(0.3, 0.7), 0.4)
    paper = brush.uniform(0.86, 1) * torch.tensor([1.0, 0.97, 0.88]).reshape(1, 3, 1, 1)
    paper = paper - brush.uniform(0, 0.12) * _halftone(brush)
    pigment = brush.uniform(0, 0.3, 3)
    reverse = brush.chance(0.25)
    return brush.reduce(_over(_over(paper, pigment, reverse), _over(pigment, paper, reverse), ink))


def _halftone(brush: Brush) -> Tensor:
    """A screen of dots at 45 degrees, shifted per image."""
    steps = torch.arange(brush.canvas) * (np.pi / (3 * OVERSAMPLING))
    across = steps.reshape(1, 1, 1, -1) + brush.uniform(0, 6.3)
    down = steps.reshape(1, 1, -1, 1) + brush.uniform(0, 6.3)
    return ((across + down).cos() * (across - down).cos() > 0).float()


def _sketch(shapes: Tensor, brush: Brush) -> Tensor:
    """The outline of the digit in pencil, gone over twice with an unsteady hand on grainy paper."""
    pose = _pose(brush, turn=0.15, slant=0.2, zoom=(1.0, 1.18), drift=0.05)
    pen = brush.uniform(0.38, 0.5)
    pencil = torch.zeros(1)
    for _ in range(2):
        hand = pose + 0.03 * torch.from_numpy(brush.random.standard_normal(pose.shape, dtype=np.float32))
        ink = _stroke(_place(shapes, hand, brush.canvas), pen, 0.15)
        pressure = (brush.uniform(0.55, 0.95) + 0.15 * brush.clouds(6)).clamp(0, 1)
        pencil = torch.maximum(pencil, pressure * _outline(ink, max(1, brush.size // 32)))
    paper = brush.uniform(0.88, 1) + 0.03 * brush.noise(brush.size)
    return _over(paper, brush.uniform(0.1, 0.35), brush.reduce(pencil)).expand(-1, 3, -1, -1)


def _street(shapes: Tensor, brush: Brush) -> Tensor:
    """A number on a coloured plate with its neighbours cut off, in uneven light, out of focus and noisy."""
    pose = _pose(brush, turn=0.15, slant=0.2, zoom=(0.75, 1.05), drift=0.1)
    ink = _place(shapes, pose, brush.canvas)
    for side in (-1, 1):
        ink = torch.maximum(ink, brush.chance(0.7) * _neighbour(shapes, pose, side, brush))
    plate = torch.tensor(PLATES)[torch.from_numpy(brush.random.integers(len(PLATES), size=brush.count))]
    plate = (plate[:, :, None, None] + brush.uniform(-0.08, 0.08, 3)).clamp(0, 1)
    bright = (_luminance(plate) > 0.55).float()
    figure = _over(brush.uniform(0.75, 1, 3), brush.uniform(0, 0.3, 3), bright)
    # Worn and dirty: the paint of the figure has partly gone.
    figure = _over(plate, figure, brush.uniform(0.7, 1))
    light = (brush.uniform(0.6, 1.05) + 0.15 * brush.clouds(3)).clamp(0.3, 1.2)
    scene = brush.reduce(_over(plate, figure, ink) * light)
    scene = _over(scene, _blur(scene), brush.uniform(0, 1))
    return scene + brush.uniform(0.03, 0.1) * brush.noise(brush.size, 3)


def _neighbour(shapes: Tensor, pose: Tensor, side: int, brush: Brush) -> Tensor:
    """Another figure one figure's width to the side, so mostly outside the image."""
    other = shapes[torch.from_numpy(brush.random.permutation(brush.count))]
    moved = pose.clone()
    moved[:, 0, 2] += side * brush.uniform(1.25, 1.45).flatten()
    return _place(other, moved, brush.canvas)


def _blur(image: Tensor) -> Tensor:
    return F.avg_pool2d(F.pad(image, (1, 1, 1, 1), mode="replicate"), 3, stride=1)


_RENDERERS = {"scan": _scan, "photo": _photo, "print": _print, "sketch": _sketch, "street": _street}
