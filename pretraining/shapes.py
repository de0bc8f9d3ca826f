"""The bank of shapes: characters of fonts, handwriting from stroke skeletons, and simple figures, in grey on black.

Nothing here comes from the embedded federation `glyphs`: its fonts are refused by name, its scans are never read.
"""

from __future__ import annotations

import hashlib
import math
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from signs import SHAPES, Sign

SIDE = 48  # pixels of a shape's square
FILL = 36  # pixels of the longer side of the shape in it
LARGE = 96  # pixels at which fonts and figures are drawn before they are scaled down
# The families of `glyphs` (DejaVu, STIX, Computer Modern) and what is derived from or almost equal to them.
FORBIDDEN = re.compile(
    r"dejavu|vera\b|verana|stix|^xits|computer modern|latin modern|^cm(b|r|ti|tt|ss|ex|mi|sy)\d|^cmu"
    r"|^lm(roman|sans|mono)|times|termes|tinos|nimbus roman|liberation serif|free ?serif|^hack\b|opendyslexic|arev",
    re.IGNORECASE,
)
# Folders (of --fonts) whose fonts look written by hand, and single files of other folders.
HANDWRITTEN = frozenset(
    [
        "breip",
        "bwht",
        "comic-neue",
        "dancingscript",
        "dkg-handwriting",
        "ecolier-court",
        "fantasma",
        "havana",
        "humor-sans",
        "isabella",
        "joscelyn",
        "kaushanscript",
        "kristi",
        "leckerli-one",
        "rufscript",
        "sjfonts",
        "smc-chilanka",
        "tlwg-purisa-otf",
        "tomsontalks",
        "Abecedario",
        "AbecedarioNegrita",
        "aescrawl",
        "madscrwl",
        "jmacscrl",
        "handmeds",
        "Domestic_Manners",
        "El_Abogado_Loco",
        "Junkyard",
        "PenguinAttack",
        "elegbold",
        "elegital",
    ]
)
TYPE, HANDFONT, STROKES = range(3)  # where a shape comes from
SOURCES = 3


class Bank(NamedTuple):
    """Shapes in the order of class and source, and where each class and source begins and how many it has."""

    shapes: Tensor  # uint8, N x SIDE x SIDE
    first: Tensor  # classes x SOURCES
    count: Tensor

    def to(self, device: torch.device) -> Bank:
        return Bank(*(tensor.to(device) for tensor in self))


def bank(pieces: list[tuple[NDArray[np.uint8], int, int]], classes: int) -> Bank:
    """From pieces (shapes, class, source). A source that a class lacks is filled by another one it has."""
    order: dict[tuple[int, int], list[NDArray[np.uint8]]] = {}
    for shapes, number, source in pieces:
        order.setdefault((number, source), []).append(shapes)
    first = torch.zeros(classes, SOURCES, dtype=torch.long)
    count = torch.zeros(classes, SOURCES, dtype=torch.long)
    rows, position = [], 0
    for (number, source), some in sorted(order.items()):
        rows += some
        first[number, source], count[number, source] = position, sum(map(len, some))
        position += int(count[number, source])
    for number in range(classes):
        for source, others in ((TYPE, (HANDFONT, STROKES)), (HANDFONT, (TYPE, STROKES)), (STROKES, (HANDFONT, TYPE))):
            have = [other for other in (source, *others) if (number, other) in order]
            if not have:
                raise ValueError(f"class {number} has no shape at all")
            first[number, source], count[number, source] = first[number, have[0]], count[number, have[0]]
    return Bank(torch.from_numpy(np.concatenate(rows)), first, count)


# ------------------------------------------------------------------------------------------------------------- fonts
def font_files(folder: Path) -> list[Path]:
    """The fonts below the folder, without those that `glyphs` uses or that are derived from them."""
    found = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in (".ttf", ".otf")]
    return [path for path in found if not forbidden(path)]


def forbidden(path: Path) -> bool:
    """Whether file name or the family name inside the file is one of those kept for `glyphs`."""
    if FORBIDDEN.search(path.stem.replace("_", " ")):
        return True
    try:
        family, _ = ImageFont.truetype(str(path), 12).getname()
    except OSError:
        return True  # unreadable
    return bool(FORBIDDEN.search(family or ""))


