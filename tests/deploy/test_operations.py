"""What an administrator does to a running federation: a site removed and approved anew, a server restored, upgrades."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairsilo import __version__
from fairsilo.core.disk import numbers
from fairsilo.deploy.flare import administration, attendance, kits
from fairsilo.deploy.flare.machines import Kept, Session, site_command
from fairsilo.deploy.flare.supervisor import Supervisor
from fairsilo.tracking.registry import HANDED_ON, handed_on
from system import System, events, seen
from test_machines import LONGER, SOME, assert_same, bytes_in, counted
from test_watch import row, serving
from tiny_sites import TRAIN, simulated, write_site

pytestmark = [pytest.mark.deploy, pytest.mark.filterwarnings("default")]


def until(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether it comes to be within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.3)
    return False


def logged(folder: Path, text: str) -> Callable[[], bool]:
    return lambda: text.encode() in bytes_in(folder)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Kept]:
    """A site that is none of the system's, with the kit in a folder."""
    with Kept(site_command(folder), folder / "kit", folder / "logs" / "site.log") as process:
        yield process


def test_a_removed_site_is_out_at_once_and_its_certificate_for_good(system: System, tmp_path: Path) -> None:
    """In the middle of a run. Approved anew it may come back; its old certificate may not, nor a forged one.

    Who watches the server's folder sees it go.
    """
    site, log = system.site("scan"), system.folder / "logs"
    shutil.copytree(system.kit("scan"), tmp_path / "old" / "kit")
    run = system.begun("removed", "fedavg", **SOME)
    pages: list[str] = []
    with serving(system.folder) as visit:
        remove = (seen("opened", 2), lambda: kits.remove(system.folder, "scan"))
        watch = (seen("opened", 4), lambda: pages.append(visit("/run/runs/removed")[1]))
        with system.meanwhile(remove, watch, run=run) as done:
            assert system.run(run) == "finished", system.said
        pages.append(visit("/run/runs/removed")[1])
    assert len(done) == 2
    assert counted(run)[0] == ["print", "scan", "sketch"]
    assert counted(run)[2:] == [["print", "sketch"]] * 2
    for page, now in zip(pages, ("training|evaluating|waiting", "finished"), strict=True):
        for name in ("print", "sketch"):  # their numbers, and no round that they failed in
            assert re.fullmatch(rf"{name} {name} ({now})( [−\d.]+){{3}} 0", row(page, name))
        assert row(page, "street ").startswith("street unseen street ")
        assert re.search(r" [1-4]$", row(page, "scan"))
    assert "failed in round 4 lost: its site is not connected" in row(pages[-1], "scan")
    assert "Look at: scan" in pages[-1]
    system.connected(3)
    listed = {
        one["site"]: (one["connected"], one["removed"])
        for one in administration.sites_of(system.folder, system.session)
    }
    assert listed["scan"] == (False, True)
    assert listed["print"] == (True, False)
    system.sites["scan"].stop()
    system.tend()
    assert until(logged(site / "logs", "registration rejected: Client 'scan' is disabled"))

    system.away.add("scan")
    system.sites["scan"].stop()
    request = kits.renewal(site)
    attendance.take(site, kits.approve(system.folder, request), system.fingerprint)
    forged = kits.request(tmp_path / "forged", "trial", "forged")
    signed = kits._sign(system.folder, kits.Profile.read(system.folder), forged, tmp_path / "forged.signed.zip")
    kits.install(tmp_path / "forged", signed, system.fingerprint)
    with running(tmp_path / "old"), running(tmp_path / "forged"):
        for name in ("scan", "forged"):
            assert until(logged(log, f"{name} was refused: its certificate is not the one that is approved now"))
    found = system.session.system()
    assert found is not None
    assert set(found.sites) == {"print", "sketch", "street"}
    system.away.discard("scan")
    system.connected(4)


def test_a_server_that_is_restored_elsewhere_goes_on(system: System, tmp_path: Path) -> None:
    """From the files that the guide names, as they were after a round; the numbers are those of an undisturbed run."""
    run = system.begun("restored", "scaffold", **LONGER)
    saved = run / "checkpoint"
    system.supervisor.see_through(run, 4, lambda: saved.exists() and max(numbers(saved, "server"), default=0) >= 2)
    system.session.close()
    system.server.stop()
    restored = tmp_path / "federation"
    shutil.copytree(system.folder, restored, ignore=shutil.ignore_patterns("flare", "logs"))
    server = system.finding(administration.server_of(restored))
    try:
        with server, Session(restored) as session:
            end = time.monotonic() + 240
            supervisor = Supervisor(restored, session, server.tend, system.said.append)
            outcome = supervisor.see_through(restored / "runs" / "restored", 4, lambda: time.monotonic() > end)
        assert outcome == "finished", system.said
    finally:
        system.tend()
    simulated(tmp_path / "here", "scaffold", **LONGER)
    assert_same(restored / "runs" / "restored", tmp_path / "here")


def test_a_tracker_at_the_server_is_told_of_a_run(system: System, tmp_path: Path) -> None:
    """By the process of its job, in which trackers are known by what `federation start` hands on."""

    def restarted() -> None:
        system.session.close()
        system.server.stop()
        system.connected()

    system.server.more |= handed_on([f"tensorboard:{tmp_path / 'logs'}"], anonymous=True)
    try:
        restarted()
        run = system.begun("tracked", "fedavg", **SOME)
        assert system.run(run) == "finished", system.said
    finally:
        del system.server.more[HANDED_ON]
        restarted()
    state = json.loads((run / "tracking.json").read_text())
    place = str(tmp_path / "logs" / "tracked")
    assert state == {f"tensorboard:{tmp_path / 'logs'}": {"run": place, "round": len(counted(run))}}
    content = bytes_in(tmp_path / "logs")
    assert b"train_loss/silo-1" in content
    assert b"train_loss/scan" not in content


PART = """
from dataclasses import dataclass
from fairsilo.core.part import Part

@dataclass(frozen=True)
class Halved(Part):
    name = "halved"

    def step(self, server, direction):
        return direction / 2
"""


def test_who_takes_no_part_and_why(system: System) -> None:
    """One site has another version, one does not trust the package that the run names; a third trusts it and trains."""
    package, older = (
        system.root / "packages" / "their_parts.py",
        system.root / "packages-at" / "sketch" / "sitecustomize.py",
    )
    for path, content in ((package, PART), (older, "import fairsilo\nfairsilo.__version__ = '0.0.1'\n")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    run = system.begun("refusing", "their_parts:Halved", train={**TRAIN, "quorum": 0.5})
    try:
        for name in ("print", "street"):
            write_site(system.site(name), name, trust=["their_parts"])
        assert system.run(run) == "finished", system.said
    finally:
        package.unlink()
        older.unlink()
        for name in ("print", "street"):
            write_site(system.site(name), name)
    told = [one["text"] for one in events(run) if one["kind"] == "note"]
    assert "site 'sketch' takes no part: it has another version of fairsilo" in told
    assert "site 'scan' takes no part: the run names code of a package that it does not trust" in told
    assert counted(run) == [["print"], ["print"]]
    assert f"the server has fairsilo {__version__}, and this site 0.0.1".encode() in bytes_in(system.site("sketch"))
    why = b"the run names their_parts:Halved; to allow it, add the package to trust in site.yaml"
    assert why in bytes_in(system.site("scan"))
    assert why not in bytes_in(system.folder)
