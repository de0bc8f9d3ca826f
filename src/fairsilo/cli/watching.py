"""`fairsilo watch`."""

from __future__ import annotations

from contextlib import nullcontext
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
    and only to whoever has the address with its token. From elsewhere use a tunnel; the command for it is printed too.
    """
    from fairsilo.watch.opening import opened
    from fairsilo.watch.server import LOOPBACK, Watch

    with Watch(folder, port) as server:
        say(f"watching {folder}: {server.address}")
        local = f"{server.server_port}:{LOOPBACK}:{server.server_port}"
        say(f"from another machine, run there before you open it: ssh -L {local} MACHINE")
        say("Ctrl-C ends this page; runs go on")
        try:
            with opened(server) if open_ else nullcontext():
                server.serve_forever()
        except KeyboardInterrupt:
            say("")