def held_out(path: Path) -> bool:
    """Whether the font's folder (its family, its maker) is kept for the evaluation: about one in eight."""
    return hashlib.sha256(path.parent.name.encode()).digest()[0] < 30


def is_handwritten(path: Path) -> bool:
    return path.parent.name in HANDWRITTEN or path.stem in HANDWRITTEN


def fitted(drawing: Image.Image, fill: int = FILL) -> NDArray[np.uint8] | None:
    """The ink cut out, scaled to the fill and centred; None when there is no ink."""
    box = drawing.getbbox()
    if box is None:
        return None
    ink = drawing.crop(box)
    scale = fill / max(ink.size)
    ink = ink.resize((max(1, round(ink.width * scale)), max(1, round(ink.height * scale))), Image.Resampling.BOX)
    square = Image.new("L", (SIDE, SIDE), 0)
    square.paste(ink, ((SIDE - ink.width) // 2, (SIDE - ink.height) // 2))
    return np.asarray(square)


def _character(face: ImageFont.FreeTypeFont, character: str) -> NDArray[np.uint8] | None:
    canvas = Image.new("L", (LARGE * 3, LARGE * 3), 0)
    ImageDraw.Draw(canvas).text((LARGE, LARGE), character, 255, font=face)
    return fitted(canvas)


def font_shapes(task: tuple[Path, list[str]]) -> list[NDArray[np.uint8] | None]:
    """The characters in one font; None for those it lacks or draws like something else."""
    path, characters = task
    try:
        face = ImageFont.truetype(str(path), LARGE)
        absent = _character(face, "\uffff")
        drawn = {character: _character(face, character) for character in characters}
    except (OSError, ValueError):
        return [None] * len(characters)

    def alike(one: NDArray[np.uint8] | None, other: NDArray[np.uint8] | None) -> bool:
        if one is None or other is None:
            return False
        return float(np.abs(one.astype(np.float32) - other).mean()) < 255 * 0.03

    for character, shape in list(drawn.items()):
        # A box for a missing character, or a small capital in place of a small letter.
        if alike(shape, absent) or (character.islower() and alike(shape, drawn.get(character.upper()))):
            drawn[character] = None
        elif shape is not None and shape.mean() < 255 * 0.02:
            drawn[character] = None  # hairlines and dots, which vanish at 32 pixels
    return [drawn[character] for character in characters]


def font_pieces(files: list[Path], classes: list[Sign], workers: int) -> list[tuple[NDArray[np.uint8], int, int]]:
    numbers = [number for number, sign in enumerate(classes) if sign.kind != "shape"]
    tasks = [(path, [classes[number].key for number in numbers]) for path in files]
    if workers > 1:
        with ProcessPoolExecutor(workers) as pool:
            results = list(pool.map(font_shapes, tasks, chunksize=4))
    else:
        results = [font_shapes(task) for task in tasks]
    pieces = []
    for path, drawn in zip(files, results, strict=True):
        source = HANDFONT if is_handwritten(path) else TYPE
        for number, shape in zip(numbers, drawn, strict=True):
            if shape is not None:
                pieces.append((shape[None], number, source))
    return pieces


# ----------------------------------------------------------------------------------------- handwriting from skeletons
# Each character has ways of writing it; a way is strokes; a stroke is points on a grid of 0..a (across, down), passed
# by a smooth curve. A point written twice is a corner.
SKELETONS: dict[str, tuple[str, ...]] = {
    "0": (
        "50 12 05 18 5a 98 a5 92 50",
        "60 22 05 17 4a 88 a5 93 60 41",
        "50 22 15 28 5a 88 95 82 50",
        "51 13 06 39 89 a5 83 41",
    ),
    "1": (
        "50 5a",
        "60 4a",
        "23 50 50 5a",
        "04 60 60 6a",
        "23 50 50 5a / 2a 8a",
        "14 60 60 5a / 1a 9a",
        "32 50 50 5a",
        "05 70 70 6a",
        "23 51 50 55 5a / 3a 7a",
    ),
    "2": (
        "12 31 50 81 93 84 57 1a 1a aa",
        "13 30 60 82 74 47 0a 0a 5a a9",
        "12 40 82 75 49 1a 08 29 6a a9",
        "02 20 70 92 65 1a 1a 9a",
        "11 50 93 76 3a 1a 08 38 9a",
        "22 50 82 76 2a 2a 8a",
    ),
    "3": (
        "11 40 81 83 55 55 86 98 7a 3a 09",
        "10 90 90 54 54 87 89 6a 29 08",
        "12 40 82 64 45 75 88 69 3a 09",
        "21 60 82 64 44 44 86 88 6a 2a 18",
        "01 50 92 74 45 45 97 89 4a 09",
        "10 50 81 74 44 54 87 78 4a 1a",
    ),
    "4": (
        "70 06 06 a6 / 70 7a",
        "20 15 15 95 / 80 7a",
        "30 06 06 96 / 63 6a",
        "10 05 26 95 / 90 9a",
        "60 07 07 a7 / 73 7a",
        "70 15 07 57 a6 / 83 5a",
        "10 14 36 85 / 81 6a",
        "80 06 06 96 / 80 6a",
    ),
    "5": (
        "90 20 20 15 15 54 96 98 6a 2a 09",
        "20 14 14 54 86 88 5a 1a / 20 90",
        "81 21 14 45 86 78 4a 09",
        "80 20 20 25 25 65 87 69 2a 09",
        "30 24 24 64 97 6a 1a / 30 a0",
        "a0 30 14 54 97 5a 08",
    ),
    "6": (
        "80 42 15 17 2a 6a 97 75 35 17",
        "60 23 07 2a 7a 97 65 27",
        "50 13 08 3a 7a 97 66 26 18",
        "81 50 14 08 4a 89 86 55 17",
        "40 15 18 4a 88 76 46 18",
    ),
    "7": (
        "00 a0 a0 5a",
        "01 00 a0 a0 65 4a",
        "00 90 90 4a / 25 85",
        "02 10 90 90 4a / 35 85",
        "00 a0 a0 66 5a",
        "02 21 50 91 91 65 4a / 25 95",
        "12 20 80 80 5a / 36 86",
        "00 a0 a0 4a / 15 85",
    ),
    "8": (
        "50 22 34 55 86 88 5a 18 26 55 74 82 50",
        "81 40 12 34 76 88 5a 18 27 74 81",
        "50 22 55 82 50 / 55 17 5a 97 55",
        "91 50 21 34 67 89 5a 28 37 74 91",
        "60 31 34 65 77 69 3a 18 36 74 81 60",
    ),
    "9": (
        "93 60 22 24 55 83 91 91 9a",
        "82 50 12 14 45 84 82 82 7a",
        "83 50 12 24 55 83 82 87 5a 19",
        "82 40 12 24 64 82 82 58 3a",
        "92 50 21 23 55 84 92 86 59 1a",
        "81 40 13 35 84 81 81 88 6a 29",
        "91 40 12 25 74 91 91 5a",
    ),
    "A": ("0a 50 50 aa / 26 86", "0a 40 60 aa / 16 96"),
    "B": ("10 1a / 10 61 82 64 14 / 14 75 97 79 1a",),
    "C": ("92 60 22 05 28 6a 98", "81 40 05 4a 99"),
    "D": ("10 1a / 10 61 95 69 1a",),
    "E": ("90 10 10 1a 1a 9a / 15 75", "81 40 13 45 45 17 3a 99"),
    "F": ("90 10 10 1a / 15 75",),
    "G": ("92 60 22 05 28 6a 98 95 95 65", "91 50 05 3a 89 86 86 56 / 86 8a"),
    "H": ("10 1a / 90 9a / 15 95",),
    "I": ("50 5a / 20 80 / 2a 8a",),
    "J": ("70 77 5a 2a 07 / 40 a0", "80 87 5a 18"),
    "K": ("10 1a / 90 15 15 9a", "20 2a / 80 25 / 44 9a"),
    "L": ("20 2a 2a 9a",),
    "M": ("0a 00 00 56 56 a0 a0 aa", "0a 20 20 58 58 80 80 aa"),
    "N": ("1a 10 10 9a 9a 90",),
    "O": ("50 12 05 18 5a 98 a5 92 50", "60 20 05 3a 8a a5 60"),
    "P": ("20 2a / 20 71 83 75 25", "20 2a / 11 60 93 75 26"),
    "Q": ("50 12 05 18 5a 98 a5 92 50 / 67 aa",),
    "R": ("20 2a / 20 71 83 75 25 / 45 9a",),
    "S": ("91 50 12 34 76 98 5a 09", "81 41 23 55 87 5a 19"),
    "T": ("00 a0 / 50 5a",),
    "U": ("10 16 3a 7a 96 90", "20 17 5a 87 80 / 80 8a"),
    "V": ("00 5a 5a a0",),
    "W": ("00 2a 2a 53 53 8a 8a a0", "10 07 3a 57 57 7a a7 90"),
    "X": ("00 aa / a0 0a",),
    "Y": ("00 55 / a0 55 55 5a", "00 55 / a0 3a"),
    "Z": ("00 a0 a0 0a 0a aa", "00 a0 a0 0a 0a aa / 25 85"),
    "a": ("84 53 15 18 4a 78 84 / 84 88 aa", "83 42 05 28 59 84 83 83 8a"),
    "b": ("20 2a / 26 54 86 98 6a 28", "30 28 5a 98 86 55 27"),
    "d": ("80 8a / 86 54 16 18 4a 88",),
    "e": ("16 96 84 53 15 18 5a 98", "17 75 83 52 15 29 69 98"),
    "f": ("80 50 42 4a / 14 84",),
    "h": ("20 2a / 26 54 86 8a",),
    "i": ("53 5a / 50 51",),
    "j": ("63 68 4a 19 / 60 61",),
    "m": ("03 0a / 05 24 45 4a / 45 74 a5 aa",),
    "n": ("13 1a / 16 44 86 8a",),
    "r": ("13 1a / 16 34 74",),
    "t": ("40 48 6a 89 / 13 83", "50 5a / 13 83"),
    "y": ("03 57 / a3 57 2a",),
    "+": ("50 5a / 05 a5",),
    "=": ("03 a3 / 07 a7",),
    "?": ("12 31 50 81 83 55 57 / 59 5a", "22 50 82 65 57 / 5a 59"),
    "!": ("50 56 / 59 5a",),
    "#": ("30 2a / 80 7a / 03 a3 / 07 a7",),
    "%": ("90 1a / 20 02 24 42 20 / 86 68 8a a8 86",),
    "$": ("91 50 12 34 76 98 5a 09 / 50 5a",),
    "*": ("50 5a / 12 98 / 92 18",),
}


def _points(way: str) -> tuple[list[NDArray[np.int64]], NDArray[np.float32]]:
    """The strokes as rows of the distinct points, and those points."""
    names = list(dict.fromkeys(name for name in way.split() if name != "/"))
    strokes = [np.array([names.index(name) for name in stroke.split()]) for stroke in way.split(" / ")]
    return strokes, np.array([[int(name[0], 16), int(name[1], 16)] for name in names], np.float32) / 10


def _curve(knots: Tensor, steps: int) -> Tensor:
    """A Catmull-Rom curve through the knots (n x k x 2) as n x ((k - 1) * steps + 1) x 2 points."""
    ends = torch.cat([2 * knots[:, :1] - knots[:, 1:2], knots, 2 * knots[:, -1:] - knots[:, -2:-1]], 1)
    before, start, stop, after = (ends[:, i : ends.shape[1] - 3 + i, None] for i in range(4))
    t = torch.linspace(0, 1, steps + 1, device=knots.device)[:-1].reshape(1, 1, -1, 1)
    along = 0.5 * (
        2 * start
        + (stop - before) * t
        + (2 * before - 5 * start + 4 * stop - after) * t**2
        + (3 * start - before - 3 * stop + after) * t**3
    )
    return torch.cat([along.flatten(1, 2), knots[:, -1:]], 1)


def written(way: str, count: int, random: torch.Generator, device: torch.device) -> NDArray[np.uint8]:
    """The way of writing, drawn so many times with an unsteady hand and different pens."""
    strokes, points = _points(way)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=random).to(device)

    def uniform(low: float, high: float, *size: int) -> Tensor:
        return low + (high - low) * torch.rand(size, generator=random).to(device)

    base = torch.from_numpy(points).to(device).expand(count, -1, -1)
    care = uniform(0.015, 0.075, count, 1, 1)
    base = base + care * normal(*base.shape)
    # The whole character bends: a quadratic map with small coefficients, then slant, width and turn.
    x, y = (base - 0.5).unbind(-1)
    bend = 0.35 * normal(count, 6, 1)
    x, y = (
        x + bend[:, 0] * y * y * 0.6 + bend[:, 1] * x * y * 0.6 + bend[:, 2] * x * x * 0.3,
        y + bend[:, 3] * x * x * 0.5 + bend[:, 4] * x * y * 0.4 + bend[:, 5] * y * y * 0.4,
    )
    x = x * uniform(0.5, 1.15, count, 1) - uniform(-0.25, 0.45, count, 1) * y
    turn = 0.09 * normal(count, 1)
    base = torch.stack([x * turn.cos() - y * turn.sin(), x * turn.sin() + y * turn.cos()], -1)
    lines = []
    for stroke in strokes:
        knots = base[:, torch.from_numpy(stroke).to(device)] + 0.25 * care * normal(count, len(stroke), 2)
        lines.append(_curve(knots, 6))
    every = torch.cat(lines, 1)
    low, high = every.amin(1, keepdim=True), every.amax(1, keepdim=True)
    pen = uniform(0.045, 0.13, count, 1)  # radius; the longer side of the character is 1
    scale = 1 / (high - low).amax(2, keepdim=True).clamp_min(0.3)
    room = FILL / SIDE
    inner = room * (1 - 2 * pen[..., None])
    middle = (low + high) / 2
    lines = [((line - middle) * scale * inner + 0.5) for line in lines]
    steps = (torch.arange(SIDE, device=device) + 0.5) / SIDE
    pixels = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1).reshape(1, -1, 1, 2)
    nearest = torch.full((count, SIDE * SIDE), 9.0, device=device)
    for line in lines:
        start, step = line[:, None, :-1], (line[:, 1:] - line[:, :-1])[:, None]
        along = (((pixels - start) * step).sum(-1) / (step * step).sum(-1).clamp_min(1e-9)).clamp(0, 1)
        gap = ((pixels - start - along[..., None] * step) ** 2).sum(-1).sqrt()
        # The pen presses harder in some places than in others.
        phase = torch.linspace(0, 1, gap.shape[2], device=device) * uniform(2, 9, count, 1) + uniform(0, 6.3, count, 1)
        press = uniform(0, 0.3, count, 1) * phase.sin()
        nearest = torch.minimum(nearest, (gap - (pen * room * press)[:, None]).amin(2))
    ink = ((pen * room - nearest) * SIDE * uniform(0.5, 1.0, count, 1) + 0.5).clamp(0, 1)
    return (ink * 255).round().to(torch.uint8).reshape(count, SIDE, SIDE).cpu().numpy()


