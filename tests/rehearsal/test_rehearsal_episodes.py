"""Whole grounded runs with the rehearsal in all roles, through the same prompts, checks and engine as any model."""

from pathlib import Path

import pytest
from rehearsal_stage import always

import refinesynth as rs
from refinesynth import rules
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.settings.grounding import Grounding
from refinesynth.trajectory import DungeonMasterTurn

SPOILT = Faults(
    bad_condition=0.4, wrong_solution=0.3, met_goal=0.1, misaligned_goal=0.1, unseen_name=0.2, contradiction=0.2,
    said_success=0.2, ignored_failure=0.5,
)  # fmt: skip


async def grounded_run(folder: Path, rehearsal: Rehearsal, n: int, **grounding: object) -> rs.SynthesisResult:
    return await rs.synthesize(
        [f"a keeper of {number} clocks" for number in range(4 * n)],
        n=n,
        play="grounded",
        call=rehearsal,
        output=folder,
        grounding=Grounding.model_validate(grounding),
    )


@pytest.mark.parametrize("terse", [False, True])
async def test_without_faults_everything_passes_the_first_time(tmp_path: Path, terse: bool) -> None:
    rehearsal = Rehearsal(Faults.none())
    result = await grounded_run(tmp_path / "run", rehearsal, 2, terse=terse, transient=0.2)
    found = list(result)
    assert len(found) == 2
    assert result.by_rule == {}
    for trajectory in found:
        assert rules.verify(trajectory.draft(), rules.grounded()).accepted
        assert (trajectory.provenance.attempts, trajectory.provenance.script_attempts) == (1, 1)
        assert trajectory.provenance.play == "grounded"


@pytest.mark.long
async def test_with_faults_everything_that_is_kept_is_right(tmp_path: Path) -> None:
    result = await grounded_run(tmp_path / "run", Rehearsal(SPOILT), 4, transient=0.2)
    found = list(result)
    assert len(found) == 4
    for trajectory in found:
        assert rules.verify(trajectory.draft(), rules.grounded_script() & rules.grounded()).accepted
    assert result.by_rule


async def test_words_that_contradict_the_world_are_replaced_by_its_own_and_that_is_said(tmp_path: Path) -> None:
    (told,) = list(await grounded_run(tmp_path / "worded", always("contradiction"), 1))
    (plain,) = list(await grounded_run(tmp_path / "terse", Rehearsal(Faults.none()), 1, terse=True))
    assert told.script == plain.script
    assert [turn.model_copy(update={"plain": False}) for turn in told.turns] == list(plain.turns)
    assert all(turn.plain for turn in told.turns if isinstance(turn, DungeonMasterTurn))
