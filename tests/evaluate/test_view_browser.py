"""The viewer in a real browser."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import anyio
import pytest

import refinesynth as rs

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")
pytest.importorskip("playwright", reason="needs playwright, of the extra dev")

from playwright.sync_api import Page, expect, sync_playwright

CHROMIUM = os.environ.get("REFINESYNTH_CHROMIUM") or shutil.which("chromium")
PICTURES = os.environ.get("REFINESYNTH_PICTURES")
"""Where pictures of the pages go, for docs/images; nowhere by default."""

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
HOSTILE = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\"> **b** [a](javascript:run)"

expect.set_options(timeout=30_000)

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: no chromium on the path, no REFINESYNTH_CHROMIUM"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Its second trajectory says hostile things, which a copied file without a journal may."""
    folder = tmp_path / "first"

    async def synthesize() -> None:
        await rs.synthesize(n=30, backend="rehearsal", output=folder)

    anyio.run(synthesize)
    first, second, *others = (folder / "trajectories.jsonl").read_text().splitlines()
    hostile = json.loads(second)
    hostile["turns"][1]["observation"] = f"{HOSTILE}{'wide ' * 20_000}"
    hostile["script"]["goal"] = HOSTILE
    (folder / "trajectories.jsonl").write_text("\n".join([first, json.dumps(hostile), *others, ""]))
    (folder / "journal.sqlite").unlink()
    return folder


@pytest.fixture
def address(run: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "refinesynth", "view", str(run)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        try:
            found = next(
                (said for line in process.stderr if (said := re.search(r"http://127\.0\.0\.1:\d+", line))), None
            )
            assert found is not None
            for _ in range(100):
                try:
                    urlopen(found[0]).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield found[0]
        finally:
            process.terminate()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path / "profile", executable_path=CHROMIUM, args=FLAGS.split(), viewport={"width": 1200, "height": 800}
        )
        yield browser.pages[0]
        browser.close()


def test_a_run_is_listed_and_a_trajectory_shows_its_mistake(run: Path, address: str, page: Page):
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    page.goto(address)
    expect(page.get_by_text("first: refused 1 to")).to_be_visible()
    page.get_by_text("first: accepted 1 to 30").click()
    first, hostile, *others = rs.SynthesisResult.open(run)
    # The viewer renders what is near: a trajectory high in the list, and a mistake early in it.
    near = [one for one in (first, *others[:6]) if one.mistakes()]
    trajectory = min(near, key=lambda one: one.mistakes()[0])
    expect(page.get_by_text(trajectory.id)).to_be_visible()
    expect(page.get_by_text(hostile.id)).to_be_visible()
    expect(page.get_by_text("NaN")).to_have_count(0)
    _picture(page, "view-list")

    page.get_by_text(trajectory.id).click()
    number = trajectory.mistakes()[0] + 1
    mark = page.get_by_text(f"turn {number}, mistake (").first
    mark.scroll_into_view_if_needed()
    expect(mark).to_be_visible()
    _picture(page, "view-mistake")

    page.goto(re.sub(r"sample/[^/]+/", f"sample/{hostile.id}/", page.url))
    expect(page.get_by_text("document.title='run'").first).to_be_visible()
    expect(page).to_have_title(re.compile(hostile.id))
    assert page.locator("img[src=x]").count() == page.locator("a[href^=javascript]").count() == 0
    assert errors == []


def _picture(page: Page, name: str) -> None:
    if PICTURES:
        page.wait_for_timeout(1_000)
        page.screenshot(path=Path(PICTURES) / f"{name}.png")
