"""`fairsilo watch`: what its pages say of run folders, who may see them, and what a run writes for them."""

from __future__ import annotations

import html
import http.client
import json
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from filelock import FileLock

import fairsilo
import tiny
from fairsilo import Event, Federation, cli
from fairsilo.analysis.metrics import headline
from fairsilo.analysis.remaining import seconds_left
from fairsilo.engine.now import SHARE, Now
from fairsilo.errors import FairsiloError
from fairsilo.report.page import read_run
from fairsilo.report.texts import duration, plain, size
from fairsilo.runs.folder import NOW, PLAN, RunFolder
from fairsilo.runs.lock import LOCK, in_use, locked
from fairsilo.watch import places as places_module
from fairsilo.watch.opening import opened
from fairsilo.watch.places import Memory, Places
from fairsilo.watch.server import LOOPBACK, Watch, _local
from fairsilo.watch.states import EXCLUDED
from test_report_page import own_and_global

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


def doctored(folder: Path, name: str, **changes: Any) -> None:
    """A run folder whose run.json or config.yaml says something else."""
    path = folder / name
    content = yaml.safe_load(path.read_text())
    for key, value in changes.items():
        content[key] = {**content[key], **value} if isinstance(value, dict) else value
    path.write_text(yaml.safe_dump(content) if path.suffix == ".yaml" else json.dumps(content))


def row(page: str, name: str) -> str:
    """The words of the table row that begins with a name."""
    rows = re.findall(r"<tr><th scope=\"row(?:group)?\">.*?</tr>", page.replace("<wbr>", ""), re.S)
    found = next(one for one in rows if f">{name}<" in one)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", found)).strip()


def part(page: str, name: str, heading: str) -> str:
    """What a section says below its heading."""
    found = re.search(rf'<section id="{name}">\n<h2>{heading}</h2>(.*?)</section>', page, re.S)
    assert found, (name, heading)
    return found.group(1)


def last_of(section: str, title: str) -> dict[str, str]:
    """Silo -> what a chart says of it when its last round is pointed at."""
    found = re.search(rf'<svg[^>]*aria-label="{re.escape(title)}\..*?</svg>', section, re.S)
    assert found, title
    lines = html.unescape(re.findall(r'<rect class="column".*?<title>(.*?)</title>', found.group(), re.S)[-1])
    return dict(line.split(": ") for line in lines.splitlines()[1:])


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
        assert {"HttpOnly", "SameSite=Lax"} <= {piece.strip() for piece in cookie.split(";")}
        assert visit("/", Cookie=cookie.partition(";")[0])[0] == 200
        assert visit("/?token=wrong", Cookie="")[0] == 403


def test_a_name_of_another_site_that_leads_here_is_refused(runs: Path) -> None:
    with serving(runs) as visit:
        assert visit("/", Host=f"evil.example:{visit.server.server_port}")[0] == 403
        assert visit("/", Host="localhost.evil.example")[0] == 403
        for name in (f"localhost:{visit.server.server_port}", "127.0.0.1:9999", "localhost"):  # of a tunnel, perhaps
            assert visit("/", Host=name)[0] == 200


def test_odd_cookies_of_other_programs_do_not_lock_out(runs: Path) -> None:
    with serving(runs) as visit:
        assert visit("/", Cookie=f'odd="[x]{{; a b=c, d; {visit.cookie}; other=1')[0] == 200


