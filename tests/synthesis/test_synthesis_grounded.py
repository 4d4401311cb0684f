"""Grounded runs with curation, from settings to files."""

from pathlib import Path
from typing import Any

import pytest
from run_records import contents

from refinesynth import rules
from refinesynth.errors import InputError
from refinesynth.rules import verify
from refinesynth.run import RunFolder
from refinesynth.settings import Curation
from refinesynth.settings.grounding import Grounding, Mix
from refinesynth.synthesis import SynthesisResult, synthesize

TERSE = Grounding(terse=True, difficulty=(4, 12), transient=0.2, mix=Mix(hidden=1.0))


async def _run(output: Path, n: int = 5, **settings: Any) -> SynthesisResult:
    asked: dict[str, Any] = {"grounding": TERSE, **settings}
    return await synthesize(None, n, play="grounded", output=output, **asked)


@pytest.mark.long
async def test_a_grounded_run_says_how_it_was_played_and_can_be_verified_again(tmp_path: Path) -> None:
    made = await _run(tmp_path / "run", concurrency=3)
    config = RunFolder.open(made.path).config
    assert config.play == "grounded"
    assert config.grounding is not None
    assert (config.grounding["terse"], config.grounding["transient"]) == (True, 0.2)
    assert "DifficultyBand(least=4, most=12)" in config.script_rules
    assert "dungeon_master" not in config.models
    for trajectory in made:
        assert verify(trajectory.draft(), rules.grounded()).accepted
        provenance = trajectory.provenance
        assert provenance.script_id == trajectory.script.digest
        assert provenance.difficulty is not None
        assert 4 <= provenance.difficulty.steps <= 12
    assert any(turn.role == "DM" and turn.transient for trajectory in made for turn in trajectory.turns)
    one = await _run(tmp_path / "one", concurrency=1)
    assert contents(one.path) == contents(made.path)


@pytest.mark.long
async def test_what_an_evaluation_set_holds_is_refused(tmp_path: Path) -> None:
    first = await _run(tmp_path / "first", n=2)
    held_out = tmp_path / "exam.txt"
    held_out.write_text(f"Question 1. {next(iter(first)).persona.text}\n", encoding="utf-8")
    clean = await _run(tmp_path / "clean", n=2, curation=Curation(contamination=(str(held_out),)))
    assert next(iter(first)).id not in [trajectory.id for trajectory in clean]
    assert clean.by_rule["Contaminated"] == 1


@pytest.mark.long
async def test_a_run_is_continued_with_the_same_evaluation_sets_wherever_they_are(tmp_path: Path) -> None:
    exam, moved = tmp_path / "exam.txt", tmp_path / "moved.txt"
    exam.write_text("Which of the nine planks is the one that the carpenter cannot use today?\n", encoding="utf-8")
    moved.write_bytes(exam.read_bytes())
    await _run(tmp_path / "run", n=1, curation=Curation(contamination=(str(exam),)))
    await _run(tmp_path / "run", n=2, curation=Curation(contamination=(str(moved),)))
    moved.write_text("Another exam, of eight words or some more.\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"curation\.evaluation"):
        await _run(tmp_path / "run", n=3, curation=Curation(contamination=(str(moved),)))


@pytest.mark.long
async def test_near_duplicates_are_refused_alike_in_one_go_and_continued(tmp_path: Path) -> None:
    curation = Curation(near_duplicates=0.3)
    whole = await _run(tmp_path / "whole", n=7, curation=curation, concurrency=8)
    assert whole.by_rule["NearDuplicate"] > 0
    await _run(tmp_path / "parts", n=3, curation=curation, concurrency=2)
    parts = await _run(tmp_path / "parts", n=7, curation=curation, concurrency=5)
    assert contents(parts.path) == contents(whole.path)


async def test_a_complete_run_that_lost_lines_is_repaired_with_its_curation(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"n": 5, "curation": Curation(near_duplicates=0.3)}
    whole = await _run(tmp_path / "run", **settings)
    assert whole.by_rule["NearDuplicate"] > 0
    before = contents(whole.path)
    for name in ("trajectories.jsonl", "rejected.jsonl"):
        file = whole.path / name
        file.write_bytes(file.read_bytes().partition(b"\n")[0] + b"\n")
    await _run(tmp_path / "run", **settings)
    assert contents(whole.path) == before


async def test_an_evaluation_set_that_is_not_there_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no-such-file\.jsonl"):
        await _run(tmp_path / "run", curation=Curation(contamination=(str(tmp_path / "no-such-file.jsonl"),)))
    assert not (tmp_path / "run").exists()
