"""Makes watch.png, the picture in docs/watching.md: `fairsilo watch` beside a run that goes on (needs Chromium).

.venv/bin/python docs/images/watch.py
"""

from __future__ import annotations

import io
import shutil
import tempfile
import threading
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

import fairsilo
from fairsilo import Event
from fairsilo.watch.server import Watch

HERE = Path(__file__).resolve().parent
ROUND, ROUNDS = 7, 10
WIDTH, HEIGHT = 1100, 1008
COLOURS = 128  # enough for a page of lines and text


def train(folder: Path, seen: threading.Event) -> None:
    """A small federation of the embedded digits; when the third of four silos trains, it waits for the picture."""
    replies: list[str] = []

    def hold(event: Event) -> None:
        if event.round == ROUND and event.kind == "reply" and event.text == "train":
            replies.append(event.silo)
            if len(replies) == 2:
                seen.wait(60)

    fairsilo.run(
        method="fft-gp",
        data={"name": "glyphs", "held_out": "street", "share": "print=300, scan=200, sketch=120, photo=250"},
        model="small-cnn",
        train={"rounds": ROUNDS, "epochs": 2, "batch_size": 16},
        engine={"name": "sequential"},
        out=folder / "digits",
        listener=hold,
    )


def take(folder: Path) -> bytes:
    """The page of that run as a browser shows it."""
    seen = threading.Event()
    run = threading.Thread(target=train, args=(folder, seen))
    with Watch(folder, 0) as server, sync_playwright() as driver:
        serving = threading.Thread(target=server.serve_forever, args=(0.02,))
        serving.start()
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(server.address)
            run.start()
            page.get_by_role("link", name="digits", exact=True).click(timeout=60_000)
            expect(page.locator("#progress")).to_contain_text(f"{ROUND - 1} of {ROUNDS} rounds", timeout=300_000)
            page.wait_for_timeout(4000)  # until the page has what the silos do now
            return bytes(page.screenshot())
        finally:
            seen.set()
            run.join()
            browser.close()
            server.shutdown()
            serving.join()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        picture = Image.open(io.BytesIO(take(Path(folder)))).convert("RGB")
    picture.quantize(COLOURS).save(HERE / "watch.png", optimize=True)


if __name__ == "__main__":
    main()
