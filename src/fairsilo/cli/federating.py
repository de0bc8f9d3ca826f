"""`fairsilo federation`: what its administrator does, at the server."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fairsilo.cli.interrupts import until_stopped
from fairsilo.cli.output import AsJson, say, show, show_json, verbatim
from fairsilo.cli.running import Anonymous, Settings, Track, trackers
from fairsilo.config import experiment, read_yaml
from fairsilo.deploy.brief import refuse_unnamed
from fairsilo.errors import FairsiloError

federation = typer.Typer(help="A federation across machines, at its server.", no_args_is_help=True)
Folder = Annotated[Path, typer.Option("--folder", "-f", help="the federation's folder")]
HERE = Path("federation")


def needed() -> None:
    """One sentence where FLARE is not installed."""
    try:
        import nvflare  # noqa: F401
    except ImportError as problem:
        raise FairsiloError("this needs NVIDIA FLARE: pip install 'fairsilo[flare]'") from problem


@federation.command()
def init(
    name: Annotated[str, typer.Argument(help="of the federation")],
    host: Annotated[str, typer.Option(help="under which sites reach this machine")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="on which the server listens")] = 8102,
    folder: Folder = HERE,
) -> None:
    """Make a federation: its certificate authority, the server's kit and the administrator's."""
    needed()
    from fairsilo.deploy.flare import kits

    found = kits.init(folder, kits.Profile(name, host, port))
    say(f"federation {name} in {folder}; keep {folder / 'ca'} safe, and a copy of it elsewhere")
    say(f"fingerprint, for sites to compare: {found}")


@federation.command()
def invite(site: Annotated[str, typer.Argument(help="of the site")], folder: Folder = HERE) -> None:
    """Say what a site must type to ask for membership."""
    needed()
    from fairsilo.deploy.flare import kits

    profile = kits.Profile.read(folder)
    kits.checked_name(site, "the site's name")
    say(f"To the site {site}, by mail:")
    say("  pip install 'fairsilo[flare]'")
    say(f"  fairsilo site join {site} --federation {profile.name}")
    say(f"  then send us {site}.request.zip")
    say(f"  the site's machine opens connections to {profile.host}:{profile.port}, and needs no open port itself")
    say("By another way, such as the telephone, the fingerprint that the site will compare:")
    say(f"  {kits.fingerprint(folder)}")


@federation.command()
def approve(
    request: Annotated[Path, typer.Argument(help="NAME.request.zip, as a site sent it")],
    renew: Annotated[bool, typer.Option("--renew", help="in the place of the certificate that the site has")] = False,
    folder: Folder = HERE,
) -> None:
    """Sign a site's request, after you made sure who sent it."""
    needed()
    from fairsilo.deploy.flare import kits

    signed = kits.approve(folder, request, renew)
    say(f"send back to {kits.requested_name(request)}: {signed}")
    if renew:
        say("its old certificate opens no connection from now on")


@federation.command()
def remove(site: Annotated[str, typer.Argument(help="of the site")], folder: Folder = HERE) -> None:
    """Shut a site out for good, or until a new request of its is approved."""
    needed()
    from fairsilo.deploy.flare import kits

    kits.remove(folder, site)
    say(f"{site} is no member any more: its certificate no longer lets it in, and a run under way goes on without it")


@federation.command()
def renew(folder: Folder = HERE) -> None:
    """New certificates for the server and the administrator, while the server is stopped."""
    needed()
    from fairsilo.deploy.flare import administration

    administration.renew_own(folder)
    say("server and administrator have new keys; sites that were connected log in again when they are started again")


@federation.command()
def start(
    folder: Folder = HERE,
    sites: Annotated[int, typer.Option(min=1, help="how many must be connected before a run begins")] = 1,
    track: Track = None,
    anonymous: Anonymous = False,
) -> None:
    """Run the server, and see submitted runs through, until Ctrl-C or `fairsilo federation stop`."""
    needed()
    from fairsilo.deploy.flare import administration

    trackers(track, anonymous)  # what is wrong with them is said before anything is started
    with until_stopped() as stopped:
        administration.start(folder, say, stopped, sites, track=track or (), anonymous=anonymous)
    say("stopped; runs that were under way go on when it is started again")


