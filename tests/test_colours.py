"""Colours of figures as people with protanopia, deuteranopia or tritanopia see them.

Simulated with the matrices of Machado, Oliveira and Fernandes (2009) for full severity, in linear RGB; distances are
CIEDE2000. Eight colours cannot all be far apart for everybody, so that a marker is a second difference.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from itertools import combinations, product

import numpy as np
import pytest

from fairsilo.report.figures.drawing import MARKERS, marks_of, palette
from fairsilo.report.lines import line_chart
from fairsilo.report.series import COLOURS, MARKED, MARKS, Series, marker
from test_report_page import contrast

APART = 12.0  # between any two series; neighbouring samples of a legend are told apart from about 5 on
FIRST_APART = 15.0  # among the first four, which are all that most figures have
AGAINST_MUTED = 7.0  # the muted lines are thin and without markers besides
SEEN = {
    "everybody": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def themes() -> dict[str, dict[str, str]]:
    style = files("fairsilo.report").joinpath("page.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    return {
        name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", text)) for name, text in (("light", light), ("dark", dark))
    }


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) of a colour as somebody sees it."""
    coded = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    shares = TO_XYZ @ np.clip(seen @ linear, 0, 1) / TO_XYZ.sum(axis=1)
    x, y, z = np.where(shares > (6 / 29) ** 3, np.cbrt(shares), shares / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def ciede2000(first: np.ndarray, second: np.ndarray) -> float:
    """Sharma, Wu and Dalal (2005)."""
    (light1, a1, b1), (light2, a2, b2) = first, second
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * np.sqrt(mean**7 / (mean**7 + 25.0**7))
    chroma1, chroma2 = np.hypot(stretch * a1, b1), np.hypot(stretch * a2, b2)
    hue1, hue2 = (np.degrees(np.arctan2(b, stretch * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    grey = chroma1 * chroma2 == 0
    turn = 0.0 if grey else (hue2 - hue1 + 180) % 360 - 180
    hue = hue1 + hue2 if grey else (hue1 + turn / 2) % 360
    light, chroma = (light1 + light2) / 2, (chroma1 + chroma2) / 2
    waves = ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63))
    weight = 1 + sum(size * np.cos(np.radians(times * hue + shift)) for size, times, shift in waves)
    d_light = (light2 - light1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    d_chroma = (chroma2 - chroma1) / (1 + 0.045 * chroma)
    d_hue = 2 * np.sqrt(chroma1 * chroma2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * chroma * weight)
    blue = np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    twist = -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7)) * blue
    return float(np.sqrt(d_light**2 + d_chroma**2 + d_hue**2 + twist * d_chroma * d_hue))


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [  # from the test data of Sharma, Wu and Dalal
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
        ((50.0, 2.5, 0.0), (61.0, -5.0, 29.0), 22.8977),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_distance_is_that_of_the_paper(
    first: tuple[float, ...], second: tuple[float, ...], distance: float
) -> None:
    assert ciede2000(np.array(first), np.array(second)) == pytest.approx(distance, abs=1e-4)


@pytest.mark.parametrize(("theme", "sight"), list(product(("light", "dark"), SEEN)))
def test_any_two_series_are_told_apart(theme: str, sight: str) -> None:
    colours = [themes()[theme][f"series-{place}"] for place in range(COLOURS + 1)]
    seen = [lab(colour, SEEN[sight]) for colour in colours]
    for one, other in combinations(range(COLOURS + 1), 2):
        least = AGAINST_MUTED if one == 0 else FIRST_APART if other <= 4 else APART
        assert ciede2000(seen[one], seen[other]) >= least, (one, other)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_line_stands_out_from_what_is_behind_it(theme: str) -> None:
    colours = themes()[theme]
    for place, ground in product(range(COLOURS + 1), ("card", "page")):
        assert contrast(colours[f"series-{place}"], colours[ground]) >= 3, (place, ground)


def test_drawings_by_matplotlib_have_the_colours_of_daylight() -> None:
    assert list(palette()) == [themes()["light"][f"series-{place}"] for place in range(COLOURS + 1)]
    assert all(contrast(colour, "#ffffff") >= 3 for colour in palette())


def test_every_colour_has_a_marker_of_its_own() -> None:
    outlines = [re.sub(r'd="M[-\d.]+ [-\d.]+', "", marker(place, 50, 50)) for place in range(COLOURS + 1)]
    assert len(set(outlines)) == len(set(MARKERS)) == len(MARKERS) == COLOURS + 1


@pytest.mark.parametrize("rounds", [MARKED, MARKED + 1, 1000])
def test_long_lines_have_markers_too_at_points_of_their_own(rounds: int) -> None:
    lines = [Series(str(colour), [(n, 1.0) for n in range(rounds)], colour) for colour in range(COLOURS + 1)]
    root = ElementTree.fromstring(line_chart(lines, title="t", y_label="y"))
    marks = {group.get("class"): group.findall("*[@class='dot']") for group in root.findall("g")}
    assert marks.pop("s0") == []
    for colour in range(1, COLOURS + 1):
        found = marks[f"s{colour}"]
        assert len(found) == rounds if rounds <= MARKED else 5 <= len(found) <= MARKS
        start, every = marks_of(colour, rounds)["markevery"]
        assert len(range(start, rounds, every)) == len(found)  # the same in drawings by matplotlib
    if rounds == 1000:
        firsts = [marks_of(colour, rounds)["markevery"][0] for colour in range(1, COLOURS + 1)]
        assert len(set(firsts)) == COLOURS
