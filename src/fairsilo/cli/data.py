"""`fairsilo datasets`: what there is, what your own data look like, what is wrong with them, and their preparation."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from fairsilo.cli import completing
from fairsilo.cli.output import AsJson, console, say, show_json
from fairsilo.errors import FairsiloError


def datasets(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME | check PATH | prepare NAME]",
            help="a data set, or your own folder, index or packed files; check: all faults; prepare: convert once",
            autocompletion=completing.datasets,
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="prepare: the folder that has it, or hub:OWNER/NAME")
    ] = None,
    size: Annotated[int | None, typer.Option("--size", help="prepare: resize images to this many pixels")] = None,
    fit: Annotated[
        str,
        typer.Option(
            "--fit", help="prepare: squeeze, crop or pad images that are not square", autocompletion=completing.fits
        ),
    ] = "squeeze",
    root: Annotated[str | None, typer.Option("--root", help="where public data are; else FAIRSILO_DATA")] = None,
    as_json: AsJson = False,
) -> None:
    """Data sets by name, how to get them and what is found of them; your own data described, checked or converted.

    Data sets that installed packages offer are listed too. Nothing is downloaded unless --from says hub:.
    """
    given = words or []
    if len(given) == 2 and given[0] == "check":
        _check(Path(given[1]), as_json)
    elif len(given) == 2 and given[0] == "prepare":
        _prepare(given[1], source, size, fit, root, as_json)
    elif len(given) > 1 or given in (["check"], ["prepare"]):
        raise FairsiloError("give one data set, or `check PATH`, or `prepare NAME --from PATH`")
    elif source is not None or size is not None or fit != "squeeze":
        raise FairsiloError("--from, --size and --fit are of `fairsilo datasets prepare NAME`")
    elif given:
        _one(given[0], root, as_json)
    else:
        _list(as_json)


def _list(as_json: bool) -> None:
    from fairsilo.data import all_datasets

    rows = [{"name": key, "about": about} for key, about in all_datasets().items()]
    if as_json:
        show_json(rows)
        return
    for row in rows:
        say(f"{row['name']}: {row['about']}")
    say(
        "your own: data.folder=PATH with PATH/domain/class/*.png (or a CSV/JSON index with path, label, domain),\n"
        "          data.packed=PATH with one .npz per domain, data.name=package:function with a function of your own"
    )


def _one(name: str, root: str | None, as_json: bool) -> None:
    from fairsilo.data import is_public

    if is_public(name):
        from fairsilo.data.finding import report

        facts = report(name, root)
        if as_json:
            show_json(facts)
        else:
            _public(facts)
        return
    from fairsilo.data.describe import describe, find

    facts = describe(find(name))
    if as_json:
        show_json(facts)
        return
    say(f"{facts['name']}: {facts['about']}".rstrip(": "))
    say(f"classes: {', '.join(facts['classes'])}")
    _domains(facts["domains"])
    for note in facts["notes"]:
        say(note)


def _public(facts: dict[str, Any]) -> None:
    say(f"{facts['title']} ({facts['name']}): {facts['about']}")
    say(f"task: {facts['task']}; classes: {', '.join(facts['classes'])}")
    known = [f"{name} {count}" if count else name for name, count in facts["expected"].items()]
    say(f"domains: {', '.join(known)}")
    for key in ("licence", "size", "citation"):
        say(f"{key}: {facts[key]}")
    say(f"how to get it: {facts['obtain']}")
    for text in facts["protocols"]:
        say(f"protocol: {text}")
    for text in facts["forms"]:
        say(f"read from: {text}")
    if facts["root"] is None:
        say("looked for: nowhere; set data.root or the environment variable FAIRSILO_DATA")
        return
    say(f"looked for: {', '.join(facts['looked_for'])}")
    found = facts["found"]
    say(f"found: {found['folder']}, {found['form']}" if found else "found: nothing")
    if found:
        _domains(found["domains"])
        for remark in found["remarks"]:
            say(f"  {remark}")
    for folder in facts["prepared"]:
        say(f"prepared: {folder}")


def _domains(domains: dict[str, dict[str, int]]) -> None:
    for domain, counts in domains.items():
        say(f"  {domain}: " + ", ".join(f"{count} {split}" for split, count in counts.items()))


def _check(path: Path, as_json: bool) -> None:
    from fairsilo.data.checking import check_data

    found = check_data(path)
    if as_json:
        counts = {domain: dict(labels) for domain, labels in found.counts.items()}
        show_json({"samples": found.samples, "domains": counts, "problems": found.problems, "remarks": found.remarks})
    else:
        for problem in found.problems:
            say(f"problem: {problem}")
        for remark in found.remarks:
            say(f"remark: {remark}")
        said = f"{len(found.problems)} problems" if found.problems else "no problem"
        say(f"{path}: {found.samples} images in {len(found.counts)} domains, {said}")
    if found.problems:
        raise typer.Exit(2)


def _prepare(name: str, source: str | None, size: int | None, fit: str, root: str | None, as_json: bool) -> None:
    from rich.progress import Progress

    from fairsilo.data import datasets as public
    from fairsilo.data import is_public
    from fairsilo.data.preparing import prepare
    from fairsilo.errors import nearest

    if not is_public(name):
        raise FairsiloError(f"unknown data set {name!r}{nearest(name, public.names())}")
    with Progress(console=console, disable=as_json or not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def show(domain: str, done: int, total: int) -> None:
            if domain not in tasks:
                tasks[domain] = bar.add_task(domain, total=total)
            bar.update(tasks[domain], completed=done)

        folder = prepare(name, source, root, size, fit, show)
    if as_json:
        show_json({"name": name, "folder": str(folder), "size": size, "fit": fit})
        return
    say(f"prepared and verified: {folder}")
    used = f" data.size={size}" if size else ""
    used += f" data.fit={fit}" if fit != "squeeze" else ""
    say(f"used by: fairsilo run data={name} data.root={shlex.quote(str(folder.parent.parent))}{used}")
