"""`fairsilo methods`, `fairsilo settings` and `fairsilo datasets`: what there is to choose from."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fairsilo.cli.output import AsJson, say, show, show_json
from fairsilo.config import all_settings
from fairsilo.errors import UnknownSettingError


def methods(
    name: Annotated[str | None, typer.Argument(help="one method, in full")] = None, as_json: AsJson = False
) -> None:
    """The catalogue: papers, parts, settings with ranges and defaults, what is sent and kept."""
    from fairsilo.methods.catalogue import CATALOGUE, entry
    from fairsilo.report.tables import methods_table

    found = [entry(name).describe()] if name else [one.describe() for one in CATALOGUE.values()]
    if as_json:
        show_json(found)
    elif name:
        _describe(found[0])
    else:
        show(methods_table(found))


def settings(
    name: Annotated[str | None, typer.Argument(help="a group such as train, or one setting")] = None,
    as_json: AsJson = False,
) -> None:
    """What a run can be told as key=value: defaults, ranges, meanings."""
    words = {one["name"]: {one["name"], *one["name"].split(".")} for one in all_settings()}
    found = [one for one in all_settings() if not name or name in words[one["name"]]]
    if name and not found:
        raise UnknownSettingError(name, set().union(*words.values()))
    if as_json:
        show_json(found)
        return
    from fairsilo.report.tables import settings_table

    show(settings_table(found))


def datasets(
    name: Annotated[str | None, typer.Argument(help="one data set, in full")] = None, as_json: AsJson = False
) -> None:
    """The embedded federations, and what your own data must look like."""
    from fairsilo.data import DATASETS, load

    if name:
        _dataset(load(name=name), as_json)
        return
    rows = [{"name": key, "about": about} for key, about in DATASETS.items()]
    if as_json:
        show_json(rows)
        return
    for row in rows:
        say(f"{row['name']}: {row['about']}")
    say(
        "your own: data.folder=PATH with PATH/domain/class/*.png (or a CSV/JSON index with path, label, domain),\n"
        "          data.packed=PATH with one .npz per domain"
    )


def _dataset(found: Any, as_json: bool) -> None:
    domains = {
        domain.name: {split: int((domain.split == i).sum()) for i, split in enumerate(("train", "validation", "test"))}
        for domain in found.domains.values()
    }
    if as_json:
        show_json({"name": found.name, "about": found.about, "classes": list(found.classes), "domains": domains})
        return
    say(f"{found.name}: {found.about}\nclasses: {', '.join(found.classes)}")
    for name, counts in domains.items():
        say(f"  {name}: " + ", ".join(f"{count} {split}" for split, count in counts.items()))


def _describe(found: dict[str, Any]) -> None:
    from fairsilo.report.tables import written

    say(f"{found['title']} ({found['name']}): {found['idea']}")
    say(f"paper: {found['paper']}")
    say(f"parts: {', '.join(found['parts']) or 'none: the plain round'}")
    for formula in found["formulas"]:
        say(f"formula: {formula}")
    for item in found["settings"]:
        allowed = f" [{item['range']}]" if item["range"] else ""
        say(f"  {item['name']} = {written(item['default'])}{allowed}: {item['help']}")
    for text in found["sends"]:
        say(f"sends: {text}")
    for text in found["keeps"] or ("nothing",):
        say(f"keeps: {text}")
    say(f"results are about: the {found['results_about']} model")
    seen = "sees each silo's update" if found["individual_updates"] else "needs only their sum"
    say(f"the server {seen}")
