"""The web server of `fairsilo watch`: on this machine alone, for whoever has the token."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from fairsilo.errors import FairsiloError
from fairsilo.watch.all_runs import overview
from fairsilo.watch.comparison import comparison_page
from fairsilo.watch.one_run import run_page
from fairsilo.watch.pieces import POLICY
from fairsilo.watch.places import Places, mark, within
from fairsilo.watch.two_runs import pair_page

LOOPBACK = "127.0.0.1"
PORT = 8400
EVERY = 10  # seconds
SERVED = ("report.html", "comparison.html", "advice.html", "tuning.html")  # what is shown as it lies in a folder
# a report may come from anybody, and is shown at the address that has the token's cookie
SERVED_POLICY = "sandbox allow-downloads; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
HTML = "text/html; charset=utf-8"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the token stands in the first address
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class MissingError(Exception):
    """There is no such page."""


class Found(NamedTuple):
    """A page: the folders that it is about, what draws it, and what a browser may do with it."""

    folders: list[Path]
    draw: Callable[[], str]
    policy: str = POLICY


class Watch(ThreadingHTTPServer):
    """Serves pages over the runs below a folder.

    Args:
        root: A run, a comparison, or any folder above them; it may still be empty.
        port: Where; None takes the usual one, or any that is free. 0: any that is free.

    Attributes:
        on_entry: Called when somebody comes in with the token.

    Raises:
        FairsiloError: There is no such folder, or the port is taken.
    """

    daemon_threads = True

    def __init__(self, root: Path, port: int | None = None) -> None:
        if not root.is_dir():
            raise FairsiloError(f"{root} is no folder; a run makes its own, and `fairsilo watch` shows what is there")
        self.places = Places(root.resolve())
        self.token = secrets.token_urlsafe(24)
        self.on_entry: Callable[[], object] = lambda: None
        try:
            super().__init__((LOOPBACK, PORT if port is None else port), _Handler)
        except OSError as problem:
            if port is not None:
                raise FairsiloError(f"port {port} cannot be used ({problem.strerror}); choose another one") from None
            super().__init__((LOOPBACK, 0), _Handler)

    @property
    def address(self) -> str:
        """What to open; whoever has it sees everything."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """Cookies do not know ports, so the name does."""
        return f"fairsilo-{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a tab that was closed, or went elsewhere
            super().handle_error(request, client_address)

    def found(self, path: str, query: dict[str, list[str]]) -> Found:
        """The page at an address.

        Raises:
            MissingError: There is no such page.
        """
        places, runs, comparisons = self.places, self.places.runs, self.places.comparisons
        tried = {name: one.folder for name, one in places.tryouts.items()}
        kind, _, name = _unquoted(path).removeprefix("/").partition("/")
        if kind == "" and list(runs) == ["."]:
            kind = "run"
        if kind == "" and not name:
            folders = [*runs.values(), *comparisons.values(), *tried.values()]
            return Found(folders, lambda: overview(places, runs, comparisons))
        if kind == "pair" and not name:
            chosen = {one: _in(runs, one) for one in map(_unquoted, query.get("run", ()))}
            return Found(list(chosen.values()), lambda: pair_page(places, chosen))
        if kind in ("run", "comparison"):
            name = name or "."  # browsers make /run/ of /run/.
        if kind == "run":
            run = _in(runs, name)
            return Found([run], lambda: run_page(places, name, run))
        if kind == "comparison":
            whole = _in(comparisons, name)
            inside = [run for one, run in runs.items() if within(name, one)]
            return Found([whole, *inside], lambda: comparison_page(places, name, whole, runs))
        folder, _, file = name.rpartition("/")
        served = _in(comparisons | tried | runs, folder or ".") / file
        # what a link leads to may lie anywhere
        if kind != "files" or file not in SERVED or served.is_symlink() or not served.is_file():
            raise MissingError
        return Found([served.parent], lambda: served.read_text(encoding="utf-8", errors="replace"), SERVED_POLICY)


def _local(path: str) -> str:
    """A page of this server, to which a browser is sent on; what might lead elsewhere is its first page."""
    return path if re.fullmatch(r"(/[\w.%=+~-]+)+/?", path, re.ASCII) else "/"


def _unquoted(name: str) -> str:
    """Names of folders need not be texts; addresses, and the values of ticks, have their bytes."""
    return unquote(name, errors="surrogateescape")


def _in(known: dict[str, Path], name: str) -> Path:
    if name not in known:
        raise MissingError
    return known[name]


class _Handler(BaseHTTPRequestHandler):
    server: Watch
    server_version, sys_version = "fairsilo", ""

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        query = parse_qs(where.query)
        # another site's page may point a name of its own here; a browser then says that name
        # (the port may be another one, at the other end of a tunnel)
        if self.headers.get("Host", "").partition(":")[0].lower() not in (LOOPBACK, "localhost"):
            return self._answer(HTTPStatus.FORBIDDEN, "this address is not the one that fairsilo watch printed")
        if token := query.pop("token", [""])[0]:
            return self._enter(token)
        if not self._may():
            return self._answer(
                HTTPStatus.FORBIDDEN, "open the address that fairsilo watch printed; it has the token that is needed"
            )
        if where.path == "/watch.js":
            script = files("fairsilo.watch").joinpath("watch.js").read_text(encoding="utf-8")
            return self._answer(HTTPStatus.OK, script, "text/javascript; charset=utf-8")
        return self._show(where.path, query)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server asks for

    def _show(self, path: str, query: dict[str, list[str]]) -> None:
        try:
            found = self.server.found(path, query)
            # drawn again where a folder changed, and now and then: ages and the time left grow old by themselves
            looks = repr((path, query, [mark(one) for one in found.folders], int(time.time() / EVERY)))
            tag = f'"{hashlib.sha256(looks.encode()).hexdigest()[:24]}"'
            page = None if self.headers.get("If-None-Match") == tag else found.draw()
        except (MissingError, FileNotFoundError):  # gone since it was found, perhaps
            return self._answer(HTTPStatus.NOT_FOUND, "there is no such run or comparison here (any more)")
        except FairsiloError as problem:
            return self._answer(HTTPStatus.BAD_REQUEST, str(problem))
        except Exception as problem:  # noqa: BLE001 - files of anybody's, with anything in them
            why = " ".join(f"{type(problem).__name__}: {problem}".split())
            words = f"this page cannot be drawn, since a file that it is about is damaged or cannot be read ({why})"
            return self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, words)
        if page is None:
            return self._answer(HTTPStatus.NOT_MODIFIED, "", tag=tag)
        return self._answer(HTTPStatus.OK, page, HTML, tag, found.policy)

    def _may(self) -> bool:
        # piece by piece: another program on this machine may have set a cookie that no parser likes
        pieces = (piece.strip().partition("=") for piece in self.headers.get("Cookie", "").split(";"))
        given = [value for name, _, value in pieces if name == self.server.cookie]
        return any(hmac.compare_digest(one.encode(), self.server.token.encode()) for one in given)

    def _enter(self, token: str) -> None:
        """The token goes into a cookie, and out of the address: histories and screenshots show addresses."""
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return self._answer(HTTPStatus.FORBIDDEN, "this token is not the one of the fairsilo watch that runs here")
        self.server.on_entry()
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", _local(urlsplit(self.path).path))
        # not Strict, which browsers keep back when the printed address is followed from another site's page
        self.send_header("Set-Cookie", f"{self.server.cookie}={token}; HttpOnly; SameSite=Lax; Path=/")
        return self._finish("")

    def _answer(
        self,
        status: HTTPStatus,
        content: str,
        kind: str = "text/plain; charset=utf-8",
        tag: str = "",
        policy: str = POLICY,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Security-Policy", policy)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", kind)
        if tag:
            self.send_header("ETag", tag)
        self._finish(content)

    def _finish(self, content: str) -> None:
        body = content.encode("utf-8", errors="replace")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads a line for every look."""
