"""`fairsilo watch` in a real browser: it updates itself under the reader's hands, on any screen, for every reader."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import fairsilo
import tiny
from fairsilo import Event
from fairsilo.core.part import Part
from fairsilo.core.silo import Silo
from fairsilo.runs.folder import NOW, PLAN
from fairsilo.runs.lock import locked
from test_watch import SMALL, doctored, serving

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "needs Chromium: apt-get install chromium"
REQUIRED = bool(os.environ.get("BROWSER_REQUIRED"))  # as CI sets it: without a browser these tests fail there
if REQUIRED:
    playwright = import_module("playwright.sync_api")
else:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra dev")
pytestmark = pytest.mark.skipif(CHROMIUM is None and not REQUIRED, reason=MISSING)
Page = Any  # playwright's, which may be missing
PAGES = ["/", "/run/faa", "/run/going", "/run/damaged", "/run/first", "/pair?run=faa&run=fedavg", "/comparison/all"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    assert CHROMIUM is not None, f"{MISSING}; BROWSER_REQUIRED is set"
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for method in ("fedavg", "faa"):
        fairsilo.run(federation=tiny.federation(), method=method, rounds=3, out=folder / method, **SMALL)
    return folder


@pytest.fixture(scope="module")
def full(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Runs in several states, one of them under way, and a comparison with a run that stopped and one not begun."""
    folder = shutil.copytree(root, tmp_path_factory.mktemp("full") / "runs")
    for name in ("damaged", "going"):
        shutil.copytree(root / "faa", folder / name)
    (folder / "damaged" / "run.json").write_text("{")
    doctored(folder / "going", "run.json", status="running")
    doing = {"a": {"state": "working", "exchange": "train"}, "b": {"state": "failed", "why": "lost: not connected"}}
    (folder / "going" / NOW).write_text(json.dumps({"round": 4, "rounds": 9, "exchange": "train", "silos": doing}))
    begin(shutil.copytree(root / "faa", folder / "first"))
    shutil.copytree(root / "faa", folder / "search" / "faa" / "u-trial0")
    (folder / "search" / "asked.json").write_text('{"settings": {}, "sampler": "tpe"}')
    (folder / "search" / "tuning.html").write_text("<h1>What was chosen</h1>")
    people, methods = tiny.federation(), ["fedavg", "faa"]
    fairsilo.compare(methods, federation=people, seeds=[0, 1], rounds=1, out=folder / "all", **SMALL)
    stopped, removed, *_ = (one["folder"] for one in json.loads((folder / "all" / PLAN).read_text())["cells"])
    doctored(folder / "all" / stopped, "run.json", status="stopped")
    shutil.rmtree(folder / "all" / removed)
    with locked(folder / "going"), locked(folder / "first"):
        yield folder


def begin(folder: Path) -> None:
    """A run folder as it is in the first round."""
    for name in ("metrics.jsonl", "rounds.jsonl", "summary.json", "report.html"):
        (folder / name).unlink()
    doctored(folder, "run.json", status="running")
    doing = {"a": {"state": "working", "exchange": "train"}}
    (folder / NOW).write_text(json.dumps({"round": 1, "rounds": 3, "exchange": "train", "silos": doing}))


@contextmanager
def opened(browser: Any, root: Path, path: str = "/", **options: Any) -> Iterator[Page]:
    """A page in a browser of its own; whatever a script complains of fails the test."""
    with serving(root) as visit:
        context = browser.new_context(**options)
        complaints: list[str] = []
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.set_default_timeout(10_000)
        page.goto(visit.server.address)
        if path != "/":
            page.goto(page.url.rstrip("/") + path)
        try:
            yield page
        finally:
            context.close()
        assert complaints == []


@pytest.fixture
def page(browser: Any, root: Path) -> Iterator[Page]:
    """The list of runs."""
    with opened(browser, root) as page:
        yield page


