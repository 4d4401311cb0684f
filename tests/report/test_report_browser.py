"""The report in a real browser: keys, search, hostile texts, no request to the network."""

import os
import shutil
from pathlib import Path

import anyio
import pytest
from test_report import HOSTILE, altered

import refinesynth as rs
from refinesynth.report import write_report

pytest.importorskip("playwright", reason="needs playwright, of the extra dev")

from playwright.sync_api import expect, sync_playwright

CHROMIUM = os.environ.get("REFINESYNTH_CHROMIUM") or shutil.which("chromium")
PICTURES = os.environ.get("REFINESYNTH_PICTURES")
"""Folder for pictures of the page, for docs/images; none by default."""

pytestmark = [
    pytest.mark.process,
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: no chromium on the path, no REFINESYNTH_CHROMIUM"),
]


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_reader_finds_and_reads_trajectories(tmp_path: Path, colours: str) -> None:
    async def synthesize() -> None:
        await rs.synthesize(
            n=60, backend="rehearsal", play="grounded", grounding=rs.Grounding(terse=True), output=tmp_path / "first"
        )

    anyio.run(synthesize)
    page_file = write_report(altered(tmp_path / "first", tmp_path / "hostile"), tmp_path / "page.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(
            color_scheme="dark" if colours == "dark" else "light", viewport={"width": 1300, "height": 1000}
        )
        faults: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_file.as_uri())
        items = page.locator("#list li")
        expect(items).to_have_count(60)
        assert page.title() == "Report of hostile"
        expect(page.locator("#detail h3")).to_contain_text("document.title")
        page.keyboard.press("j")
        expect(items.nth(1)).to_have_attribute("aria-selected", "true")
        page.keyboard.press("k")
        expect(items.nth(0)).to_have_attribute("aria-selected", "true")
        page.keyboard.press("/")
        page.keyboard.type("onerror")
        expect(items).to_have_count(1)
        expect(page.locator(".turn").first).to_contain_text(HOSTILE[:20])
        page.locator("#search").fill("")
        page.locator("#search").blur()
        page.keyboard.press("j")
        mistakes = page.locator(".turn.mistake")
        while mistakes.count() == 0:
            page.keyboard.press("j")
        expect(mistakes.first).to_contain_text("no loss")
        page.keyboard.press("r")
        expect(page.locator("#kind")).to_have_value("refused")
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(13, 17, 23)" if colours == "dark" else "rgb(255, 255, 255)")
        assert faults == []
        assert asked == [page_file.as_uri()]
        if PICTURES:
            page.keyboard.press("r")
            page.screenshot(path=Path(PICTURES) / f"report-{colours}.png", full_page=True)
        browser.close()
