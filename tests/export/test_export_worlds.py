"""The format `rl`: each grounded world once, with its task, its band, and all that is needed to play it."""

import json
from pathlib import Path

import pytest
from samples import KITCHEN, SHED_GROUNDED, trajectory

from refinesynth.chat import render_task, render_tool_task, render_tools
from refinesynth.environments import GroundedEnvironment
from refinesynth.errors import InputError
from refinesynth.export import export, write_export
from refinesynth.export.formats import UNSOLVED, band_of
from refinesynth.trajectory import Difficulty, Script
from refinesynth.world import check_solvability

PLAYED = [trajectory(script=SHED_GROUNDED), trajectory(script=KITCHEN), trajectory(script=SHED_GROUNDED)]


def test_each_world_is_one_record_that_can_be_played() -> None:
    for _ in range(2):
        (record,) = export(PLAYED, "rl")
        assert record["prompt"] == [{"role": "user", "content": render_task(SHED_GROUNDED)}]
        script = Script.model_validate_json(str(record["script"]))
        assert script == SHED_GROUNDED
        assert script.rulebook is not None
        world = GroundedEnvironment(script)
        for action in script.rulebook.solution:
            world.act(action)
        assert world.reward() == 1.0
        found = check_solvability(SHED_GROUNDED).difficulty
        assert found is not None
        assert record["difficulty"] == found.model_dump(mode="json")
        assert record["band"] == band_of(found)


def test_with_tools_the_task_leaves_the_actions_to_them() -> None:
    (record,) = export(PLAYED, "rl", form="tools")
    assert record["prompt"] == [{"role": "user", "content": render_tool_task(SHED_GROUNDED)}]
    assert json.loads(str(record["tools"])) == render_tools(SHED_GROUNDED)


@pytest.mark.parametrize(
    ("steps", "losable", "band"),
    [
        (1, None, "easy"),
        (4, False, "easy"),
        (4, True, "medium"),
        (5, None, "medium"),
        (8, True, "hard"),
        (9, True, "hard"),
    ],
)
def test_a_world_keeps_its_band_whatever_is_beside_it(steps: int, losable: bool | None, band: str) -> None:
    measured = Difficulty(steps=steps, branching=1.0, preconditions=1, distractors=0.0, hidden=0, losable=losable)
    assert band_of(measured) == band


def test_a_world_without_a_solution_is_left_out_and_said(tmp_path: Path) -> None:
    assert SHED_GROUNDED.rulebook is not None
    stuck = SHED_GROUNDED.rulebook.model_copy(update={"goal": ("false",)})
    unsolved = trajectory(script=SHED_GROUNDED.model_copy(update={"rulebook": stuck}))
    report = write_export([*PLAYED, unsolved], tmp_path / "rl.jsonl", "rl")
    assert (report.records, report.remarks) == (1, (f"Left out, {UNSOLVED}: 1.",))


def test_a_run_without_worlds_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of 1 trajectories has a grounded script"):
        write_export([trajectory(script=KITCHEN)], tmp_path / "rl.jsonl", "rl")
