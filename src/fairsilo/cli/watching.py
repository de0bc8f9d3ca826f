"""`fairsilo watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairsilo.cli.output import say


def watch(
    folder: Annotated[Path, typer.Argument(help="a run, a comparison, or a folder with some")] = Path("runs"),
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="by default 8400, or any that is free")] = None,
    open_: Annotated[bool, typer.Option("--open", help="open the page in your browser")] = False,
) -> None:
    """Follow runs in a browser while they go on, or look at them later.

    The page reads run folders, so it works beside any engine and any number of runs. It is served on this machine alone
    and only to whoever has the address with its token. From elsewhere use a tunnel: ssh -L 8400:127.0.0.1:8400 MACHINE.
    """
    import webbrowser

    from fairsilo.watch.server import Watch

    with Watch(folder, port) as server:
        say(f"watching {folder}: {server.address}")
        say("Ctrl-C ends this page; runs go on")
        if open_:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("")