def test_it_listens_on_this_machine_alone_and_says_when_a_port_is_taken(runs: Path) -> None:
    with Watch(runs, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        with pytest.raises(FairsiloError, match=f"port {server.server_port} cannot be used"):
            Watch(runs, server.server_port)


def test_the_command_prints_the_tunnel_with_the_port_in_use_and_ends_well(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(server: Watch) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Watch, "serve_forever", interrupted)
    monkeypatch.setattr("sys.argv", ["fairsilo", "watch", str(runs), "--port", "0"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    said = "".join(capsys.readouterr())
    (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", said)
    assert f"ssh -L {port}:127.0.0.1:{port} MACHINE" in said


def test_a_browser_is_given_a_file_and_not_the_token(
    runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a browser is started with stands in the list of processes; the file can be read by this user alone."""
    given: list[str] = []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", given.append)
    with serving(runs) as visit:
        address = visit.server.address
        with opened(visit.server) as path:
            assert given == [path.as_uri()]
            assert visit.server.token not in given[0]
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            page = path.read_text()
            assert page.count(address) == 2
            assert set(re.findall(r"http://[^/\"]*", page)) == {address.partition("/?")[0]}  # nothing from elsewhere
            assert "<script" not in page
            assert visit("/?token=wrong", Cookie="")[0] == 403
            assert path.exists()
            assert visit(address[address.index("/?") :], Cookie="")[0] == 303
            assert not path.exists()  # of no use any more
            assert visit(address[address.index("/?") :], Cookie="")[0] == 303
        with opened(visit.server) as path:
            assert path.exists()
        assert list(tmp_path.iterdir()) == []


def test_the_command_opens_the_page_and_leaves_no_file(
    runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[str] = []

    def interrupted(server: Watch) -> None:
        assert len(list(tmp_path.iterdir())) == len(given)
        raise KeyboardInterrupt

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", given.append)
    monkeypatch.setattr(Watch, "serve_forever", interrupted)
    for more in ([], ["--open"]):
        monkeypatch.setattr("sys.argv", ["fairsilo", "watch", str(runs), "--port", "0", *more])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        assert [one.partition(":")[0] for one in given] == ["file"] * len(more)
        assert list(tmp_path.iterdir()) == []


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
            assert re.findall(r'(?:src|href)="(?!/|data:text/csv)[^"]*"', page) == []
            assert "default-src 'none'" in page
            assert "http" not in re.sub(r'http-equiv|xmlns="[^"]*"', "", page)
        assert "http" not in visit("/watch.js")[1]


def test_a_report_of_anybodys_can_do_nothing_at_this_address(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "faa", tmp_path / "run")
    (tmp_path / "run" / "report.html").write_bytes(b"<script>fetch('/')</script>\xff")
    with serving(tmp_path) as visit:
        status, _, headers = visit("/files/run/report.html")
        assert status == 200
        assert headers["Content-Security-Policy"].startswith("sandbox allow-downloads; default-src 'none'; style-src")
        policy = visit("/run/run")[2]["Content-Security-Policy"]
        assert "script-src 'self'" in policy
        assert policy.endswith("base-uri 'none'; form-action 'self'")
        (tmp_path / "run" / "report.html").unlink()
        (tmp_path / "run" / "report.html").symlink_to(runs / "faa" / "report.html")
        assert visit("/files/run/report.html")[0] == 404


def test_a_tab_that_goes_elsewhere_is_nothing_to_tell(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Watch(runs, 0) as server:
        for problem, told in ((BrokenPipeError(), False), (ConnectionResetError(), False), (ValueError("x"), True)):
            try:
                raise problem
            except Exception:  # noqa: BLE001 - as http.server does
                server.handle_error(None, ("127.0.0.1", 1))
            assert ("Traceback" in capsys.readouterr().err) == told


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


def numbered(folder: Path, outside: float | None, own: float, spread: float, guessed: bool = False) -> None:
    """A run folder with these answers; the spread is around the second."""
    summary = RunFolder(folder).read_json("summary.json")
    even = {**summary["fairness"]["global"], "std_silos": spread, "mean": own, "at_chance": guessed}
    summary["generalisation"] |= {"mean": outside, "at_chance": guessed}
    summary["personalisation"] |= {"mean": own, "at_chance": guessed}
    (folder / "summary.json").write_text(
        json.dumps({**summary, "about": "global", "fairness": {"global": even, "personal": even}})
    )


def test_a_spread_is_listed_with_its_mean_and_guessing_is_marked(runs: Path, tmp_path: Path) -> None:
    """A model that always names one class is even, and not fair."""
    for name in ("good", "guesses"):
        shutil.copytree(runs / "faa", tmp_path / name)
    numbered(tmp_path / "good", 0.8, 0.836, 0.046)
    with serving(tmp_path) as visit:
        assert "chance" not in row(visit("/")[1], "good")
        assert row(visit("/")[1], "good").split(" 2 of 2 ")[1].startswith("80.0 % 83.6 % 4.6 (83.6) ")
        assert "≈ chance: " not in visit("/")[1]
        numbered(tmp_path / "guesses", 0.1, 0.1, 0.0, guessed=True)
        page = visit("/")[1]
    assert "10.0 % ≈ chance 10.0 % ≈ chance 0.0 (10.0) ≈ chance" in row(page, "guesses")
    assert "≈ chance: no better than always naming the most frequent class" in page
    assert "chance" not in row(page, "good")


@pytest.fixture
def compared(runs: Path, tmp_path: Path) -> Path:
    """Two methods on two held-out domains, one of them with two seeds, of which a run has not begun; another run."""
    cells = []
    values = {("a", 0): 0.9, ("a", 1): 0.7, ("b", 0): 0.4}
    for method in ("faa", "fedavg"):
        for (domain, seed), value in values.items():
            folder = f"{method}/{domain}-seed{seed}"
            cells.append({"method": method, "held_out": domain, "seed": seed, "folder": folder, "rounds": 2})
            if method == "fedavg" and seed == 1:
                continue
            shutil.copytree(runs / method, tmp_path / "all" / folder)
            doctored(tmp_path / "all" / folder, "config.yaml", seed=seed, data={"held_out": domain})
            guessed = method == "fedavg" and domain == "b"
            numbered(tmp_path / "all" / folder, value, value + 0.05, value / 10, guessed=guessed)
    (tmp_path / "all" / PLAN).write_text(json.dumps({"cells": cells}))
    shutil.copytree(runs / "faa", tmp_path / "alone-one")
    return tmp_path


def test_a_grid_has_all_answers_and_their_means(compared: Path) -> None:
    """Each held-out domain counts once: ((0.9 + 0.7) / 2 + 0.4) / 2."""
    with serving(compared) as visit:
        page = visit("/comparison/all")[1]
    mean = "60.0 % 65.0 % 6.0 (65.0)"
    cells = "90.0 % 95.0 % 9.0 (95.0) 70.0 % 75.0 % 7.0 (75.0) 40.0 % 45.0 % 4.0 (45.0)"
    assert row(page, "faa") == f"faa {mean} {cells}"
    guess = "≈ chance in 1 of 2 runs"
    assert row(page, "fedavg") == (
        f"fedavg 65.0 % {guess} 70.0 % {guess} 6.5 (70.0) {guess} 2 of 3 runs 90.0 % 95.0 % 9.0 (95.0) not begun "
        "40.0 % ≈ chance 45.0 % ≈ chance 4.0 (45.0) ≈ chance"
    )
    assert re.findall(r'scope="col">([^<]*)<', part(page, "grid", "Runs"))[:3] == [
        "method",
        "mean",
        "a held out, seed 0",
    ]
    assert "≈ chance: no better than" in page


def test_the_runs_of_a_comparison_are_folded(compared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(compared) as visit:
        page = part(visit("/")[1], "runs", "Runs")
        assert row(page, "all") == "all 5 finished 5 runs of 2 methods " + row(page, "all").split("methods ")[1]
        assert "faa, b held out, seed 0" in row(page, "faa/b-seed0")
        assert 'href="/run/all/faa/b-seed0">faa/<wbr>b-<wbr>seed0</a>' in page
        assert 'href="/run/alone-one">alone-<wbr>one</a>' in page
        folded, alone = re.findall(r'<tbody class="folded">.*?</tbody>', page, re.S), row(page, "alone-one")
        assert len(folded) == 1
        assert folded[0].count('type="checkbox"') == 5
        assert alone.startswith("alone-one finished faa, ")
        assert '<details open data-name="all">' in page  # a handful
        monkeypatch.setattr("fairsilo.watch.all_runs.HANDFUL", 4)
        assert '<details data-name="all">' in visit("/")[1]
    with serving(compared / "all") as visit:
        page = part(visit("/")[1], "runs", "Runs")
        assert row(page, "all").startswith("all 5 finished")
        assert "faa, b held out" in row(page, "faa/b-seed0")
        (compared / "all" / "faa" / "b-seed0" / "summary.json").write_text("{", encoding="utf-8")
        assert "<details open data-name" in visit("/")[1]  # one of them needs a look


def test_a_comparison_keeps_its_place_in_the_list(compared: Path) -> None:
    """By the first of its runs, whatever begins later."""
    for number, folder in enumerate(sorted((compared / "all").glob("*/*"))):
        os.utime(folder / "config.yaml", (1000.0 + 100 * number, 1000.0 + 100 * number))
    with serving(compared) as visit:
        for moment, order in ((1050.0, ["alone-one", "all"]), (950.0, ["all", "alone-one"])):
            os.utime(compared / "alone-one" / "config.yaml", (moment, moment))
            page = part(visit("/")[1], "runs", "Runs").replace("<wbr>", "")
            assert re.findall(r">(all|alone-one)<", page) == order


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


def test_the_page_of_a_run_has_its_answers_weights_gaps_and_costs(people: Federation, tmp_path: Path) -> None:
    """The numbers are those of its folder; FAA from the first round on, so that its weights move and it probes."""
    folder = tmp_path / "run"
    fairsilo.run(federation=people, method="faa(warmup=0)", rounds=2, out=folder, **SMALL)
    about, summary = (RunFolder(folder).read_json(name) for name in ("run.json", "summary.json"))
    rounds = RunFolder(folder).rows("rounds")
    with serving(tmp_path) as visit:
        page = visit("/run/run")[1]
    answers = page[page.index('<div id="answers">') :].partition('<section id="curves">')[0]
    even = summary["fairness"][summary["about"]]["std_silos"]
    expected = [summary["generalisation"]["mean"], summary["personalisation"]["mean"], even]
    assert re.findall(r'class="card"><h2>(\w+)<', answers) == ["Generalisation", "Personalisation", "Fairness"]
    assert re.findall(r'<p class="big">([\d.]+)', answers) == [f"{100 * one:.1f}" for one in expected]

    weights = rounds[-1]["weights"]
    assert len(set(weights.values())) == len(people.silos)
    shown = last_of(part(page, "weights", "Aggregation weights"), f"Weights of {about['method']}")
    assert shown == {silo: plain(weight) for silo, weight in weights.items()}

    loss = {
        (row["model"], row["silo"]): row["loss"]
        for row in RunFolder(folder).rows("metrics")
        if row["round"] == 2 and row["split"] == "validation"
    }
    gaps = {one.name: plain(loss["global", one.name] - loss["personal", one.name]) for one in people.silos}
    assert last_of(part(page, "gaps", "Generalisation gaps"), f"Gaps of {about['method']}") == gaps

    costs = part(page, "costs", "Time and traffic")
    made = [one for record in rounds for one in record["exchanges"]]
    kinds = list(dict.fromkeys(one["kind"] for one in made))
    assert set(kinds) >= {"train", "probe", "evaluate"}
    assert {"time a round", "bytes a round"} <= set(re.findall(r'scope="col">(.*?)</th>', costs))
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", one) for one in re.findall(r"<tr><th scope=\"row\">.*?</tr>", costs)]
    assert [one[0] for one in rows] == kinds
    for kind, *numbers in rows:
        own = [one for one in made if one["kind"] == kind]
        seconds, down, up = (sum(one[key] for one in own) for key in ("seconds", "bytes_down", "bytes_up"))
        assert numbers[:3] == [str(len(own)), duration(seconds), duration(seconds / 2)]
        assert numbers[3:6] == [size(down), size(up), size((down + up) / 2)]


KINDS = {  # of failures: those of a silo that answered, and was not heard, are no failures of its own
    "screened": "excluded",
    "malformed": "excluded",
    "not finite": "excluded",
    "diverged": "failed",
    "error": "failed",
    "timeout": "failed",
    "lost": "failed",
}


@pytest.mark.parametrize(("kind", "word"), KINDS.items())
def test_what_each_silo_does_is_shown_while_a_run_goes_on(runs: Path, kind: str, word: str) -> None:
    """As `Now` writes it: one at work, one done, one failed, one excluded."""
    assert {one for one, said in KINDS.items() if said == "excluded"} == set(EXCLUDED)
    doing = {
        "a": {"state": "working", "exchange": "train"},
        "b": {"state": "answered", "exchange": "train", "loss": 0.25},
        "c": {"state": "failed", "exchange": "train", "why": "timeout: no answer within 60 s"},
        "u": {"state": "answered", "exchange": "evaluate", "why": f"{kind}: <b>loss</b> is nan"},
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
            assert f"{word} {kind}: &lt;b&gt;loss" in row(page, "u ")
            assert "Look at: c, u." in page
            assert "round 2: train" in page
        with serving(runs) as visit:  # the lock is free: nobody works there any more
            page = visit("/run/fedavg")[1]
            assert "stopped" in row(page, "a")
            assert "failed timeout" in row(page, "c")
            (folder / NOW).write_text(json.dumps({**state, "round": 3}))
            page = visit("/run/fedavg")[1]
            # rounds failed in: the one that the run stopped in is not in rounds.jsonl
            assert [row(page, name)[-1] for name in ("a", "b", "c", "u ")] == ["0", "0", "1", "1"]
    finally:
        (folder / NOW).unlink()
        (folder / "run.json").write_text(json.dumps(about))


@pytest.mark.parametrize(("kind", "word"), KINDS.items())
def test_who_was_left_out_of_the_last_round_is_said_between_rounds(
    runs: Path, tmp_path: Path, kind: str, word: str
) -> None:
    """As rounds.jsonl has it; nobody has been asked anything in the next round yet."""
    folder = shutil.copytree(runs / "fedavg", tmp_path / "run")
    *before, last = (json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines())
    last["failures"] = [{"silo": "b", "exchange": "train", "kind": kind, "detail": "as it is"}]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (*before, last)))
    with serving(tmp_path) as visit, FileLock(folder / LOCK):
        page = visit("/run/run")[1]
    assert f"{word} in round 2 {kind}: as it is" in row(page, "b")
    assert row(page, "b").endswith(" 1")  # rounds it failed in
    assert "Look at: b." in page


def banner(page: str) -> str:
    """What the page of two runs says of their settings."""
    found = re.findall(r'<p class="banner">(.*?)</p>', page)
    return html.unescape(found[0]) if found else ""


def test_two_runs_are_shown_side_by_side_and_what_else_differs_is_said(runs: Path, tmp_path: Path) -> None:
    """With both values; neither the method nor where a run is computed is worth a word."""
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    shutil.copytree(runs / "faa", tmp_path / "again")
    with serving(tmp_path) as visit:
        doctored(tmp_path / "fedavg", "config.yaml", engine={"threads": 3}, evaluate={"examples": False})
        page = visit("/pair?run=faa&run=fedavg")[1]
        assert "against fedavg" in page
        assert banner(page) == ""
        changes: dict[str, Any] = {"train": {"lr": 3.5, "epochs": 9}, "data": {"held_out": "x"}, "seed": 7}
        doctored(tmp_path / "fedavg", "config.yaml", **changes, task={"gamma": 1.5}, evaluate={"ddof": 1, "every": 9})
        said = banner(visit("/pair?run=faa&run=fedavg")[1])
        assert said.startswith("These runs differ in more than the method: ")
        was = yaml.safe_load((tmp_path / "faa" / "config.yaml").read_text())
        assert set(said.partition("method: ")[2].rstrip(".").split("; ")) == {
            f"train.lr: {was['train']['lr']} / 3.5",
            "train.epochs: 1 / 9",
            f"data.held_out: {was['data']['held_out']} / x",
            f"seed: {was['seed']} / 7",
            f"task.gamma: {was['task']['gamma']:g} / 1.5",
            "evaluate.ddof: 0 / 1",
            "evaluate.every: 1 / 9",
        }
        doctored(tmp_path / "fedavg", "run.json", data="others")
        doctored(tmp_path / "fedavg", "config.yaml", data=was["data"])
        assert f"than the method: data: {tiny.federation().name} / others; " in banner(
            visit("/pair?run=faa&run=fedavg")[1]
        )
        doctored(tmp_path / "again", "config.yaml", train={"rounds": 12})
        page = visit("/pair?run=faa&run=again")[1]
        assert banner(page) == "These runs differ in train.rounds: 2 / 12."
        assert "faa (faa) <span" in page


def answers_of(page: str) -> dict[str, list[str]]:
    """Answer -> what the page of two runs has of each of them, and of their difference where there is one."""
    rows = re.findall(r'<tr><th scope="row">(\w+)<small>.*?</th>(.*?)</tr>', part(page, "answers", "The three answers"))
    lines = re.compile(r'<small class="difference[^"]*">(.*?)</small>')
    found = {}
    for name, drawn in rows:
        both = [read(lines.sub("", one)) for one in re.findall(r"<td[^>]*>(.*?)</td>", drawn)]
        found[name] = [*both, *([" ".join(lines.findall(drawn))] if lines.search(drawn) else [])]
    return found


def read(drawn: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", drawn))).strip()


def facts_of(page: str) -> dict[str, str]:
    return {name: read(value) for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page)}


def test_the_answers_of_two_runs_stand_beside_each_other_with_their_difference(runs: Path, tmp_path: Path) -> None:
    """Here the second is better by a tenth on the held-out domain, and as good at home."""
    for name in ("one", "two"):
        shutil.copytree(runs / "faa", tmp_path / name)
    rows = [json.loads(line) for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()]
    for one in rows:
        one["metric"] += 0.1 if one["unseen"] else 0.0
    (tmp_path / "two" / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    with serving(tmp_path) as visit:
        page, turned = (visit(f"/pair?run={one}&run={two}")[1] for one, two in (("one", "two"), ("two", "one")))
    for shown, sign in ((page, -1), (turned, 1)):
        outside, home = (answers_of(shown)[key] for key in ("Generalisation", "Personalisation"))
        first, second = (float(one.partition(" %")[0]) for one in outside[:2])
        assert first - second == pytest.approx(10 * sign, abs=0.11)
        assert outside[2] == f"{sign * 10:+.1f} points".replace("-", "−")
        assert f'class="difference {"good" if sign > 0 else "bad"}">{outside[2]}<' in shown
        assert home[2] == "no difference"
        own = headline(RunFolder(runs / "faa").read_json("summary.json"))["personalisation"]
        assert own is not None
        assert [one.partition("\u00a0")[0].partition(" ")[0] for one in home[:2]] == [f"{100 * own:.1f}"] * 2
        assert "difference is not shown" not in shown


@pytest.mark.parametrize("apart", ["data.share", "data", "test samples", "held-out domain", "complete rounds"])
def test_no_difference_is_shown_of_runs_that_were_not_tested_alike(runs: Path, tmp_path: Path, apart: str) -> None:
    """Both of their results are, and what they are of."""
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "fedavg"
    (unseen,) = json.loads((folder / "run.json").read_text())["roster"]["unseen"]
    if apart == "data.share":
        doctored(folder, "config.yaml", data={"share": "50"})
    elif apart == "data":
        doctored(folder, "run.json", data="others")
    elif apart == "complete rounds":
        (folder / "rounds.jsonl").write_text((folder / "rounds.jsonl").read_text().splitlines()[0] + "\n")
    else:
        other = {"test": unseen["test"] + 1} if apart == "test samples" else {"name": "x", "domain": "x"}
        doctored(folder, "run.json", roster={"unseen": [{**unseen, **other}]})
    with serving(tmp_path) as visit:
        page = visit("/pair?run=faa&run=fedavg")[1]
    shown = answers_of(page)
    assert [len(found) for found in shown.values()] == [2, 2, 2]
    assert all("%" in found for found in (*shown["Generalisation"], *shown["Personalisation"]))
    said = read(part(page, "answers", "The three answers"))
    wanted = {
        "held-out domain": "differ in held-out domain",
        "complete rounds": "are not equally far, round 2 and round 1 of fedavg",
    }.get(apart, "differ in data")
    assert said.count(f"The two {wanted}: their difference is not shown.") == 1
    facts, own = facts_of(page), facts_of(visit_of(runs))
    told = {
        "held-out domain": ("Held-out domain", f"{unseen['domain']} / x"),
        "complete rounds": ("Rounds", "2 / 1 of 2"),
    }
    name, value = told.get(apart, ("Rounds", "2"))
    assert facts == {**own, name: value}
    assert ("that of faa stands first" in page) == (apart in told)


def visit_of(runs: Path) -> str:
    with serving(runs) as visit:
        return visit("/pair?run=faa&run=fedavg")[1]


def test_results_of_another_metric_are_neither_subtracted_nor_drawn_on_the_same_axis(
    runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    doctored(tmp_path / "fedavg", "run.json", metric={"name": "mae", "higher_is_better": False, "share": False})
    with serving(tmp_path) as visit:
        page = visit("/pair?run=faa&run=fedavg")[1]
    assert "differ in metric: their difference is not shown" in page
    first, second = answers_of(page)["Personalisation"][:2]
    assert "%" in first
    assert "%" not in second
    assert 'id="curves"' not in page
    assert 'id="costs"' in page


def test_fairness_of_own_models_beside_a_global_one_is_as_compare_has_it(tmp_path: Path) -> None:
    """Whichever of the two comes first: each by the models that its results are about."""
    own_and_global(tmp_path)
    found = [headline(read_run(tmp_path / name).summary)["fairness"] or 0 for name in ("ditto", "fedavg")]
    by = 100 * (found[0] - found[1])
    assert by > 1  # of fedavg's own models it would be the other way round
    with serving(tmp_path) as visit:
        for one, two, sign in (("ditto", "fedavg", 1), ("fedavg", "ditto", -1)):
            *both, difference = answers_of(visit(f"/pair?run={one}&run={two}")[1])["Fairness"]
            assert difference == f"{sign * by:+.1f} points {'less' if sign > 0 else 'more'} even".replace("-", "−")
            assert [words.rpartition("% ")[2] for words in both] == ["own models", "global model"][::sign]


@pytest.mark.parametrize(("query", "count"), [("", "none"), ("?run=faa", "1"), ("?run=faa&run=faa", "1")])
def test_ticking_not_two_runs_leads_back(runs: Path, query: str, count: str) -> None:
    with serving(runs) as visit:
        page = visit(f"/pair{query}")[1]
    assert f"tick two runs to compare them; {count} ticked" in page
    assert '<a href="/">All runs</a>' in page


def test_a_baseline_is_shown_as_under_way_only_while_it_is(people: Federation, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fairsilo.run(federation=people, method="faa", baseline="fedavg", rounds=2, out=folder, **SMALL)
    rows = (folder / "baseline" / "rounds.jsonl").read_text().splitlines()
    with serving(tmp_path) as visit:
        assert "2 of 2 rounds" in visit("/run/run")[1]
        assert "baseline, " not in visit("/run/run")[1]
        (folder / "baseline" / "rounds.jsonl").write_text(rows[0] + "\n")
        doctored(folder / "baseline", "run.json", status="running")
        with FileLock(folder / LOCK):
            assert "baseline, 1 of 2 rounds, about" in visit("/run/run")[1]
        shutil.rmtree(folder / "baseline")
        (folder / "rounds.jsonl").write_text((folder / "rounds.jsonl").read_text().splitlines()[0] + "\n")
        doctored(folder, "run.json", status="running")
        with FileLock(folder / LOCK):
            page = visit("/run/run")[1]
    words = page[page.index(">1 of 2 rounds, about ") :].partition("<")[0]
    assert words.endswith(" left for this method; fedavg follows")


def test_who_sits_out_is_said_of_the_round_under_way(runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(runs / "fedavg", tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    rows[-1]["participants"] = ["a"]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    state = {"round": 3, "exchange": "train", "silos": {"b": {"state": "working", "exchange": "train"}}}
    with serving(tmp_path) as visit, FileLock(folder / LOCK):
        assert "sits out" in row(visit("/run/run")[1], "b")
        (folder / NOW).write_text(json.dumps(state))
        page = visit("/run/run")[1]
    assert "training" in row(page, "b")
    assert "sits out" in row(page, "a")


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
    assert "from top to bottom: the global model on the held-out domain; silos&#x27; own models at home; " in after
    assert len(json.loads((tmp_path / "all" / PLAN).read_text())["cells"]) == 3
    (damaged,), (summary,) = ((tmp_path / "all").glob(f"{one}/*/summary.json") for one in ("faa", "fedavg"))
    damaged.write_bytes(b"\xff")
    with serving(tmp_path / "all") as visit:
        grid = visit("/comparison/")[1]  # as a browser asks for /comparison/.
        assert row(grid, "faa") == "faa – damaged"
    doctored(summary.parent, summary.name, generalisation={"mean": None})
    with serving(tmp_path) as visit:
        grid = visit("/comparison/all")[1]
        found = RunFolder(summary.parent).read_json(summary.name)
        own, even = found["personalisation"]["mean"], found["fairness"][found["about"]]
        spread = f"{100 * even['std_silos']:.1f} ({100 * even['mean']:.1f})"
        assert row(grid, "fedavg") == f"fedavg – {100 * own:.1f} % {spread}"
        assert f'">{100 * own:.1f}\u00a0%</a>' in grid  # what there is leads to the run


def test_names_with_odd_characters_are_found_and_shown(people: Federation, tmp_path: Path) -> None:
    name = "a &<b> ü #1?"
    fairsilo.run(federation=people, method="fedavg", rounds=1, out=tmp_path / name, **SMALL)
    fairsilo.run(federation=people, method="fedavg", rounds=1, out=tmp_path / "other", **SMALL)
    with serving(tmp_path) as visit:
        page = visit("/")[1]
        assert "<b>" not in page
        assert f'href="/run/{quote(name)}"' in page
        assert visit(f"/run/{quote(name)}")[0] == 200


def test_a_name_that_is_no_text_is_found_and_ticked(runs: Path, tmp_path: Path) -> None:
    for name in (b"a\xff", b"100%41"):
        shutil.copytree(runs / "faa", tmp_path / os.fsdecode(name))
    with serving(tmp_path) as visit:
        page = visit("/")[1]
        assert 'href="/run/a%FF"' in page
        assert visit("/run/a%FF")[0] == 200
        ticks = re.findall(r'name="run" value="([^"]*)"', page)
        assert "against" in visit("/pair?" + "&".join(f"run={quote(one)}" for one in ticks))[1]


ODD = [
    ("config.yaml", b"train: 5\n"),
    ("config.yaml", b"\xff"),
    ("run.json", b"\xff"),
    ("rounds.jsonl", b"\xff"),
    ("summary.json", b'{"generalisation": 1}'),
    ("summary.json", b'{"generalisation": {"mean": "x"}, "personalisation": {"mean": 1}, "about": "global",'
     b' "fairness": {"global": {}}}'),
]  # fmt: skip


def told(page: str) -> str:
    """What the banner of a damaged run says."""
    found = re.findall(r'<p class="banner" role="status"><strong>Run damaged</strong>: (.*?)</p>', page)
    assert len(found) == 1, page[:500]
    return html.unescape(found[0])


@pytest.mark.parametrize(("file", "content"), ODD)
def test_one_odd_folder_is_said_to_be_damaged_and_the_others_are_shown(
    runs: Path, tmp_path: Path, file: str, content: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("good", "odd"):
        shutil.copytree(runs / "faa", tmp_path / name)
    (tmp_path / "odd" / file).write_bytes(content)
    with serving(tmp_path) as visit:
        status, page, _ = visit("/")
        assert status == 200
        assert "damaged" in row(page, "odd")
        assert "finished" in row(page, "good")
        assert "1 finished, 1 damaged" in page
        assert 'href="/run/odd"' in page
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("file", "content"), ODD)
def test_the_page_of_a_damaged_run_gives_the_reason_of_the_list_and_what_can_be_shown(
    runs: Path, tmp_path: Path, file: str, content: bytes
) -> None:
    folder = shutil.copytree(runs / "faa", tmp_path / "odd")
    (folder / file).write_bytes(content)
    with serving(tmp_path) as visit:
        reason = row(visit("/")[1], "odd").partition("damaged ")[2].partition(" 0 – ")[0]
        status, page, _ = visit("/run/odd")
    assert status == 200
    assert str(folder) in reason
    assert html.unescape(reason).rstrip(".") in told(page)
    without = f"What is shown here is drawn without {file}, as if nothing had been written there."
    assert (without in told(page)) == (file != "summary.json")
    assert ('<p id="progress"><span class="tag bad">damaged</span>' in page) == (file == "summary.json")
    assert last_of(part(page, "curves", "Round by round"), "Generalisation: global model, unseen domain")
    assert ("rounds.jsonl" in told(page)) == ("Time and traffic" not in page)
    assert ("The silos now" in page) == (file not in ("run.json", "rounds.jsonl"))  # it would be wrong


@pytest.mark.parametrize(
    ("file", "content", "kept"),
    [
        ("run.json", b'{"status": "finished", "roster": 5}', "Time and traffic"),
        ("metrics.jsonl", b"\xff", "Time and traffic"),
        ("metrics.jsonl", b'{"round": 1, "metric": 1, "loss": 1}\n', "Time and traffic"),
        ("rounds.jsonl", b'{"round": 1, "exchanges": [5]}\n', "Generalisation gaps"),
        ("baseline/run.json", b"\xff", "Time and traffic"),
        ("baseline/metrics.jsonl", b"\xff", "Time and traffic"),
        ("now.json", b'{"round": 3, "silos": 5}', "Time and traffic"),
    ],
)
def test_the_page_of_a_run_is_no_error_whatever_its_files_hold(
    runs: Path, tmp_path: Path, file: str, content: bytes, kept: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(runs / "faa", tmp_path / "odd")
    shutil.copytree(runs / "fedavg", folder / "baseline")
    doctored(folder, "run.json", status="running")
    (folder / file).write_bytes(content)
    with serving(tmp_path) as visit:
        status, page, _ = visit("/run/odd")
    assert status == 200
    assert str(folder) in told(page)
    assert kept in page
    assert ("against fedavg" in page) == (not file.startswith("baseline"))
    assert capfd.readouterr().err == ""


def test_of_a_run_whose_files_are_all_damaged_the_reason_is_shown(runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(runs / "faa", tmp_path / "a<b>")
    for name in ("run.json", "config.yaml", "metrics.jsonl", "rounds.jsonl"):
        (folder / name).write_bytes(b"\xff")
    with serving(tmp_path) as visit:
        status, page, _ = visit(f"/run/{quote('a<b>')}")
    assert status == 200
    assert "run.json is damaged: it is no text in UTF-8. Nothing else of it can be shown." in told(page)
    assert "<h1>a&lt;b&gt;</h1>" in page
    assert "<b>" not in page


def test_what_cannot_be_drawn_gets_a_sentence(
    runs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("run", "faa"):
        shutil.copytree(runs / "faa", tmp_path / name)
    doctored(tmp_path / "run", "run.json", roster=5)

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    with serving(tmp_path) as visit:
        status, said, _ = visit("/pair?run=run&run=faa")
        assert status == 500
        assert said.startswith(
            "this page cannot be drawn, since a file that it is about is damaged or cannot be read ("
        )
        monkeypatch.setattr("fairsilo.runs.inventory.kept", refuse)
        (tmp_path / "run" / "run.json").touch()
        assert "damaged" in row(visit("/")[1], "run")
        monkeypatch.setattr("fairsilo.watch.places.read_run", refuse)
        monkeypatch.setattr("fairsilo.watch.damaged.read_run", refuse)
        assert told(visit("/run/run")[1]).endswith(
            "cannot be read (Permission denied). Nothing else of it can be shown."
        )
    assert capfd.readouterr().err == ""


def test_a_look_reads_again_only_what_changed(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(runs / "faa", tmp_path / "run")
    counts = dict.fromkeys(("kept_or_damaged", "read_run"), 0)
    for name in counts:

        def counted(real: Any, name: str, *arguments: Any, **more: Any) -> Any:
            counts[name] += 1
            return real(*arguments, **more)

        monkeypatch.setattr(places_module, name, partial(counted, getattr(places_module, name), name))
    with serving(tmp_path) as visit:
        for number in range(3):
            (folder / NOW).write_text(json.dumps({"round": number}))
            assert visit("/run/run")[0] == 200
        assert counts == {"kept_or_damaged": 1, "read_run": 1}
        os.utime(folder / "metrics.jsonl", (1, 1))
        visit("/run/run")
        assert counts == {"kept_or_damaged": 2, "read_run": 2}


def test_what_is_remembered_is_bounded() -> None:
    memory: Memory[int] = Memory(2)
    made = [memory.get(key, (), lambda: key) for key in (1, 2, 1, 3)]  # noqa: B023 - called at once
    assert made == [1, 2, 1, 3]
    assert list(memory._known) == [1, 3]


def test_a_walk_that_takes_long_is_not_repeated_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment, walks = [100.0], []

    def walk(root: Path) -> Iterator[tuple[Path, bool]]:
        walks.append(moment[0])
        moment[0] += 2.0
        yield root, True

    monkeypatch.setattr(places_module, "folders_under", walk)
    monkeypatch.setattr(places_module.time, "monotonic", lambda: moment[0])
    places = Places(tmp_path)
    for later in (0.0, 19.0, 1.5):
        moment[0] += later
        assert list(places.runs) == ["."]
    assert walks == [100.0, 122.5]


def test_runs_that_began_last_come_first_whatever_changes(runs: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new")):
        shutil.copytree(runs / "faa", tmp_path / name)
        os.utime(tmp_path / name / "config.yaml", (1000.0 + number, 1000.0 + number))
    os.utime(tmp_path / "old" / "rounds.jsonl")
    with serving(tmp_path) as visit:
        assert re.findall(r'value="(\w+)"', visit("/")[1]) == ["new", "old"]


def test_a_run_that_is_deleted_or_damaged_does_not_take_the_others_along(runs: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("method: fedavg\n")
        (tmp_path / name / "run.json").write_text("{" if name == "a" else '{"status": "running", "method": "fedavg"}')
    with serving(tmp_path) as visit:
        assert "interrupted" in row(visit("/")[1], "b")
        assert "damaged" in row(visit("/")[1], "a")
        status, page, _ = visit("/run/a")
        assert status == 200
        assert "run.json is damaged: " in told(page)
        assert visit("/run/b")[0] == 200
        for path in sorted((tmp_path / "b").iterdir()):
            path.unlink()
        assert visit("/run/b")[0] == 404
        visit.server.places._due = 0.0
        assert visit("/run/b")[0] == 404
        assert "&gt;b&lt;" not in visit("/")[1]


def test_a_run_without_one_of_its_files_is_damaged_and_says_why(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "faa", tmp_path / "a")
    (tmp_path / "a" / "config.yaml").unlink()
    with serving(tmp_path) as visit:
        assert "damaged cannot read the configuration" in row(visit("/")[1], "a")


def test_a_run_over_sites_is_shown_as_waiting_while_its_server_lives(runs: Path, tmp_path: Path) -> None:
    """Between attempts nobody holds its own folder, and what the last attempt said of silos is old."""
    folder = shutil.copytree(runs / "faa", tmp_path / "runs" / "one")
    doctored(folder, "run.json", status="stopped")
    doing = {"a": {"state": "working", "exchange": "train"}, "c": {"state": "failed", "why": "lost: not connected"}}
    (folder / NOW).write_text(json.dumps({"round": 3, "rounds": 9, "began": 0.0, "silos": doing}))
    with serving(tmp_path) as visit:
        before = visit("/run/runs/one")
        assert "stopped" in row(visit("/")[1], "runs/one")
        with locked(folder.parent):
            assert "waiting" in row(visit("/")[1], "runs/one")
            status, page, _ = visit("/run/runs/one", **{"If-None-Match": before[2]["ETag"]})
            assert status == 200  # it looks otherwise now, though no file of the run has changed
            assert "waits for sites" in page
            assert "waiting" in row(page, "a")
            assert "failed lost" in row(page, "c")


def test_a_run_that_is_taken_up_again_no_longer_says_how_it_was_broken_off(runs: Path, tmp_path: Path) -> None:
    """Its process reads data and models first; until then the folder is that of the time before."""
    folder = shutil.copytree(runs / "faa", tmp_path / "one")
    doctored(folder, "run.json", status="stopped", message="the lights went out")
    doing = {"a": {"state": "working", "exchange": "train"}}
    (folder / NOW).write_text(json.dumps({"round": 3, "rounds": 9, "began": 0.0, "exchange": "train", "silos": doing}))
    with serving(tmp_path) as visit:
        assert "The lights went out" in visit("/run/one")[1]
        with locked(folder):
            page = visit("/run/one")[1]
            assert "lights" not in page
            assert "not finished yet" in page
            assert "round 3: train" not in page
            assert "training" not in row(page, "a")
        assert "The lights went out" in visit("/run/one")[1]


# ------------------------------------------------------------------------------------------------- before any results
ENDED = ("Nothing was evaluated yet.", "No silo's own model was", "No silo has validation data", "nothing was recorded")


@pytest.mark.parametrize(("seconds", "words"), [(36.6, "37 s"), (0.2, "1 s"), (130.0, "2 min"), (4000.0, "67 min")])
def test_the_time_left_is_as_exact_as_an_estimate_is(runs: Path, tmp_path: Path, seconds: float, words: str) -> None:
    """As a terminal says it."""
    folder = shutil.copytree(runs / "fedavg", tmp_path / "run")
    doctored(folder, "config.yaml", train={"rounds": 3})
    doctored(folder, "run.json", status="running")
    rows = [{**json.loads(line), "seconds": seconds} for line in (folder / "rounds.jsonl").read_text().splitlines()]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    with serving(tmp_path) as visit, FileLock(folder / LOCK):
        assert f"2 of 3 rounds, about {words} left<" in visit("/run/run")[1]
        (folder / "metrics.jsonl").unlink()
        assert f"at the end of round 3, in about {words}.<" in visit("/run/run")[1]


def test_before_the_first_evaluation_a_run_says_when_results_come(
    people: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairsilo.watch.places.FRESH", 0.0)
    seen: dict[int, str] = {}
    with serving(tmp_path) as visit:

        def look(event: Event) -> None:
            if event.kind == "asked" and event.text == "train":
                seen[event.round] = visit("/run/run")[1]

        settings = {**SMALL, "rounds": 5, "evaluate": {"every": 2}}
        fairsilo.run(federation=people, method="fedavg", out=tmp_path / "run", listener=look, **settings)
        first, second, third = (html.unescape(seen[number]) for number in (1, 2, 3))
        assert [facts_of(first)[name] for name in ("Silos", "Held-out domain")] == ["3", "u"]
        words = "Results come with the first evaluation, at the end of round 2"
        assert part(first, "results", "Results") == f"\n<p>{words}.</p>\n"  # nobody knows yet how long a round takes
        assert "training" in row(first, "a")
        assert re.search(f"<p>{words}, in about [0-9.]+\\sm?s.</p>", part(second, "results", "Results"))
        assert last_of(part(second, "curves", "Round by round"), "Training loss, mean over the silos")
        for page in (first, second):
            assert [one for one in ENDED if one in page] == []
        assert 'id="results"' not in third
        assert "%" in part(third, "curves", "Round by round")
        assert '<div id="answers">' in third


@pytest.mark.parametrize(("rounds", "every", "first"), [(3, 1, 1), (3, 5, 3), (20, 5, 5)])
def test_the_first_evaluation_is_the_last_round_at_the_latest(
    runs: Path, tmp_path: Path, rounds: int, every: int, first: int
) -> None:
    folder = shutil.copytree(runs / "fedavg", tmp_path / "run")
    doctored(folder, "run.json", status="running")
    doctored(folder, "config.yaml", train={"rounds": rounds}, evaluate={"every": every})
    for name in ("metrics.jsonl", "rounds.jsonl", "summary.json"):
        (folder / name).unlink()
    with serving(tmp_path) as visit:
        with FileLock(folder / LOCK):
            assert f"at the end of round {first}." in part(visit("/run/run")[1], "results", "Results")
        said = part(visit("/run/run")[1], "results", "Results")  # its process is gone
        assert f"The run ended before there were results: its first evaluation is at the end of round {first}." in said


# -------------------------------------------------------------------------------------------------- pilots and trials
@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `advise` and `tune` leave, and a comparison and a run of somebody's own."""
    pytest.importorskip("optuna", reason="needs the extra tune")
    folder, people = tmp_path_factory.mktemp("tried"), tiny.federation()
    fairsilo.run(federation=people, method="fedavg", rounds=1, out=folder / "own", **SMALL)
    fairsilo.compare(["fedavg"], federation=people, rounds=1, out=folder / "mine", **SMALL)
    fairsilo.advise(["fedprox"], federation=people, pilot_rounds=1, seeds=1, out=folder / "advice", **SMALL)
    fairsilo.tune(["fedavg", "fedprox"], federation=people, trials=2, rounds=1, out=folder / "search", **SMALL)
    return folder


def folds(page: str) -> dict[str, str]:
    """Name -> the rows that are folded under it."""
    inside = re.findall(r'<tbody class="folded">.*?</tbody>', page, re.S)
    return {found.group(1): one for one in inside if (found := re.search(r'data-name="(.*?)"', one))}


def test_pilots_and_trials_are_folded_under_one_row_with_what_came_out(tried: Path) -> None:
    with serving(tried) as visit:
        page = visit("/")[1]
        assert row(page, "advice").startswith("advice 8 finished 8 pilots of advise What advise found ")
        assert row(page, "search").startswith("search 4 finished 4 trials of tune What tune found ")
        folded = folds(page)
        assert set(folded) == {"advice", "search", "mine"}
        assert {name: one.count('type="checkbox"') for name, one in folded.items()} == {
            "advice": 8,
            "search": 4,
            "mine": 1,
        }
        assert ["<details open" in folded[name] for name in ("advice", "search", "mine")] == [False, False, True]
        assert row(page, "fedprox/u-trial1").startswith("fedprox/u-trial1 finished fedprox(mu=")
        assert [name for name in ("mine", "advice") if f'href="/comparison/{name}' in page] == ["mine"]
        for name, file in (("advice", "advice.html"), ("search", "tuning.html")):
            assert f'href="/files/{name}/{file}"' in folded[name]
            status, found, headers = visit(f"/files/{name}/{file}")
            assert (status, found) == (200, (tried / name / file).read_text(encoding="utf-8"))
            assert headers["Content-Security-Policy"].startswith("sandbox ")
        assert 'href="/files/search/tuning.html">What tune found</a>' in visit("/run/search/fedavg/u-trial0")[1]
        assert visit("/files/search/tuned.yaml")[0] == 404
    with serving(tried / "search") as visit:
        assert row(visit("/")[1], "search").startswith("search 4 finished 4 trials of tune What tune found ")
        assert visit("/files/tuning.html")[0] == 200  # as browsers ask for /files/./tuning.html


def test_whoever_watches_sees_how_far_tune_is(
    people: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna", reason="needs the extra tune")
    monkeypatch.setattr("fairsilo.watch.places.FRESH", 0.0)
    seen: list[str] = []
    with serving(tmp_path) as visit:

        def look(event: Event) -> None:
            if event.kind == "opened":
                seen.append(row(visit("/")[1], "search").partition(" ended")[0])

        methods, out = ["fedavg", "fedprox"], tmp_path / "search"
        fairsilo.tune(methods, federation=people, trials=2, rounds=1, out=out, listener=look, **SMALL)
        assert seen == [
            "search 1 running 1 of 4 trials of tune so far: none",
            "search 1 finished 1 running 2 of 4 trials of tune so far: 1 of fedavg",
            "search 2 finished 1 running 3 of 4 trials of tune so far: 1 of fedavg, 1 of fedprox",
            "search 3 finished 1 running 4 of 4 trials of tune so far: 2 of fedavg, 1 of fedprox",
        ]
        with locked(out):  # more trials, after its page was written
            assert "4 of 4 trials of tune so far: 2 of fedavg, 2 of fedprox ended" in row(visit("/")[1], "search")
        assert "so far" not in row(visit("/")[1], "search")


@pytest.mark.slow
def test_whoever_watches_sees_which_turn_advise_is_in(tried: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tried / "advice", tmp_path / "advice")
    (folder / "advice.html").unlink()
    later = shutil.copytree(folder / "a-seed0", folder / "a-seed1")
    for config in later.rglob("config.yaml"):
        doctored(config.parent, "config.yaml", seed=1)
    with serving(tmp_path) as visit:
        said = row(visit("/")[1], "advice")
    assert said.startswith("advice 10 finished 10 pilots of advise so far: turn 2, 2 of 8 finished ")


def test_a_trial_that_was_given_up_is_no_trouble_and_one_that_was_killed_is(tried: Path, tmp_path: Path) -> None:
    """As `tune` leaves them: without a checkpoint where the trial has ended."""
    shutil.copytree(tried, tmp_path, dirs_exist_ok=True)
    behind, killed = tmp_path / "search" / "fedavg" / "u-trial1", tmp_path / "search" / "fedprox" / "u-trial1"
    doctored(behind, "run.json", status="interrupted")
    doctored(tmp_path / "own", "run.json", status="interrupted")
    with serving(tmp_path) as visit:
        page = visit("/")[1]
        assert row(page, "search").startswith("search 3 finished 1 given up 4 trials of tune")
        assert row(page, "fedavg/u-trial1").startswith("fedavg/u-trial1 given up ")
        assert "<details open" not in folds(page)["search"]
        trial = visit("/run/search/fedavg/u-trial1")[1]
        assert "<strong>Run interrupted</strong>: 1 of 1 rounds are complete. Tune gave this trial up.</p>" in trial
        assert '<p id="progress"><span class="tag ">given up</span>' in trial
        assert row(page, "own").startswith("own interrupted ")  # of a run that is no trial
        doctored(killed, "run.json", status="running")
        page = visit("/")[1]
        assert row(page, "fedprox/u-trial1").startswith("fedprox/u-trial1 interrupted ")
        assert "<details open" in folds(page)["search"]
        (behind / "checkpoint").mkdir()  # cut off: the same command goes on with it
        assert row(visit("/")[1], "fedavg/u-trial1").startswith("fedavg/u-trial1 interrupted ")


@pytest.mark.parametrize("content", [b"\xff", b"[]", b'{"asked": 5, "domains": 5}', b'{"asked": {}, "domains": []}'])
def test_a_folder_that_is_not_known_to_be_of_a_command_hides_no_run(runs: Path, tmp_path: Path, content: bytes) -> None:
    shutil.copytree(runs / "faa", tmp_path / "other" / "faa")
    (tmp_path / "other" / "asked.json").write_bytes(content)
    with serving(tmp_path) as visit:
        page = visit("/")[1]
        assert row(page, "other/faa").startswith("other/faa finished ")
        assert folds(page) == {}


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


def test_the_last_answer_is_seen_and_what_a_killed_run_said_is_not() -> None:
    told: list[Any] = []
    now = Now(lambda state: told.append(json.loads(json.dumps(state))), clock=lambda: 0.0)
    now(Event("start", 4, 9))
    assert told == [None]
    now(Event("asked", 5, 9, text="train", silos=("a",)))
    now._free = 1.0  # answers come too closely
    now(Event("reply", 5, 9, "a", text="train"))
    assert told[-1]["silos"]["a"]["state"] == "working"
    now(Event("trained", 5, 9))
    assert told[-1]["silos"]["a"]["state"] == "answered"


def test_a_disk_that_is_full_does_not_stop_a_run_here(tmp_path: Path) -> None:
    from fairsilo.runs.folder import RunFolder

    RunFolder(tmp_path / "is not there").write_now({"round": 1})
    RunFolder(tmp_path / "is not there").write_now(None)


def test_looking_whether_a_folder_is_in_use_keeps_nobody_from_using_it(tmp_path: Path) -> None:
    looking = threading.Event()

    def look() -> None:
        while not looking.wait(0.002):  # far more often than pages do
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
    places._due = 0.0
    assert list(places.runs) == ["late"]


# ------------------------------------------------------------------------------------------------------ the time left
def test_the_time_left_is_the_mean_of_steady_rounds() -> None:
    assert seconds_left([], 5) is None
    assert seconds_left([4.0], 5) == 16.0
    assert seconds_left([100.0, 4.0, 6.0], 5) == 10.0
    assert seconds_left([1.0] * 5, 5) == 0.0
    assert seconds_left([1.0, 3.0], 3, spent=2.0) == 1.0
    assert seconds_left([1.0, 3.0], 3, spent=9.0) == 0.0
    # resumed after the fourth of ten: the fifth made things ready, the sixth evaluated; 7, 9 plain, 8, 10 evaluate
    assert seconds_left([50.0, 7.0, 2.0], 10, every=2, first=5) == 7.0 + 2.0 + 7.0


@pytest.mark.parametrize(("every", "done"), [(1, 3), (4, 5), (5, 11), (5, 17), (10, 31), (4, 95), (4, 99)])
def test_the_time_left_is_within_a_fifth_where_rounds_that_evaluate_take_longer(every: int, done: int) -> None:
    took = [20.0] + [1.0 + (4.0 if number % every == 0 else 0.0) for number in range(2, 101)]
    found = seconds_left(took[:done], 100, every)
    assert found == pytest.approx(sum(took[done:]), rel=0.01)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/run/mine", "/run/mine"),
        ("/comparison/a=0.1/b%20c/", "/comparison/a=0.1/b%20c/"),
        ("/", "/"),
        ("//elsewhere.org", "/"),
        ("/\\elsewhere.org", "/"),
        ("/run//elsewhere", "/"),
        ("/a:b", "/"),
    ],
)
def test_a_browser_with_the_token_is_sent_to_the_page_that_it_asked_for(path: str, place: str) -> None:
    assert _local(path) == place