@contextmanager
def under_way(goes: threading.Semaphore, hold: Callable[[Event], None], out: Path, **settings: Any) -> Iterator[None]:
    """A run in a thread, which waits where `hold` has it wait; at the end nothing holds it any more."""
    problems: list[BaseException] = []

    def train() -> None:
        try:
            fairsilo.run(federation=tiny.federation(), out=out, listener=hold, **settings, **SMALL)
        except BaseException as problem:  # noqa: BLE001 - said below, in the thread of the test
            problems.append(problem)

    run = threading.Thread(target=train)
    run.start()
    try:
        yield
    finally:
        goes.release(20)
        run.join()
    assert problems == []


def test_it_opens_without_the_token_in_its_address(page: Page) -> None:
    assert "token" not in page.url
    assert page.locator("h1").inner_text().startswith("Runs in")
    page.get_by_role("link", name="faa", exact=True).click()
    assert page.locator("h1").inner_text() == "faa"
    page.get_by_role("link", name="All runs").click()
    assert page.get_by_role("row").count() == 3


def test_a_run_under_way_is_followed_and_its_curves_grow(browser: Any, tmp_path: Path) -> None:
    """The run waits in every round until the page has shown the round before, or that results are to come."""
    goes = threading.Semaphore(0)

    def hold(event: Event) -> None:
        if event.kind == "opened":
            goes.acquire(timeout=60)

    expect = playwright.expect
    with opened(browser, tmp_path) as page:
        assert "no run in this folder yet" in page.locator("#runs").inner_text()
        with under_way(goes, hold, tmp_path / "run", method="faa", rounds=4):
            page.get_by_role("link", name="run", exact=True).click(timeout=20_000)  # it appears by itself
            progress, curve = page.locator("#progress"), page.locator("#curves figure").first
            results, pieces = page.locator("#results"), page.locator("main > [id]")
            expect(results).to_contain_text("first evaluation, at the end of round 1.")
            goes.release()
            expect(results).to_have_count(0, timeout=20_000)
            names = pieces.evaluate_all("(all) => all.map((one) => one.id)")
            assert names[:5] == ["way", "head", "progress", "now", "answers"]
            for done in (1, 2, 3):
                expect(progress).to_contain_text(f"{done} of 4 rounds", timeout=20_000)
                assert "running" in progress.inner_text()
                assert [curve_rounds(curve), points(curve)] == [list(range(1, done + 1)), done]
                goes.release()
            expect(progress).to_contain_text("finished", timeout=20_000)
            expect(progress).to_contain_text("4 of 4 rounds")
            assert [curve_rounds(curve), points(curve)] == [[1, 2, 3, 4], 4]


def curve_rounds(figure: Any) -> list[int]:
    """The rounds that a figure's numbers are of, as its link saves them."""
    _, *lines = unquote(figure.locator("a.csv").get_attribute("href").partition(",")[2]).split()
    return [int(line.partition(",")[0]) for line in lines]


def points(figure: Any) -> int:
    """How many are drawn."""
    assert figure.locator("svg").first.get_attribute("aria-label").startswith("Generalisation")
    return int(figure.locator("svg").first.locator(".dot").count())


@dataclass(frozen=True)
class Breaks(Part):
    """Raises at one silo from the second round on."""

    name = "breaks"

    def begin(self, silo: Silo) -> None:
        if silo.name == "b" and silo.round > 1:
            raise ValueError("the scanner is broken")


