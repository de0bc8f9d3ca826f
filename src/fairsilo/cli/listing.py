"""`fairsilo methods`, `models` and `settings`: what there is to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any

import typer

from fairsilo.cli import completing
from fairsilo.cli.output import AsJson, say, show, show_json
from fairsilo.config import all_settings
from fairsilo.errors import UnknownSettingError
from fairsilo.methods.names import refuse_unknown


def methods(
    name: Annotated[
        str | None, typer.Argument(help="one method, or a composition, in full", autocompletion=completing.methods)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The catalogue: papers, parts, settings with ranges and defaults, what is sent and kept.

    Methods that installed packages offer are listed too. Of a composition, such as "elcfs | fedheal", each is shown.
    """
    if name:
        refuse_unknown(name)
    from fairsilo.methods.others import all_entries
    from fairsilo.methods.text import described
    from fairsilo.report.tables import methods_table

    found = described(name) if name else [one.describe() for one in all_entries().values()]
    if as_json:
        show_json(found)
    elif name:
        for number, one in enumerate(found):
            if number:
                say("")
            _describe(one)
    else:
        show(methods_table(found))


def models(
    name: Annotated[str | None, typer.Argument(help="one network, in full", autocompletion=completing.models)] = None,
    as_json: AsJson = False,
) -> None:
    """The networks: parameters, what they take, what they are for, where their weights come from.

    Networks that installed packages offer are listed too.
    """
    from fairsilo.models.described import about, all_models
    from fairsilo.report.tables import models_table

    found = [about(name)] if name else list(all_models().values())
    if as_json:
        show_json(found)
    elif name:
        _describe_model(found[0])
    else:
        show(models_table(found))


def settings(
    name: Annotated[
        str | None, typer.Argument(help="a group such as train, or one setting", autocompletion=completing.settings)
    ] = None,
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


def _describe(found: dict[str, Any]) -> None:
    from fairsilo.report.tables import written

    say(f"{found['title']} ({found['name']}): {found['idea']}")
    say(f"paper: {found['paper']}")
    say(f"parts: {', '.join(found['parts']) or 'none: the plain round'}")
    for formula in found["formulas"]:
        say(f"formula: {formula}")
    for part, group in groupby(found["settings"], key=itemgetter("part")):
        first, *others = group
        say(f"settings of {part}, as in {found['name']}({first['name']}={written(first['default'])}):")
        _describe_settings([first, *others], found["settings"])
    for text in found["sends"]:
        say(f"sends: {text}")
    for text in found["keeps"] or ("nothing",):
        say(f"keeps: {text}")
    say(f"results are about: the {found['results_about']} model")
    say(f"the server {found['server_sees']}")
    say(f"on a GPU its steps are {'recorded and replayed' if found['recorded'] else 'made one by one'}")


def _describe_model(found: dict[str, Any]) -> None:
    from fairsilo.report.tables import counted

    say(f"{found['name']}: {found['about']}")
    say(f"parameters: {counted(found) or 'as its checkpoint has'}")
    say(f"takes: {found['takes']}")
    say(f"for: {', '.join(found['tasks'])}")
    say(f"weights: {found['weights']}")
    if found["pretrained"] and not any(item["name"] == "weights" for item in found["settings"]):
        say(f"pretrained instead: {found['pretrained']}")
    _describe_settings(found["settings"])


def _describe_settings(items: Sequence[dict[str, Any]], of_all: Sequence[dict[str, Any]] = ()) -> None:
    """Settings of a network or of a part; `of_all` has those of all parts, of which several may share one."""
    from fairsilo.report.tables import written

    for item in items:
        owners = [one["part"] for one in of_all if one["name"] == item["name"]]
        shared = f" (one value for {' and '.join(owners)})" if len(owners) > 1 else ""
        allowed = f" [{item['range']}]" if item["range"] else ""
        searched = f" (tune: {item['search']})" if item.get("search") else ""
        say(f"  {item['name']} = {written(item['default'])}{allowed}: {item['help']}{searched}{shared}")
