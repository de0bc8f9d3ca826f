"""Write the figures of a run, and say what they show in numbers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fairsilo.analysis.diagnostics.replay import Numbers, Replay
from fairsilo.core.calls import settings_in
from fairsilo.errors import FairsiloError, nearest
from fairsilo.report.figures.captions import refuse_unknown
from fairsilo.report.figures.drawing import rendered
from fairsilo.report.figures.registry import FIGURES
from fairsilo.report.spreadsheet import csv_text
from fairsilo.runs.folder import RunFolder


def write_figure(name: str, replay: Replay, folder: Path, **options: Any) -> list[Path]:
    """Compute one figure and write NAME.csv, .svg, .png and .json; `options` go to the diagnostic."""
    refuse_unknown(name)
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
        run_folder.write_json(f"{name}.json", {**diagram.caption._asdict(), "numbers": result.numbers()}),
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
            raise FairsiloError(f"the figure {name} is asked for twice; name it once")
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
        raise FairsiloError(f"{name} has no options; leave them out")
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise FairsiloError(f"{text!r} is no option; write key=value, such as {known[0]}=...")
        options[_known_option(name, key)] = yaml.safe_load(value)
    return options


def _known_options(name: str) -> list[str]:
    refuse_unknown(name)
    return [key for key in inspect.signature(FIGURES[name].compute).parameters if key != "replay"]


def _known_option(name: str, key: str) -> str:
    known = _known_options(name)
    if key not in known:
        raise FairsiloError(f"{name} has no option {key!r}{nearest(key, known)}")
    return key