def skeleton_pieces(
    classes: list[Sign], per_digit: int, seed: int, device: torch.device, at_once: int = 64
) -> list[tuple[NDArray[np.uint8], int, int]]:
    """So many drawings of each digit, a fifth as many of everything else that has a skeleton."""
    random = torch.Generator().manual_seed(seed)
    pieces = []
    for number, sign in enumerate(classes):
        ways = SKELETONS.get(sign.key, ())
        wanted = per_digit if sign.kind == "digit" else per_digit // 5
        for way in ways:
            left = -(-wanted // len(ways))
            while left > 0:
                pieces.append((written(way, min(left, at_once), random, device), number, STROKES))
                left -= at_once
    return pieces


# ----------------------------------------------------------------------------------------------------- simple figures
def _figure(name: str, random: np.random.Generator) -> list[list[tuple[float, float]]]:
    """The figure as polygons or open lines around the origin, within about one unit."""

    def ring(corners: int, start: float = -math.pi / 2, radius: float = 1.0) -> list[tuple[float, float]]:
        steps = [start + 2 * math.pi * i / corners for i in range(corners)]
        return [(radius * math.cos(step), radius * math.sin(step)) for step in steps]

    if name == "star":
        corners, depth = int(random.integers(4, 7)), random.uniform(0.35, 0.55)
        inner = ring(corners, -math.pi / 2 + math.pi / corners, depth)
        return [[point for pair in zip(ring(corners), inner, strict=True) for point in pair]]
    if name == "heart":
        steps = np.linspace(0, 2 * math.pi, 40, endpoint=False)
        wide = 16 * np.sin(steps) ** 3
        tall = 13 * np.cos(steps) - 5 * np.cos(2 * steps) - 2 * np.cos(3 * steps) - np.cos(4 * steps)
        return [[(float(x) / 16, -float(y) / 16) for x, y in zip(wide, tall, strict=True)]]
    if name == "arrow":
        head, shaft = random.uniform(0, 0.3), random.uniform(0.15, 0.35)
        half = [(1.0, 0.0), (head, 0.8), (head, shaft), (-1.0, shaft)]
        return [half + [(x, -y) for x, y in reversed(half[1:])]]
    if name == "cross":
        arm = random.uniform(0.2, 0.4)
        quarter = [(arm, -1.0), (arm, -arm), (1.0, -arm), (1.0, arm), (arm, arm), (arm, 1.0)]
        return [quarter + [(-x, -y) for x, y in quarter]]
    if name == "moon":
        depth = random.uniform(0.2, 0.6)
        steps = np.linspace(-math.pi / 2, math.pi / 2, 16)
        outer = [(float(np.cos(step)), float(np.sin(step))) for step in steps]
        return [outer + [(depth * x, y) for x, y in reversed(outer)]]
    if name == "house":
        eaves = random.uniform(-0.2, 0.2)
        return [[(0.0, -1.0), (1.0, eaves), (0.8, eaves), (0.8, 1.0), (-0.8, 1.0), (-0.8, eaves), (-1.0, eaves)]]
    if name == "lightning bolt":
        return [[(0.2, -1.0), (-0.6, 0.15), (-0.05, 0.15), (-0.3, 1.0), (0.6, -0.25), (0.05, -0.25), (0.5, -1.0)]]
    if name == "wave":
        steps = np.linspace(-1, 1, 40)
        turns = random.uniform(1.5, 2.5)
        return [[(float(x), 0.35 * math.sin(math.pi * turns * float(x))) for x in steps]]
    if name == "spiral":
        steps = np.linspace(0.1, 1, 60)
        turns = random.uniform(2, 3.2)
        return [[(float(r * np.cos(6.28 * turns * r)), float(r * np.sin(6.28 * turns * r))) for r in steps]]
    corners = {"disc": 40, "square": 4, "triangle": 3, "diamond": 4, "hexagon": 6}[name]
    return [ring(corners, math.pi / 4 if name == "square" else -math.pi / 2)]


def figure_shape(name: str, random: np.random.Generator) -> NDArray[np.uint8]:
    """One drawing of the figure: filled or in outline, turned, stretched and a little out of true."""
    middle = LARGE * 1.5
    turn = random.uniform(-math.pi, math.pi) if name == "arrow" else random.uniform(-0.2, 0.2)
    wide, tall = random.uniform(0.75, 1.1, 2)
    width = int(random.integers(6, 16))
    filled = random.random() < 0.5 and name not in ("wave", "spiral")
    canvas = Image.new("L", (LARGE * 3, LARGE * 3), 0)
    pen = ImageDraw.Draw(canvas)
    for line in _figure(name, random):
        points = []
        for x, y in line:
            x, y = wide * x + random.normal(0, 0.015), tall * y + random.normal(0, 0.015)
            across, down = x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn)
            points.append((middle + LARGE * across, middle + LARGE * down))
        if filled:
            pen.polygon(points, fill=255)
        else:
            closed = points if name in ("wave", "spiral") else [*points, *points[:2]]
            pen.line(closed, fill=255, width=width, joint="curve")
    shape = fitted(canvas)
    assert shape is not None
    return shape


def figure_pieces(classes: list[Sign], each: int, seed: int) -> list[tuple[NDArray[np.uint8], int, int]]:
    numbers = {sign.key: number for number, sign in enumerate(classes) if sign.kind == "shape"}
    random = np.random.default_rng(seed)
    drawn = [(np.stack([figure_shape(name, random) for _ in range(each)]), numbers[name], STROKES) for name in SHAPES]
    return list(drawn)
