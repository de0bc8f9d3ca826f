"""`fairsilo watch`: what its pages say of run folders, who may see them, and what a run writes for them."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from filelock import FileLock

import fairsilo
import tiny
from fairsilo import Event, Federation
from fairsilo.analysis.remaining import seconds_left
from fairsilo.engine.now import SHARE, Now
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import NOW, PLAN
from fairsilo.runs.lock import LOCK, in_use, locked
from fairsilo.watch.places import Places
from fairsilo.watch.server import LOOPBACK, Watch

SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 8, "engine": {"name": "sequential"}, "model": tiny.TinyNet}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("fedavg", "faa"):
        fairsilo.run(federation=tiny.federation(), method=method, rounds=2, out=folder / method, **SMALL)
    return folder


class Visitor:
    """A browser as far as addresses and cookies go."""

    def __init__(self, server: Watch) -> None:
        self.server = server
        self.cookie = f"{server.cookie}={server.token}"

    def __call__(self, path: str, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection(LOOPBACK, self.server.server_port, timeout=10)
        connection.request("GET", path, headers={"Cookie": self.cookie, **headers})
        answer = connection.getresponse()
        content = answer.read().decode()
        connection.close()
        return answer.status, content, answer.headers


@contextmanager
def serving(root: Path) -> Iterator[Visitor]:
    with Watch(root, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield Visitor(server)
        finally:
            server.shutdown()
            thread.join()


def row(page: str, name: str) -> str:
    """The words of the table row that begins with a name."""
    found = next(one for one in re.findall(r"<tr><th scope=\"row\">.*?</tr>", page, re.S) if f">{name}<" in one)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", found)).strip()


# -------------------------------------------------------------------------------------------------------- who may see
def test_only_whoever_has_the_token_sees_a_page(runs: Path) -> None:
    with serving(runs) as visit:
        assert visit("/")[0] == 200
        for cookie in ("", "other=1", f"{visit.server.cookie}=wrong", "=;=", f"{visit.server.cookie}="):
            status, content, _ = visit("/", Cookie=cookie)
            assert status == 403
            assert "faa" not in content
            assert visit("/run/faa", Cookie=cookie)[0] == 403
            assert visit("/watch.js", Cookie=cookie)[0] == 403


def test_the_printed_address_lets_in_and_leaves_no_token_in_the_address_bar(runs: Path) -> None:
    with serving(runs) as visit:
        address = visit.server.address
        assert address.startswith(f"http://127.0.0.1:{visit.server.server_port}/?token=")
        status, _, headers = visit(address[address.index("/?") :], Cookie="")
        assert (status, headers["Location"]) == (303, "/")
        cookie = headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Strict"} <= {piece.strip() for piece in cookie.split(";")}
        assert visit("/", Cookie=cookie.partition(";")[0])[0] == 200
        assert visit("/?token=wrong", Cookie="")[0] == 403


def test_a_name_of_another_site_that_leads_here_is_refused(runs: Path) -> None:
    with serving(runs) as visit:
        assert visit("/", Host=f"evil.example:{visit.server.server_port}")[0] == 403
        assert visit("/", Host=f"localhost:{visit.server.server_port}")[0] == 200


def test_it_listens_on_this_machine_alone_and_says_when_a_port_is_taken(runs: Path) -> None:
    with Watch(runs, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        with pytest.raises(FairsiloError, match=f"port {server.server_port} cannot be used"):
            Watch(runs, server.server_port)


def test_what_is_no_folder_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match="is no folder"):
        Watch(tmp_path / "none")


@pytest.mark.parametrize(
    "path",
    [
        "/run/../fedavg",
        "/run/%2e%2e/secret",
        "/run//etc",
        "/files/fedavg/config.yaml",
        "/files/fedavg/../secret/report.html",
        "/files/..%2Fsecret/report.html",
        "/files/fedavg/models/global.safetensors",
        "/comparison/fedavg",
        "/other",
        "/pair?run=fedavg&run=../secret",
    ],
)
def test_no_address_leads_out_of_the_folder_or_to_other_files(runs: Path, path: str) -> None:
    secret = runs.parent / "secret"
    secret.mkdir(exist_ok=True)
    (secret / "report.html").write_text("secret")
    with serving(runs) as visit:
        status, content, _ = visit(path)
    assert status == 404
    assert "secret" not in content


def test_pages_load_nothing_from_elsewhere(runs: Path) -> None:
    with serving(runs) as visit:
        for path in ("/", "/run/faa", "/pair?run=faa&run=fedavg"):
            page = visit(path)[1]
            assert re.findall(r'(?:src|href)="(?!/)[^"]*"', page) == []
            assert "default-src 'none'" in page
            assert "http" not in re.sub(r'http-equiv|xmlns="[^"]*"', "", page)
        assert "http" not in visit("/watch.js")[1]


def test_a_page_that_looks_the_same_is_not_sent_again(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsilo.watch.server.EVERY", 1e9)
    with serving(runs) as visit:
        _, _, headers = visit("/run/faa")
        assert visit("/run/faa", **{"If-None-Match": headers["ETag"]})[0] == 304
        (runs / "faa" / NOW).write_text("{}")
        assert visit("/run/faa", **{"If-None-Match": headers["ETag"]})[0] == 200
        (runs / "faa" / NOW).unlink()


# ----------------------------------------------------------------------------------------------------------- the pages
def test_all_runs_are_listed_with_state_and_answers(runs: Path) -> None:
    with serving(runs) as visit:
        page = visit("/")[1]
    summary = json.loads((runs / "faa" / "summary.json").read_text())
    assert f"{100 * summary['generalisation']['mean']:.1f}" in row(page, "faa")
    assert "finished" in row(page, "faa")
    assert "2 of 2" in row(page, "fedavg")
    assert "2 finished" in page


def test_an_empty_folder_says_that_there_is_no_run_yet(tmp_path: Path) -> None:
    with serving(tmp_path) as visit:
        status, page, _ = visit("/")
    assert status == 200
    assert "no run in this folder yet" in page


def test_a_folder_of_one_run_is_shown_at_once(runs: Path) -> None:
    with serving(runs / "faa") as visit:
        page = visit("/")[1]
        assert "The silos now" in page
        assert visit("/files/./report.html")[0] == 200


def test_what_each_silo_does_is_shown_while_a_run_goes_on(runs: Path) -> None:
    """As `Now` writes it: one at work, one done, one failed, one excluded."""
    doing = {
        "a": {"state": "working", "exchange": "train"},
        "b": {"state": "answered", "exchange": "train", "loss": 0.25},
        "c": {"state": "failed", "exchange": "train", "why": "timeout: no answer within 60 s"},
        "u": {"state": "answered", "exchange": "evaluate", "why": "not finite: <b>loss</b> is nan"},
    }
    state = {"round": 2, "rounds": 9, "began": 0.0, "exchange": "train", "silos": doing}
    folder = runs / "fedavg"
    about = json.loads((folder / "run.json").read_text())
    (folder / NOW).write_text(json.dumps(state))
    (folder / "run.json").write_text(json.dumps({**about, "status": "running"}))
    try:
        with serving(runs) as visit, FileLock(folder / LOCK):
            page = visit("/run/fedavg")[1]
            assert "training" in row(page, "a")
            assert "waiting" in row(page, "b")
            assert "0.250" in row(page, "b")
            assert "failed timeout: no answer within 60 s" in row(page, "c")
            assert "excluded not finite: &lt;b&gt;loss" in row(page, "u ")
            assert "Look at: c, u." in page
            assert "round 2: train" in page
        with serving(runs) as visit:  # the lock is free: nobody works there any more
            page = visit("/run/fedavg")[1]
            assert "stopped" in row(page, "a")
            assert "failed timeout" in row(page, "c")
    finally:
        (folder / NOW).unlink()
        (folder / "run.json").write_text(json.dumps(about))


def test_two_runs_are_shown_side_by_side_and_what_else_differs_is_said(runs: Path, tmp_path: Path) -> None:
    with serving(runs) as visit:
        page = visit("/pair?run=faa&run=fedavg")[1]
        assert "against fedavg" in page
        assert "differ in more" not in page
        status, content, _ = visit("/pair?run=faa")
        assert (status, content) == (400, "tick two runs to compare them; 1 were ticked")


def test_a_comparison_fills(people: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its second run is under way the first has a result and the third has not begun."""
    monkeypatch.setattr("fairsilo.watch.places.FRESH", 0.0)
    seen: dict[str, str] = {}
    with serving(tmp_path) as visit:

        def look(event: Event) -> None:
            if event.kind == "round" and event.where == "" and len(started) == 2 and not seen:
                seen["grid"] = visit("/comparison/all")[1]
                seen["list"] = visit("/")[1]
            if event.kind == "method":
                started.append(event.text)

        started: list[str] = []
        methods = ["fedavg", "fedprox", "faa"]
        fairsilo.compare(methods, federation=people, rounds=2, out=tmp_path / "all", listener=look, **SMALL)
        after = visit("/comparison/all")[1]
    assert "%" in row(seen["grid"], "fedavg")
    assert "1 of 2" in row(seen["grid"], "fedprox")
    assert "running" in row(seen["grid"], "fedprox")
    assert "not begun" in row(seen["grid"], "faa")
    assert "1 of 3 runs are finished" in seen["grid"]
    assert row(seen["list"], "all") == "all 1 3"
    assert "3 of 3 runs are finished" in after
    assert len(json.loads((tmp_path / "all" / PLAN).read_text())["cells"]) == 3


