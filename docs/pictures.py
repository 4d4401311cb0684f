"""Pictures of the pages that the documentation shows: `python docs/pictures.py` writes them into `docs/images/`.

Needs playwright and a Chromium (on the path, or named by REFINESYNTH_CHROMIUM), and PIL. Nothing is sent to the network.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
COMMAND = [sys.executable, "-m", "refinesynth"]


def refinesynth(*arguments: str) -> None:
    """Run one command in the current folder."""
    subprocess.run([*COMMAND, *arguments], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def serving(*arguments: str) -> Generator[str]:
    """Yield the address that a command serves, until the block ends."""
    process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None  # noqa: S101
        yield next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
    finally:
        process.terminate()
        process.wait()


def keep(page: Page, name: str, *, top: int = 0) -> None:
    """Write the visible part of a page as WebP, without `top` pixels at its upper edge."""
    picture: Any = Image
    shown = picture.open(BytesIO(page.screenshot())).convert("RGB")
    shown.crop((0, top, *shown.size)).save(IMAGES / f"{name}.webp", quality=60, method=6)


def pictures(page: Page) -> None:
    """Make small runs and evaluations in the current folder and take a picture of each page."""
    refinesynth("run", "-n", "60", "--play", "grounded", "--terse", "--seed", "3", "-o", "run")
    refinesynth("report", "run", "-o", "report.html")
    page.goto(Path("report.html").resolve().as_uri())
    keep(page, "report")
    page.locator("#browser").scroll_into_view_if_needed()
    while page.locator(".turn.mistake").count() == 0:
        page.keyboard.press("j")
    page.locator(".turn.mistake").first.scroll_into_view_if_needed()
    keep(page, "report-browser")
    with serving("audit", "run", "--rater", "ann", "--per-cell", "5", "--port", "0") as address:
        page.goto(address)
        for key in "rwr":
            page.keyboard.press(key)
            page.wait_for_timeout(300)
        keep(page, "audit")
    for model in ("random", "first", "oracle"):
        refinesynth("evaluate", "--model", model, "--tasks", "worlds:run,mistakes:run", "-o", f"evals/{model}")
    refinesynth("compare", *(f"evals/{model}" for model in ("random", "first", "oracle")), "-o", "compared")
    page.goto(Path("compared/compare.html").resolve().as_uri())
    keep(page, "compare")
    with serving("view", "evals/first") as address:
        time.sleep(10)  # the viewer starts
        page.goto(address)
        page.get_by_text("mistakes", exact=True).click()
        page.get_by_text("turns").first.click()
        page.get_by_text("Messages", exact=True).click()
        page.get_by_text("Action:").nth(2).wait_for()
        keep(page, "view", top=28)  # with the path of this folder


def main() -> None:
    """Take all pictures in a temporary folder."""
    chromium = os.environ.get("REFINESYNTH_CHROMIUM") or shutil.which("chromium")
    with TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        os.chdir(scratch)
        page = browser.new_page(viewport={"width": 1300, "height": 900}, color_scheme="light")
        page.set_default_timeout(60_000)
        pictures(page)
        browser.close()


if __name__ == "__main__":
    main()
