"""The audit as a rater has it: the command serves a page, keys answer, Ctrl-C ends it, the same command continues."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from test_report import altered
from test_report_browser import CHROMIUM, PICTURES

import refinesynth as rs
from refinesynth.report.audited_turns import Answers

from playwright.sync_api import Page, expect, sync_playwright  # isort: skip - the module before skips without it

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: no chromium on the path, no REFINESYNTH_CHROMIUM"),
]


@contextmanager
def served(run: Path, rater: str) -> Generator[str]:
    command = [
        sys.executable,
        "-m",
        "refinesynth",
        "audit",
        str(run),
        "--rater",
        rater,
        "--per-cell",
        "2",
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"}) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("http://127.0.0.1:"), line
        yield line.split()[0]
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(30) == 0, said
        assert "answered, in" in said


def test_keys_answer_and_the_same_command_continues(tmp_path: Path) -> None:
    anyio.run(partial(rs.synthesize, n=20, backend="rehearsal", output=tmp_path / "first", seed=4))
    run = altered(tmp_path / "first", tmp_path / "hostile")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        with served(run, "ann") as address:
            page.goto(address)
            assert page.title() == "Audit by ann"
            state = page.locator("#state")
            expect(state).to_have_text("0 of 8 answered")
            expect(page.locator(".turn.current")).to_have_count(1)
            if PICTURES:
                page.screenshot(path=Path(PICTURES) / "audit.png")
            first = shown(page)
            page.keyboard.press("r")
            expect(state).to_have_text("1 of 8 answered")
            assert shown(page) != first
            page.keyboard.press("w")
            expect(state).to_have_text("2 of 8 answered")
            page.keyboard.press("b")
            page.keyboard.press("b")
            assert shown(page) == first
            expect(page.locator("#right")).to_have_class("given")
            page.keyboard.press("w")
            expect(page.locator("#wrong")).not_to_have_class("given")
        assert list(Answers.read(run / "audit.jsonl").by_rater["ann"].values()) == [False, False]
        with served(run, "ann") as address:
            page.goto(address)
            for done in range(2, 8):
                expect(state).to_have_text(f"{done} of 8 answered")
                page.keyboard.press("r")
            expect(page.locator("#shown")).to_contain_text("Every turn is answered")
        with served(run, "bob") as address:
            page.goto(address)
            expect(state).to_have_text("0 of 8 answered")
            assert shown(page) == first
        page.keyboard.press("r")
        expect(state).to_have_text("not saved: the server does not answer")
        assert [fault for fault in faults if "ERR_CONNECTION_REFUSED" not in fault] == []
        browser.close()
    assert len(Answers.read(run / "audit.jsonl").by_rater["ann"]) == 8
    assert "bob" not in Answers.read(run / "audit.jsonl").by_rater


def shown(page: Page) -> str:
    return page.locator("#shown").inner_text()
