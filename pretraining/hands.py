"""Digits as people write them, for the generator's bank: several ways to write each, by many hands.

Handwriting that differs from a schoolbook's is what an image encoder trained on type reads worst, so a generator that
draws it has something to teach. Everything here is drawn from points written down by hand; no image was looked at.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Points = NDArray[np.float64]
SIDE = 96
STEPS = 14  # of a curve between two points

# digit -> ways to write it: strokes, of points x,y (to the right, and down) in a box from 0 to 100
WAYS: dict[str, tuple[str, ...]] = {
    "0": (
        "50,0 10,25 5,60 30,98 70,95 95,60 85,20 50,0",
        "60,3 20,15 5,55 25,95 65,97 95,50 75,10 45,8",
        "75,10 40,2 8,35 12,80 45,100 85,80 95,35 60,0 50,15",
        "50,0 10,30 10,70 50,100 90,70 90,30 50,0 / 85,8 15,92",
        "35,5 10,40 15,85 50,100 88,75 92,30 65,2",
    ),
    "1": (
        "50,0 50,100",
        "65,0 50,50 38,100",
        "20,30 55,0 55,100",
        "25,20 55,0 52,50 50,100 / 20,100 82,98",
        "45,2 52,40 48,100 / 30,12 50,0",
        "10,45 60,0 55,50 58,100",
    ),
    "2": (
        "10,20 40,0 85,15 75,50 10,100 / 10,100 95,97",
        "8,25 40,0 85,20 60,60 15,90 20,78 45,85 95,98",
        "15,12 60,0 90,25 60,65 20,98 5,88 30,80 60,95 100,88",
        "10,5 70,2 85,25 50,60 8,95 50,95 95,100",
        "5,35 20,5 70,2 80,35 45,70 10,100 / 10,100 55,92 95,100",
    ),
    "3": (
        "10,10 50,0 85,20 40,45 90,70 50,100 8,88",
        "10,2 85,2 45,38 / 45,38 90,60 70,98 10,92",
        "15,15 55,0 80,20 50,42 35,45 60,48 88,75 45,100 5,80",
        "5,20 40,0 80,10 75,35 30,50 75,55 95,80 60,100 10,95",
        "20,5 75,8 70,40 30,48 / 30,48 80,55 80,90 15,100",
    ),
    "4": (
        "40,0 5,60 95,60 / 70,20 68,100",
        "15,0 10,50 85,50 / 80,0 75,100",
        "65,0 5,65 95,62 / 65,0 65,100",
        "15,5 8,42 40,55 85,40 / 85,2 80,50 75,100",
        "80,5 75,55 70,100 / 30,0 10,45 30,52 95,48",
        "20,10 20,50 80,55 85,10 75,60 60,100",
    ),
    "5": (
        "90,2 20,2 15,42 / 15,42 60,35 92,65 60,98 8,90",
        "25,5 20,40 65,40 85,70 50,100 8,92 / 25,5 92,0",
        "85,5 30,0 15,30 50,42 85,60 70,92 30,100 5,85",
        "95,5 40,5 25,45 70,50 75,85 40,100 10,95",
        "30,8 30,45 75,48 80,90 20,98 / 32,8 80,12",
    ),
    "6": (
        "75,0 25,35 8,75 40,100 85,85 75,55 15,65",
        "60,0 20,40 10,80 45,100 90,75 55,50 12,72",
        "40,0 15,40 15,85 55,100 85,75 50,55 20,75 30,90",
        "90,10 50,2 12,45 15,90 60,100 90,72 60,50 20,62",
        "30,0 12,50 20,95 65,98 80,70 45,62 18,78",
    ),
    "7": (
        "8,5 92,3 40,100",
        "8,8 90,5 60,50 35,100 / 25,50 85,48",
        "10,25 12,5 90,5 50,60 45,100",
        "5,12 30,2 60,12 92,3 60,45 50,100",
        "10,5 85,8 75,50 70,100 / 40,50 100,52",
    ),
    "8": (
        "80,15 40,0 15,22 50,48 88,75 50,100 12,78 50,48 82,20 70,8",
        "50,45 15,22 50,0 85,22 50,45 / 50,45 10,75 50,100 90,75 50,45",
        "50,2 20,20 35,42 75,65 70,95 30,97 20,70 60,42 75,15 50,2",
        "90,10 50,5 20,25 75,60 60,98 20,85 45,50 95,12",
        "45,40 25,15 60,2 75,25 45,40 10,70 35,100 75,85 60,50 45,40",
    ),
    "9": (
        "85,25 50,0 12,25 40,52 85,30 / 85,20 80,60 70,100",
        "85,20 45,0 10,30 40,55 82,30 85,60 60,95 20,98",
        "75,10 30,5 15,40 55,50 80,15 75,60 72,100",
        "90,30 60,0 15,15 20,45 60,50 90,20 60,60 40,100",
        "70,45 20,40 25,8 70,2 85,35 80,80 50,100 15,85",
    ),
}


def written(digit: str, seed: int) -> Image.Image:
    """One hand's digit: ink, white on black."""
    random = np.random.default_rng([seed, int(digit)])
    strokes = _strokes(WAYS[digit][random.integers(len(WAYS[digit]))])
    care = random.uniform(0.01, 0.05)  # how far points go astray
    turn, slant = random.normal(0, 0.13), random.normal(0.1, 0.18)
    size = np.array([random.uniform(0.4, 0.8), random.uniform(0.6, 0.8)])
    waves = random.normal(0, 0.035, (2, 2))  # the whole figure leans, swells and narrows smoothly
    pen, press = random.uniform(0.045, 0.17), random.uniform(0, 0.4)
    picture = Image.new("L", (SIDE, SIDE), 0)
    draw = ImageDraw.Draw(picture)
    for stroke in strokes:
        points = stroke - 0.5 + random.normal(0, care, stroke.shape)
        path = _ended(_curve(points), random)
        for axis in (0, 1):
            along = np.pi * path[:, 1 - axis]
            path[:, axis] += waves[axis, 0] * np.sin(along) + waves[axis, 1] * np.cos(2 * along)
        path[:, 0] -= slant * path[:, 1]
        path = path * size @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]) + 0.5
        phase, pace = random.uniform(0, 6.3), random.uniform(3, 9)
        for number, (x, y) in enumerate(path * SIDE):
            pressed = 1 + press * np.sin(phase + pace * number / len(path))
            radius = pen * SIDE * pressed / 2
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
    return picture


def _strokes(way: str) -> list[Points]:
    return [np.array([point.split(",") for point in stroke.split()], np.float64) / 100 for stroke in way.split("/")]


def _curve(points: Points) -> Points:
    """Through all points (Catmull-Rom), densely; a straight line where there are two."""
    padded = np.concatenate([2 * points[:1] - points[1:2], points, 2 * points[-1:] - points[-2:-1]])
    steps = np.linspace(0, 1, STEPS * (4 if len(points) == 2 else 1), endpoint=False)[:, None]
    pieces = []
    for before, here, there, after in zip(padded, padded[1:], padded[2:], padded[3:], strict=False):
        pieces.append(
            here
            + (there - before) / 2 * steps
            + (before - 2.5 * here + 2 * there - after / 2) * steps**2
            + (1.5 * (here - there) + (after - before) / 2) * steps**3
        )
    return np.concatenate([*pieces, points[-1:]])


def _ended(path: Points, random: np.random.Generator) -> Points:
    """Begun late or ended early now and then, so that loops stay open."""
    first, last = (round(max(0.0, random.normal(0, 0.04)) * len(path)) for _ in range(2))
    return path[first : len(path) - last].copy()
