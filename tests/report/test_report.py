"""The report of a run: its figures are those of `status`, and no text of a model becomes a part of the page."""

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from command_line import cli

import refinesynth as rs
from refinesynth.chat import to_messages
from refinesynth.errors import RunFolderError
from refinesynth.report import render_report, write_report
from refinesynth.rules.repairs import refinements
from refinesynth.trajectory import DungeonMasterTurn

HOSTILE = (
    "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\"> \u202e\x1b[31m $x^2$"
)


def data(page: str, kind: str) -> list[dict[str, Any]]:
    blocks = re.findall(rf'<script type="application/json" class="{kind}">(.*?)</script>', page, re.DOTALL)
    return [record for block in blocks for record in json.loads(block)]


def test_figures_are_those_of_the_run(run: Path) -> None:
    page, result = render_report(run), rs.SynthesisResult.open(run)
    rows = dict(re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', page))
    assert rows["accepted"] == "20 of 20"
    assert rows["requests"] == f"{result.usage.requests:,}"
    refusals = dict(re.findall(r'<td class="name">(\w+)</td><td class="number">([\d,]+)</td>', page))
    assert refusals == {rule: f"{count:,}" for rule, count in result.by_rule.items()}


def test_every_turn_is_there_with_its_loss_and_its_mark(run: Path) -> None:
    shown = {record["id"]: record for record in data(render_report(run), "accepted")}
    for trajectory in rs.SynthesisResult.open(run):
        turns = shown[trajectory.id]["turns"]
        assert len(turns) == len(trajectory.turns)
        labels = [message.label for message in to_messages(trajectory) if message.role == "assistant"]
        assert [turn["who"] for turn in turns if "action" in turn] == labels
        mistakes = [turn for turn in turns if turn["who"] == "mistake"]
        kinds = [turn.mistake_kind for turn in trajectory.turns if isinstance(turn, DungeonMasterTurn)]
        assert [turn["note"] for turn in mistakes] == [f"mistake ({kind.value})" for kind in kinds if kind is not None]
        repaired = sum(turn.get("note", "").startswith("repairs") for turn in turns)
        assert repaired <= refinements(trajectory).answered
        assert bool(repaired) == bool(refinements(trajectory).answered)


def altered(run: Path, folder: Path, **fields: Any) -> Path:
    shutil.copytree(run, folder)
    (folder / "journal.sqlite").unlink()
    lines = (folder / "trajectories.jsonl").read_bytes().splitlines()
    first = orjson.loads(lines[0])
    first["turns"][0]["thought"] = HOSTILE
    first["turns"][1]["observation"] = HOSTILE + "wide " * 20_000
    first["script"] |= {"goal": HOSTILE, "introduction": HOSTILE}
    first |= {"persona": {"text": HOSTILE}, **fields}
    (folder / "trajectories.jsonl").write_bytes(b"\n".join([orjson.dumps(first), *lines[1:], b""]))
    return folder


def test_no_text_leaves_its_place(run: Path, tmp_path: Path) -> None:
    page = render_report(altered(run, tmp_path / "hostile", id=HOSTILE))
    assert "document.title" in page
    assert "<img" not in page
    assert page.count("<script>") == 1
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert len(page) < 1_000_000
    assert re.findall(r" (?:src|href)=\"(?!#)", page) == []


def test_a_line_that_is_none_is_named(run: Path, tmp_path: Path) -> None:
    folder = altered(run, tmp_path / "broken")
    with (folder / "trajectories.jsonl").open("ab") as file:
        file.write(b'{"id": 1}\n')
    with pytest.raises(RunFolderError, match=r"line 21 of .*trajectories\.jsonl"):
        write_report(folder, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_run_without_trajectories_has_a_page(tmp_path: Path) -> None:
    anyio.run(
        partial(
            rs.synthesize,
            ["A nurse."],
            n=1,
            backend="rehearsal",
            rules=rs.rules.strict() & rs.rules.TurnLimit(most=1),
            output=tmp_path / "none",
        )
    )
    page = render_report(tmp_path / "none")
    assert data(page, "accepted") == []
    assert data(page, "refused")
    assert all(record["why"] for record in data(page, "refused"))


def test_the_command_refuses_wrong_input(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for arguments, said in (
        (["nowhere"], "nowhere"),
        ([str(run), "-o", "."], "is a folder"),
        ([str(run), "--sample", "0"], "--sample"),
        ([str(run), "-o", "file/page.html"], "file"),
        ([str(run), "-o", "file"], "is no report"),
        ([str(run), "-o", "link"], "is a link"),
        ([str(run), "-o", str(run / "journal.sqlite")], "is what a run wrote"),
    ):
        result = cli("report", *arguments)
        assert result.exit_code in {2, 3}, (arguments, result.output)
        assert said in result.stderr.replace("\n", " ")
    for _ in range(2):  # an earlier report is replaced
        assert cli("report", run).exit_code == 0
    assert (tmp_path / "report.html").read_text() == render_report(run)
