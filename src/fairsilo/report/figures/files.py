"""Write the figures of a run, and read those that were written."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fairsilo.analysis.diagnostics.replay import Numbers, Replay
from fairsilo.core.calls import settings_in
from fairsilo.errors import FairsiloError, nearest
from fairsilo.report.figures.drawing import rendered
from fairsilo.report.figures.registry import FIGURES
from fairsilo.report.spreadsheet import csv_text
from fairsilo.runs.folder import RunFolder


class Drawn(NamedTuple):
    """A figure found in a folder, whoever put it there."""

    name: str
    title: str
    about: str
    svg: str
    csv: str

    @property
    def wide(self) -> bool:
        """Several panels side by side: it wants the width of the page."""
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', self.svg)
        return box is not None and float(box[1]) > 2 * float(box[2])


def write_figure(name: str, replay: Replay, folder: Path, **options: Any) -> list[Path]:
    """Compute one figure and write NAME.csv, .svg, .png and .json; `options` go to the diagnostic."""
    if name not in FIGURES:
        raise FairsiloError(f"no figure is named {name!r}{nearest(name, FIGURES)}")
    diagram = FIGURES[name]
    result = diagram.compute(replay, **options)
    rows = result.rows()
    if not rows:
        raise FairsiloError(f"there is nothing to draw for {name}: this run has no models or images that it needs")
    folder.mkdir(parents=True, exist_ok=True)
    run_folder = RunFolder(folder)
    svg, png = rendered(name, diagram, result)
    image = folder / f"{name}.png"
    beside = image.with_name(f".{image.name}.part")
    beside.write_bytes(png)
    beside.replace(image)
    return [
        run_folder.write_text(f"{name}.csv", csv_text(list(rows[0]), rows)),
        run_folder.write_text(f"{name}.svg", svg),
        image,
        run_folder.write_json(
            f"{name}.json", {"title": diagram.title, "about": diagram.about, "numbers": result.numbers()}
        ),
    ]


def asked_figures(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Figure -> options, from texts such as `weight-gap(sweep=2)`.

    Raises:
        FairsiloError: There is no such figure, it has no such option, or it is asked for twice.
    """
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, _, brackets = text.partition("(")
        _known_options(name)
        options = settings_in(brackets.removesuffix(")"), text)
        if name in found:
            raise FairsiloError(f"the figure {name} is asked for twice")
        found[name] = {_known_option(name, key): value for key, value in options.items()}
    return found


def numbers_of(replay: Replay, asked: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Numbers], list[str]]:
    """What figures show in a few numbers, by their names, and what could not be measured and why; draws nothing."""
    found, failed = {}, []
    for name, options in asked.items():
        try:
            found[name] = FIGURES[name].compute(replay, **options).numbers()
        except (FairsiloError, ValueError) as problem:  # such as features of a model that is not finite any more
            failed.append(f"{name}: {problem}")
    return found, failed


def figures_of(replay: Replay) -> list[str]:
    """The names of all figures of a run: of the attention between adapters where it has some, else of local models."""
    return [name for name, diagram in FIGURES.items() if diagram.of_attention == replay.attends]


def options_of(name: str, texts: Sequence[str]) -> dict[str, Any]:
    """Options of a figure's diagnostic from `key=value` texts; unknown ones are refused by name."""
    known = _known_options(name)
    if texts and not known:
        raise FairsiloError(f"{name} has no options")
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise FairsiloError(f"{text!r} is no option; write key=value, such as {known[0]}=...")
        options[_known_option(name, key)] = yaml.safe_load(value)
    return options


def _known_options(name: str) -> list[str]:
    if name not in FIGURES:
        raise FairsiloError(f"no figure is named {name!r}{nearest(name, FIGURES)}")
    return [key for key in inspect.signature(FIGURES[name].compute).parameters if key != "replay"]


def _known_option(name: str, key: str) -> str:
    known = _known_options(name)
    if key not in known:
        raise FairsiloError(f"{name} has no option {key!r}{nearest(key, known)}")
    return key


def figures_in(folder: Path) -> list[Drawn]:
    """The figures in a folder, those of `FIGURES` first and in that order."""
    found = []
    for path in folder.glob("*.json"):
        drawing = path.with_suffix(".svg")
        about = _read_about(path) if drawing.exists() else None
        if about:
            svg, numbers = drawing.read_text(encoding="utf-8"), path.with_suffix(".csv")
            csv = numbers.read_text(encoding="utf-8") if numbers.exists() else ""
            found.append(Drawn(path.stem, about["title"], about["about"], svg[max(svg.find("<svg"), 0) :], csv))
    known = list(FIGURES)
    return sorted(found, key=lambda item: (known.index(item.name) if item.name in known else len(known), item.name))


def _read_about(path: Path) -> dict[str, str] | None:
    """Title and description, or None for some other JSON file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    fits = isinstance(content, dict) and all(isinstance(content.get(key), str) for key in ("title", "about"))
    return content if fits else None
