"""`fairsilo site`: what a site's engineer does, at the site."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from fairsilo.cli.federating import needed
from fairsilo.cli.interrupts import until_stopped
from fairsilo.cli.output import say, verbatim
from fairsilo.cli.running import Settings
from fairsilo.config import experiment, read_yaml
from fairsilo.deploy.brief import refuse_unnamed
from fairsilo.errors import FairsiloError

site = typer.Typer(help="A site of a federation across machines.", no_args_is_help=True)
Folder = Annotated[Path, typer.Option("--folder", "-f", help="the site's folder")]
HERE = Path("site")


@site.command()
def join(
    name: Annotated[str | None, typer.Argument(help="of this site; to ask for membership")] = None,
    federation: Annotated[str | None, typer.Option(help="the federation's name; to ask for membership")] = None,
    signed: Annotated[Path | None, typer.Option(help="NAME.signed.zip, as it came back; to become a member")] = None,
    fingerprint: Annotated[str | None, typer.Option(help="as the federation's administrator told it to you")] = None,
    folder: Folder = HERE,
) -> None:
    """First write a request to join; later take the signed package that comes back."""
    needed()
    from fairsilo.deploy.flare import attendance, kits

    if signed is not None:
        if name or federation or not fingerprint:
            raise FairsiloError(
                "to become a member: fairsilo site join --signed NAME.signed.zip --fingerprint SHA256:..."
            )
        found = attendance.take(folder, signed, fingerprint)
        written = attendance.write_template(folder, found)
        say(f"site {found} has joined; say in {written} where its data are, then: fairsilo site check")
        return
    if not name or not federation:
        raise FairsiloError("to ask for membership: fairsilo site join NAME --federation FEDERATION")
    request = kits.request(folder, federation, name)
    say(f"send to the federation's administrator: {request}")
    say(f"the private key stays in {request.parent}")


@site.command()
def renew(folder: Folder = HERE) -> None:
    """Ask for a new certificate, with a new key; the present one serves until the new package is taken."""
    needed()
    from fairsilo.deploy.flare import kits

    request = kits.renewal(folder)
    say(f"send to the federation's administrator: {request}")
    say("with what comes back: stop the site, fairsilo site join --signed ..., start it again")


@site.command()
def check(
    config: Annotated[Path | None, typer.Argument(help="a run's YAML file; by default fairsilo's defaults")] = None,
    settings: Settings = None,
    folder: Folder = HERE,
) -> None:
    """Can the server be reached, can the data be read, does the model fit; and what would be sent."""
    needed()
    from fairsilo.deploy.flare import attendance

    content, changes = read_yaml(config) if config else {"baseline": None}, list(settings or [])
    if config is None and not any(one.startswith("data.classes") for one in changes):
        own = attendance.classes_here(folder)
        content = {**content, "data": {"classes": list(own) or "-"}}
        say(f"no run's file was given: the classes are those of the data here: {', '.join(own) or 'none'}")
    refuse_unnamed(content, changes)
    chosen = experiment(content, changes)
    try:
        say(f"server: reached, {attendance.reach(folder)}")
    except FairsiloError as problem:
        unreached: FairsiloError | None = problem
        say(f"server: NOT reached: {problem}")
    else:
        unreached = None
    found, silos = attendance.read_all(folder, chosen)
    for (member, task, shape, *_), one in zip(silos, found.silos, strict=True):
        sizes = f"{member.train:,} to train, {member.validation:,} to validate, {member.test:,} to test"
        say(f"silo {member.name} ({one.role}), domain {member.domain}, {task}, {'x'.join(map(str, shape))}: {sizes}")
    say(f"device: {found.machine.place}")
    say(f"would be sent: {attendance.fits(chosen, found, silos)}")
    say("of itself the silo says: its name, its domain, these numbers, and how many samples show each class")
    for line in attendance.about_groups(chosen, found, silos):
        say(line)
    if unreached:
        raise FairsiloError("all but the server is well; is it started (`fairsilo federation start` at the server)?")


@site.command()
def start(folder: Folder = HERE) -> None:
    """Take part, until Ctrl-C."""
    needed()
    from fairsilo.deploy.flare import attendance

    with until_stopped() as stopped:
        attendance.start(folder, say, stopped)
    say("stopped; what the site's silos keep is on its disk")


@site.command()
def unit(
    user: Annotated[str | None, typer.Option(help="under which it runs; by default you")] = None, folder: Folder = HERE
) -> None:
    """Print a systemd unit that keeps the site taking part."""
    needed()
    from fairsilo.deploy.flare import attendance, kits

    kits.site_name(folder)
    verbatim(attendance.unit(folder, user or getpass.getuser()))
