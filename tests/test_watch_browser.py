"""`fairsilo watch` in a real browser: it updates itself under the reader's hands, on any screen, for every reader."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import fairsilo
import tiny
from fairsilo import Event
from fairsilo.runs.folder import NOW
from fairsilo.runs.lock import locked
from test_watch import SMALL, serving

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra dev")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
Page = Any  # playwright's, which may be missing


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
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


@pytest.fixture
def page(browser: Any, root: Path) -> Iterator[Page]:
    """The list of runs; whatever a script complains of fails the test."""
    with serving(root) as visit:
        context = browser.new_context()
        complaints: list[str] = []
        opened = context.new_page()
        opened.on("console", lambda message: complaints.append(message.text))
        opened.on("pageerror", lambda problem: complaints.append(str(problem)))
        opened.set_default_timeout(10_000)
        opened.goto(visit.server.address)
        yield opened
        context.close()
        assert complaints == []


def test_it_opens_without_the_token_in_its_address(page: Page) -> None:
    assert "token" not in page.url
    assert page.locator("h1").inner_text().startswith("Runs in")
    page.get_by_role("link", name="faa", exact=True).click()
    assert page.locator("h1").inner_text() == "faa"
    page.get_by_role("link", name="All runs").click()
    assert page.get_by_role("row").count() == 3


def test_a_run_under_way_is_followed_and_a_silo_that_fails_is_shown(browser: Any, tmp_path: Path) -> None:
    """The run waits in every round until the page has shown the round before; in the third a silo fails."""
    goes, problems = threading.Semaphore(1), []

    def hold(event: Event) -> None:
        if event.kind == "opened":
            goes.acquire(timeout=60)
            if event.round == 3:
                state = json.loads((tmp_path / "run" / NOW).read_text())
                state["round"], state["silos"] = 3, {"b": {"state": "failed", "exchange": "train", "why": "lost: gone"}}
                (tmp_path / "run" / NOW).write_text(json.dumps(state))
                goes.acquire(timeout=60)

    def train() -> None:
        try:
            people = tiny.federation()
            fairsilo.run(federation=people, method="faa", rounds=4, out=tmp_path / "run", listener=hold, **SMALL)
        except BaseException as problem:  # noqa: BLE001 - said below, in the thread of the test
            problems.append(problem)

    run = threading.Thread(target=train)
    with serving(tmp_path) as visit:
        page = browser.new_page()
        page.goto(visit.server.address)
        assert "no run in this folder yet" in page.locator("#runs").inner_text()
        run.start()
        try:
            expect = playwright.expect
            page.get_by_role("link", name="run", exact=True).click(timeout=20_000)  # it appears by itself
            progress = page.locator("#progress")
            expect(progress).to_contain_text("1 of 4 rounds", timeout=20_000)
            assert "running" in progress.inner_text()
            goes.release()
            expect(progress).to_contain_text("2 of 4 rounds", timeout=20_000)
            assert page.locator("#curves svg").first.get_attribute("aria-label").startswith("Generalisation")
            goes.release()
            expect(page.locator("#now")).to_contain_text("lost: gone", timeout=20_000)
            expect(page.locator("#now [role=status]")).to_have_text("Look at: b.")
            goes.release(3)
            expect(progress).to_contain_text("finished", timeout=20_000)
            expect(progress).to_contain_text("4 of 4 rounds")
        finally:
            goes.release(10)
            run.join()
            page.close()
    assert problems == []


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


@pytest.mark.parametrize("path", ["/", "/run/faa", "/pair?run=faa&run=fedavg"])
def test_a_phone_does_not_scroll_sideways(browser: Any, root: Path, path: str) -> None:
    with serving(root) as visit:
        context = browser.new_context(viewport={"width": 360, "height": 740})
        page = context.new_page()
        page.goto(visit.server.address)
        page.goto(visit.server.address.partition("/?")[0] + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        context.close()


def test_dark_mode_is_dark_and_words_can_be_read_in_both(browser: Any, root: Path, tmp_path: Path) -> None:
    for name in ("fine", "damaged", "going"):
        shutil.copytree(root / "faa", tmp_path / name)
    (tmp_path / "damaged" / "run.json").write_text("{")
    pairs = [(f".tag.{kind}", ".table") for kind in ("good", "bad", "going")]
    pairs += [("body", "body"), ("a", ".table"), ("thead th", ".table")]
    with serving(tmp_path) as visit, locked(tmp_path / "going"):
        for scheme in ("light", "dark"):
            context = browser.new_context(color_scheme=scheme)
            page = context.new_page()
            page.goto(visit.server.address)
            assert (light(page, "body", "backgroundColor") < 0.1) == (scheme == "dark")
            for words, ground in pairs:
                ratio = contrast(light(page, words, "color"), light(page, ground, "backgroundColor"))
                assert ratio >= 4.5, (scheme, words, ratio)  # WCAG 2, AA
            context.close()


def light(page: Page, selector: str, which: str) -> float:
    """Relative luminance of a colour, as WCAG defines it."""
    colour = page.evaluate("([s, w]) => getComputedStyle(document.querySelector(s))[w]", [selector, which])
    numbers = [int(one) / 255 for one in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (n / 12.92 if n <= 0.04045 else ((n + 0.055) / 1.055) ** 2.4 for n in numbers)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


@pytest.mark.parametrize("path", ["/", "/run/faa", "/pair?run=faa&run=fedavg"])
def test_a_screen_reader_has_a_name_for_everything(page: Page, path: str) -> None:
    page.goto(page.url.rstrip("/") + path)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input, button, a, progress, svg[role=img], nav")].filter(
            (one) => !(one.getAttribute("aria-label") || one.innerText || "").trim()).map((one) => one.outerHTML)"""
    )
    assert unnamed == []
    assert page.locator("h1").count() == 1
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.title() != ""