def test_names_with_odd_characters_are_found_and_shown(people: Federation, tmp_path: Path) -> None:
    name = "a &<b> ü #1?"
    fairsilo.run(federation=people, method="fedavg", rounds=1, out=tmp_path / name, **SMALL)
    fairsilo.run(federation=people, method="fedavg", rounds=1, out=tmp_path / "other", **SMALL)
    with serving(tmp_path) as visit:
        page = visit("/")[1]
        assert "<b>" not in page
        assert f'href="/run/{quote(name)}"' in page
        assert visit(f"/run/{quote(name)}")[0] == 200


def test_a_run_that_is_deleted_or_damaged_does_not_take_the_others_along(runs: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("method: fedavg\n")
        (tmp_path / name / "run.json").write_text("{" if name == "a" else '{"status": "running", "method": "fedavg"}')
    with serving(tmp_path) as visit:
        assert "interrupted" in row(visit("/")[1], "b")
        assert visit("/run/a")[0] == 400
        assert visit("/run/b")[0] == 200
        for path in sorted((tmp_path / "b").iterdir()):
            path.unlink()
        assert visit("/run/b")[0] in (400, 404)


# ------------------------------------------------------------------------------------------------ what a run writes
def test_a_run_says_where_it_is_and_stops_saying_so_at_its_end(people: Federation, tmp_path: Path) -> None:
    states = []

    def look(event: Event) -> None:
        if event.kind == "asked":
            states.append(json.loads((tmp_path / "run" / NOW).read_text()))

    fairsilo.run(federation=people, method="fedavg", rounds=2, out=tmp_path / "run", listener=look, **SMALL)
    first = states[0]
    assert (first["round"], first["rounds"], first["exchange"]) == (1, 2, "train")
    assert {silo: one["state"] for silo, one in first["silos"].items()} == {
        silo.name: "working" for silo in people.silos
    }
    assert [one["exchange"] for one in states] == ["train", "evaluate"] * 2
    evaluated = states[1]["silos"]
    assert set(evaluated) == {silo.name for silo in (*people.silos, *people.unseen)}
    assert all(isinstance(evaluated[silo.name]["loss"], float) for silo in people.silos)
    assert not (tmp_path / "run" / NOW).exists()


def test_a_failure_is_seen_until_the_next_round() -> None:
    told: list[Any] = []
    now = Now(lambda state: told.append(json.loads(json.dumps(state))), clock=lambda: 0.0)
    now(Event("asked", 1, 3, text="train", silos=("a", "b")))
    now(Event("failed", 1, 3, "a", text="crashed: ValueError"))
    now(Event("asked", 1, 3, text="evaluate", silos=("a", "b")))
    now(Event("reply", 1, 3, "a", text="evaluate"))
    assert told[1]["silos"]["a"] == {"state": "failed", "exchange": "train", "why": "crashed: ValueError"}
    assert told[-1]["silos"]["a"] == {"state": "answered", "exchange": "evaluate", "why": "crashed: ValueError"}
    now(Event("asked", 2, 3, text="train", silos=("a", "b")))
    assert "why" not in told[-1]["silos"]["a"]
    now(Event("end", 3, 3))
    assert told[-1] is None


def test_answers_that_follow_closely_are_not_all_written() -> None:
    """Writing takes a second here, so that it may happen once in fifty."""
    moment, told = [0.0], []

    def write(state: object) -> None:
        told.append(state)
        moment[0] += 1.0

    now = Now(write, clock=lambda: moment[0])
    now(Event("asked", 1, 3, text="train", silos=("a",)))
    for _ in range(200):
        moment[0] += 1.0
        now(Event("reply", 1, 3, "a", text="train"))
    assert len(told) == 1 + 200 // (1 / SHARE)


def test_a_disk_that_is_full_does_not_stop_a_run_here(tmp_path: Path) -> None:
    from fairsilo.runs.folder import RunFolder

    RunFolder(tmp_path / "is not there").write_now({"round": 1})
    RunFolder(tmp_path / "is not there").write_now(None)


def test_looking_whether_a_folder_is_in_use_keeps_nobody_from_using_it(tmp_path: Path) -> None:
    looking = threading.Event()

    def look() -> None:
        while not looking.is_set():
            in_use(tmp_path)

    (tmp_path / LOCK).touch()
    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            with locked(tmp_path):
                pass
    finally:
        looking.set()
        for thread in threads:
            thread.join()


def test_places_are_found_anew(tmp_path: Path, runs: Path) -> None:
    places = Places(tmp_path)
    assert places.runs == {}
    (tmp_path / "late").mkdir()
    for name in ("run.json", "config.yaml"):
        (tmp_path / "late" / name).write_text((runs / "faa" / name).read_text())
    places._looked = -1.0
    assert list(places.runs) == ["late"]


# ------------------------------------------------------------------------------------------------------ the time left
def test_the_time_left_is_the_mean_of_steady_rounds() -> None:
    assert seconds_left([], 5) is None
    assert seconds_left([4.0], 5) == 16.0
    assert seconds_left([100.0, 4.0, 6.0], 5) == 10.0
    assert seconds_left([1.0] * 5, 5) == 0.0
    assert seconds_left([1.0, 3.0], 3, spent=2.0) == 1.0
    assert seconds_left([1.0, 3.0], 3, spent=9.0) == 0.0


@pytest.mark.parametrize(("every", "done"), [(1, 3), (5, 11), (5, 17), (10, 31)])
def test_the_time_left_is_within_a_fifth_where_rounds_that_evaluate_take_longer(every: int, done: int) -> None:
    took = [20.0] + [1.0 + (4.0 if number % every == 0 else 0.0) for number in range(2, 101)]
    found = seconds_left(took[:done], 100, every)
    assert found == pytest.approx(sum(took[done:]), rel=0.2)
