"""`fairsilo demo`."""

from __future__ import annotations

from pathlib import Path

from fairsilo.cli.comparing import show_comparison
from fairsilo.cli.interrupts import interruptible
from fairsilo.cli.output import AsJson, console, say, show_json
from fairsilo.cli.running import OutFolder
from fairsilo.config import DEMO, DEMO_SEEDS, experiment


def demo(out: OutFolder = None, as_json: AsJson = False) -> None:
    """What fairsilo is for, in about a minute: one method beside FedAvg on the embedded federation.

    Four silos of uneven size, one domain that nobody trains on, three seeds. docs/reproduction.md says how the method
    was chosen and what the others of the catalogue do there.
    """
    chosen = experiment(DEMO)
    from fairsilo import api
    from fairsilo.cli.progress import ProgressListener
    from fairsilo.report.comparison_page import write_comparison

    methods = [chosen.baseline or "fedavg", chosen.method]
    with interruptible("the same command goes on from the last complete round"):
        with ProgressListener(console, quiet=as_json) as listener:
            folder = out or Path("runs") / "demo"
            found = api.compare(
                methods, experiment=chosen, seeds=DEMO_SEEDS, out=folder, listener=listener, planned=listener.begin
            )
        page = write_comparison(found.folder)
    if as_json:
        show_json(found.as_dict())
        return
    show_comparison(page)
    say(f"one run in detail: {found.folder / found.cells[-1]['folder'] / 'report.html'}")
