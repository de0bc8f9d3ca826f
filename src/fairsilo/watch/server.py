"""The web server of `fairsilo watch`: on this machine alone, for whoever has the token."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from fairsilo.errors import FairsiloError
from fairsilo.watch.pages import comparison_page, overview, pair_page, run_page
from fairsilo.watch.places import Places, mark

LOOPBACK = "127.0.0.1"
PORT = 8400
EVERY = 10  # seconds
SERVED = ("report.html", "comparison.html")  # what is shown as it lies in a folder
HTML = "text/html; charset=utf-8"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the token stands in the first address
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class MissingError(Exception):
    """There is no such page."""


class Watch(ThreadingHTTPServer):
    """Serves pages over the runs below a folder.

    Args:
        root: A run, a comparison, or any folder above them; it may still be empty.
        port: Where; None takes the usual one, or any that is free. 0: any that is free.

    Raises:
        FairsiloError: There is no such folder, or the port is taken.
    """

    daemon_threads = True

    def __init__(self, root: Path, port: int | None = None) -> None:
        if not root.is_dir():
            raise FairsiloError(f"{root} is no folder; a run makes its own, and `fairsilo watch` shows what is there")
        self.places = Places(root.resolve())
        self.token = secrets.token_urlsafe(24)
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

    def found(self, path: str, query: dict[str, list[str]]) -> tuple[list[Path], Callable[[], str]]:
        """The folders that a page is about, and what draws it.

        Raises:
            MissingError: There is no such page.
        """
        places = self.places
        kind, _, name = unquote(path).removeprefix("/").partition("/")
        every = [*places.runs.values(), *places.comparisons.values()]
        if kind == "" and list(places.runs) == ["."]:
            kind, name = "run", "."
        if kind == "" and not name:
            return every, lambda: overview(places)
        if kind == "pair" and not name:
            chosen = {one: _in(places.runs, one) for one in query.get("run", ())}
            return list(chosen.values()), lambda: pair_page(places, list(chosen))
        if kind == "run":
            return [_in(places.runs, name)], lambda: run_page(places, name)
        if kind == "comparison":
            _in(places.comparisons, name)
            return every, lambda: comparison_page(places, name)
        folder, _, file = name.rpartition("/")
        place = _in(places.comparisons | places.runs, folder or ".")
        if kind != "files" or file not in SERVED or not (place / file).is_file():
            raise MissingError
        return [place], lambda: (place / file).read_text(encoding="utf-8")


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
        if self.headers.get("Host") not in [f"{one}:{self.server.server_port}" for one in (LOOPBACK, "localhost")]:
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
            folders, draw = self.server.found(path, query)
            # drawn again where a folder changed, and now and then: ages and the time left grow old by themselves
            looks = repr((path, query, [mark(one) for one in folders], int(time.time() / EVERY)))
            tag = f'"{hashlib.sha256(looks.encode()).hexdigest()[:24]}"'
            if self.headers.get("If-None-Match") == tag:
                return self._answer(HTTPStatus.NOT_MODIFIED, "", tag=tag)
            page = draw()
        except (MissingError, FileNotFoundError):  # gone since it was found, perhaps
            return self._answer(HTTPStatus.NOT_FOUND, "there is no such run or comparison here (any more)")
        except FairsiloError as problem:
            return self._answer(HTTPStatus.BAD_REQUEST, str(problem))
        return self._answer(HTTPStatus.OK, page, HTML, tag)

    def _may(self) -> bool:
        try:
            given = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return False
        return given is not None and hmac.compare_digest(given.value.encode(), self.server.token.encode())

    def _enter(self, token: str) -> None:
        """The token goes into a cookie, and out of the address: histories and screenshots show addresses."""
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return self._answer(HTTPStatus.FORBIDDEN, "this token is not the one of the fairsilo watch that runs here")
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", "/")
        self.send_header("Set-Cookie", f"{self.server.cookie}={token}; HttpOnly; SameSite=Strict; Path=/")
        return self._finish("")

    def _answer(self, status: HTTPStatus, content: str, kind: str = "text/plain; charset=utf-8", tag: str = "") -> None:
        self.send_response(status)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", kind)
        if tag:
            self.send_header("ETag", tag)
        self._finish(content)

    def _finish(self, content: str) -> None:
        body = content.encode("utf-8")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads a line for every look."""