@federation.command()
def stop(
    run: Annotated[str | None, typer.Argument(help="a run to withdraw; without one the server is stopped")] = None,
    folder: Folder = HERE,
) -> None:
    """Stop the server, or withdraw a run."""
    needed()
    from fairsilo.deploy.flare import administration

    if run is None:
        say(f"process {administration.stop(folder)} was told to stop")
    else:
        administration.withdraw(folder, run)
        say(f"no further attempt is made at {run}")


@federation.command()
def submit(
    config: Annotated[Path, typer.Argument(help="a YAML file of settings, as `fairsilo run -c` takes it")],
    settings: Settings = None,
    name: Annotated[str | None, typer.Option(help="of the run; by default method and seed")] = None,
    folder: Folder = HERE,
) -> None:
    """Submit a run; the server's supervisor begins it when it is its turn."""
    needed()
    from fairsilo.deploy.flare import kits
    from fairsilo.deploy.flare.supervisor import submit as submitted

    kits.Profile.read(folder)
    content, changes = read_yaml(config), settings or []
    chosen = experiment(content, changes)
    refuse_unnamed(content, changes)
    run = submitted(folder, chosen, name)
    say(f"submitted: {run.name}; `fairsilo federation status` tells how far it is")
    _say_if_stopped(folder)


def _say_if_stopped(folder: Path) -> None:
    from fairsilo.deploy.flare import administration

    if not administration.is_running(folder):
        say("the server does not run: `fairsilo federation start` starts it")


@federation.command()
def status(folder: Folder = HERE, as_json: AsJson = False) -> None:
    """Sites with their versions and when they were last seen; runs and how far they are."""
    needed()
    from fairsilo.deploy.flare import administration, kits
    from fairsilo.deploy.flare.machines import Session
    from fairsilo.report.deployed import runs_table, sites_table

    kits.Profile.read(folder)
    with Session(folder) as session:
        sites, runs = administration.sites_of(folder, session), administration.runs_of(folder)
    if as_json:
        show_json({"sites": sites, "runs": runs})
        return
    show(sites_table(sites))
    show(runs_table(runs))
    _say_if_stopped(folder)


@federation.command()
def logs(
    run: Annotated[str | None, typer.Argument(help="a run, for what happened in it; else the server's log")] = None,
    lines: Annotated[int, typer.Option(min=1)] = 40,
    folder: Folder = HERE,
) -> None:
    """What happened in a run, its last lines; or the end of the server's log."""
    needed()
    from fairsilo.deploy.flare import administration, kits

    kits.Profile.read(folder)
    if run is not None:
        for line in administration.told_of(administration.run_folder(folder, run))[-lines:]:
            verbatim(line)
        return
    path = folder / "logs" / "server.log"
    if not path.exists():
        raise FairsiloError(f"{path} does not exist yet: the server has not run")
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]:
        verbatim(line)


@federation.command()
def demo(
    folder: Annotated[Path, typer.Option("--folder", "-f", help="a new folder for all of it")] = Path(
        "federation-demo"
    ),
    browser: Annotated[bool, typer.Option(help="open the report in a browser")] = True,
) -> None:
    """A server and four sites as processes on this machine, with real certificates; FFT-GP runs over them."""
    needed()
    from fairsilo.deploy.flare import demo as demonstration
    from fairsilo.report.page import read_results
    from fairsilo.report.tables import run_table

    with until_stopped() as stopped:
        run = demonstration.demo(folder, say, stopped)
    ((name, summary),) = read_results(run)
    show(run_table(name, summary, None))
    say(f"run folder: {run}")
    say(f"report: {run / 'report.html'}")
    if browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform != "linux"):
        typer.launch(str(run / "report.html"))
