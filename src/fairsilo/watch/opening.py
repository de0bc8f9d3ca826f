"""How a browser is given the address with its token: not on its command line, which all users of a machine can read."""

from __future__ import annotations

import html
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fairsilo.watch.server import Watch

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>fairsilo watch</title>
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}"></head>
<body><p><a href="{address}">fairsilo watch</a></p></body></html>
"""


@contextmanager
def opened(server: Watch) -> Iterator[Path]:
    """Open a server's page in the browser, by a file that leads there and that this user alone can read.

    The file is gone as soon as somebody has come in, at the latest with the block.
    """
    # made with mode 0600
    with tempfile.NamedTemporaryFile("w", prefix="fairsilo-", suffix=".html", encoding="utf-8", delete=False) as file:
        file.write(PAGE.format(address=html.escape(server.address)))
    path = Path(file.name)

    def remove() -> None:
        with suppress(OSError):
            path.unlink(missing_ok=True)

    server.on_entry = remove
    try:
        webbrowser.open(path.as_uri())
        yield path
    finally:
        remove()