@pytest.mark.slow
def test_a_silo_that_fails_while_a_run_goes_on_is_shown_with_the_reason(browser: Any, tmp_path: Path) -> None:
    """The run waits in every round when all have trained, or failed to."""
    goes = threading.Semaphore(0)

    def hold(event: Event) -> None:
        if event.kind == "trained":
            goes.acquire(timeout=60)

    expect = playwright.expect
    with opened(browser, tmp_path) as page, under_way(goes, hold, tmp_path / "run", method=Breaks(), rounds=3):
        page.get_by_role("link", name="run", exact=True).click(timeout=20_000)
        silo = page.locator("#now tbody tr", has=page.get_by_role("rowheader", name="b", exact=True))
        said = page.locator("#now [role=status]")
        expect(silo.locator(".tag")).to_have_text("waiting", timeout=20_000)
        expect(said).to_have_text("No silo needs a look.")
        goes.release()
        expect(silo.locator(".tag.bad")).to_have_text("failed", timeout=20_000)
        expect(silo.locator("small")).to_contain_text("error: ValueError: the scanner is broken")
        expect(said).to_have_text("Look at: b.")
        assert "1 of 3 rounds" in page.locator("#progress").inner_text()
        goes.release(2)
        expect(page.locator("#progress")).to_contain_text("finished", timeout=20_000)
        expect(silo.locator(".tag.bad")).to_have_text("failed in round 3")
        expect(silo.locator("td").last).to_have_text("2")  # rounds it failed in
        expect(page.locator("#failures tbody tr")).to_have_count(2)


def test_two_runs_are_ticked_and_compared_by_keyboard_alone(page: Page) -> None:
    """Tab, space and enter; ticks and focus stay where they are while the page updates itself."""
    for _ in range(40):
        page.keyboard.press("Tab")
        label = page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.innerText")
        if label and label.startswith("compare "):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            page.keyboard.press("Space")
            page.evaluate("known = null; look()")  # an update in between
            page.wait_for_function("known !== null")
            assert page.evaluate("document.activeElement.getAttribute('aria-label')") == label
        elif label and label.startswith("Compare the two"):
            page.keyboard.press("Enter")
            break
    page.wait_for_url("**/pair?*")
    assert "against" in page.locator("h1").inner_text()
    assert page.locator("#curves svg").count() >= 4


def test_the_focus_stays_at_a_run_when_another_one_appears_above_it(browser: Any, root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "runs")
    with serving(tmp_path / "runs") as visit:
        page = browser.new_page()
        page.goto(visit.server.address)
        page.get_by_role("link", name="faa", exact=True).focus()
        shutil.copytree(root / "faa", tmp_path / "runs" / "late")
        os.utime(tmp_path / "runs" / "late" / "config.yaml", (4e9, 4e9))
        playwright.expect(page.get_by_role("link", name="late", exact=True)).to_be_visible(timeout=10_000)
        assert page.locator("#runs tbody a").first.inner_text() == "late"
        assert page.evaluate("document.activeElement.innerText") == "faa"
        page.close()


def test_the_runs_of_a_comparison_are_unfolded_by_keyboard_and_stay_so(
    browser: Any, root: Path, full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another comparison appears above, which is folded: none of their runs needs a look."""
    monkeypatch.setattr("fairsilo.watch.all_runs.HANDFUL", 0)
    expect = playwright.expect
    shutil.copytree(full / "all", tmp_path / "runs" / "all")
    for config in (tmp_path / "runs" / "all").rglob("config.yaml"):
        doctored(config.parent, "run.json", status="finished")
    shutil.copytree(root / "faa", tmp_path / "runs" / "alone")
    with opened(browser, tmp_path / "runs") as page:
        fold, inside = page.locator("#runs summary"), page.locator("#runs tbody.folded tr + tr")
        expect(inside.first).to_be_hidden()
        expect(page.get_by_role("link", name="alone", exact=True)).to_be_visible()
        fold.focus()
        page.keyboard.press("Enter")
        expect(inside.first).to_be_visible()
        shutil.copytree(tmp_path / "runs" / "all", tmp_path / "runs" / "late")
        for config in (tmp_path / "runs" / "late").rglob("config.yaml"):
            os.utime(config, (4e9, 4e9))
        expect(fold).to_have_count(2, timeout=10_000)
        assert fold.all_inner_texts() == ["late", "all"]
        shown = page.locator("#runs tbody.folded").evaluate_all(
            "(all) => all.map((one) => one.querySelectorAll('tr')[1].checkVisibility())"
        )
        assert shown == [False, True]
        assert page.evaluate("document.activeElement.innerText") == "all"


def test_what_tune_tried_is_folded_and_what_it_found_is_a_click_away(browser: Any, full: Path) -> None:
    with opened(browser, full) as page:
        fold = page.locator("#runs tbody.folded", has_text="1 trial of tune")
        trial = fold.get_by_role("link", name="faa/u-trial0")
        playwright.expect(trial).to_be_hidden()
        fold.locator("summary").click()
        playwright.expect(trial).to_be_visible()
        fold.get_by_role("link", name="What tune found").click()
        playwright.expect(page.locator("h1")).to_have_text("What was chosen")


def test_names_break_at_their_joints_on_a_phone(browser: Any, root: Path, tmp_path: Path) -> None:
    name = "prototypes-augmentation_federated/photographs-seed12"
    shutil.copytree(root / "faa", tmp_path / name)
    with opened(browser, tmp_path, viewport={"width": 390, "height": 844}) as page:
        lines = page.evaluate(  # found and measured in one go: an update may put another link in its place
            """() => {
                const found = [], link = document.querySelector("#runs tbody a");
                for (const node of link.childNodes) for (let at = 0; at < node.textContent.length; at++) {
                    const range = document.createRange();
                    range.setStart(node, at);
                    range.setEnd(node, at + 1);
                    const top = Math.round(range.getBoundingClientRect().top);
                    if (!found.length || found.at(-1)[0] !== top) found.push([top, ""]);
                    found.at(-1)[1] += node.textContent[at];
                }
                return found.map((one) => one[1]);
            }"""
        )
        assert "".join(lines) == name
        assert len(lines) > 1
        assert all(line[-1] in "/-_" for line in lines[:-1]), lines


def test_a_phone_has_room_for_methods_and_the_names_of_answers(browser: Any, root: Path) -> None:
    """In few lines, and words whole; the table is scrolled inside its frame."""
    with opened(browser, root, viewport={"width": 375, "height": 740}) as page:
        lines = """(all) => all.map((one) => {
            const words = document.createRange();
            words.selectNodeContents(one.firstChild);
            return new Set([...words.getClientRects()].map((line) => Math.round(line.top))).size;
        })"""
        methods = page.locator("#runs td:nth-child(3)")
        assert methods.count() == 2
        assert max(methods.evaluate_all(lines)) <= 2
        page.goto(page.url.rstrip("/") + "/pair?run=faa&run=fedavg")
        assert page.locator("#answers tbody th").evaluate_all(lines) == [1, 1, 1]


def test_what_is_read_aloud_keeps_its_emphasis(browser: Any, root: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(root / "faa", tmp_path / "faa")
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "status": "running"}))
    with serving(tmp_path) as visit:
        page = browser.new_page()
        page.goto(visit.server.address)
        page.get_by_role("link", name="faa", exact=True).click()
        banner = page.locator("#head [role=status]")
        playwright.expect(banner.locator("strong")).to_have_text("Run not finished yet")
        banner.evaluate("(one) => { window.same = one; }")
        (folder / "run.json").write_text(json.dumps({**about, "status": "stopped", "message": "gone"}))
        playwright.expect(banner.locator("strong")).to_have_text("Run stopped", timeout=10_000)
        playwright.expect(banner).to_contain_text("Gone")
        assert banner.evaluate("(one) => one === window.same")
        page.close()


def test_the_folder_of_a_comparison_can_be_watched(browser: Any, tmp_path: Path) -> None:
    """Its own page has the name `.`, which browsers take out of addresses."""
    people = tiny.federation()
    fairsilo.compare(["fedavg", "faa"], federation=people, rounds=1, out=tmp_path / "all", **SMALL)
    with serving(tmp_path / "all") as visit:
        page = browser.new_page()
        page.goto(visit.server.address)
        page.get_by_role("link", name="all", exact=True).click()
        playwright.expect(page.locator("#progress")).to_contain_text("2 of 2 runs are finished")
        page.locator("#grid tbody a").first.click()
        page.get_by_role("link", name="Comparison", exact=True).click()
        playwright.expect(page.locator("h1")).to_have_text("all")
        page.close()


@pytest.mark.slow
def test_updating_can_be_stopped_and_a_server_that_is_gone_is_told(browser: Any, root: Path) -> None:
    with serving(root) as visit:
        page = browser.new_page()
        page.goto(visit.server.address)
        button = page.get_by_role("button", name="Stop updating")
        button.click()
        assert page.get_by_role("button", name="Go on updating").get_attribute("aria-pressed") == "true"
        with locked(root / "faa"):  # another state than before
            page.wait_for_timeout(2000)
            assert "running" not in page.locator("#runs").inner_text()
            page.get_by_role("button", name="Go on updating").click()
            playwright.expect(page.locator("#runs")).to_contain_text("running")
    playwright.expect(page.locator("#connection")).to_contain_text("No connection", timeout=10_000)
    page.close()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("path", PAGES)
def test_a_phone_does_not_scroll_sideways(browser: Any, full: Path, path: str) -> None:
    with opened(browser, full, path, viewport={"width": 360, "height": 740}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


# by page: what words stand on, and the words
WORDS = {
    "/": {"body": ["body"], ".table": ["a", "thead th", ".tag.good", ".tag.bad", ".tag.going"]},
    "/run/going": {
        "body": [".facts dt", "#progress .tag.going", "#answers .quiet", "nav a", "footer"],
        ".banner": [".banner strong"],
        ".table": ["#now .tag.going", "#now .tag.bad", "#now td small", "#costs thead th"],
        ".card": ["#answers .card p", "#answers .big"],
        "figure": ["#curves .csv", "#curves svg .tick", "#curves svg .label", "#weights .legend span"],
        "button": ["button"],
    },
    "/run/damaged": {"body": ["#head .facts dt"], ".banner": [".banner", ".banner strong"]},
    "/pair?run=faa&run=fedavg": {
        "body": ["h1 .against", "#answers .quiet"],
        ".table": ["#answers td.number", "#answers th small", "#answers td small", "#answers .difference"],
        "figure": [".legend li"],
    },
    "/comparison/all": {
        "body": ["h1", ".eyebrow", "#progress span", "#grid p", "nav a"],
        ".table": ["#grid thead th", "#grid tbody th", "#grid td a", "#grid td.quiet", "#grid .tag.bad"],
    },
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("path", WORDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_mode_is_dark_and_words_can_be_read_in_both(browser: Any, full: Path, scheme: str, path: str) -> None:
    with opened(browser, full, path, color_scheme=scheme) as page:
        for ground, words in WORDS[path].items():
            behind = light(page, ground, "backgroundColor")
            assert (behind < 0.1) == (scheme == "dark"), ground
            for one in words:
                ratio = contrast(light(page, one, "fill" if "svg" in one else "color"), behind)
                assert ratio >= 4.5, (one, ratio)  # WCAG 2, AA


def light(page: Page, selector: str, which: str) -> float:
    """Relative luminance of a colour, as WCAG defines it."""
    colour = page.evaluate("([s, w]) => getComputedStyle(document.querySelector(s))[w]", [selector, which])
    numbers = [int(one) / 255 for one in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (n / 12.92 if n <= 0.04045 else ((n + 0.055) / 1.055) ** 2.4 for n in numbers)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("path", PAGES)
def test_a_screen_reader_has_a_name_for_everything(browser: Any, full: Path, path: str) -> None:
    with opened(browser, full, path) as page:
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll(
                "input, button, a, summary, progress, svg[role=img], nav, [tabindex]")].filter(
                // what is no control is not named by the words inside it, and without a role by nothing
                (one) => !(one.getAttribute("aria-label") || !one.matches("[tabindex]") && one.textContent || "").trim()
                    || one.matches("[tabindex]:not([role])")).map((one) => one.outerHTML)"""
        )
        assert unnamed == []
        assert page.locator("[tabindex]").count() == page.locator("table").count()
        assert page.locator("h1").count() == 1
        levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        assert page.locator("th:not([scope])").count() == 0
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.title() != ""
