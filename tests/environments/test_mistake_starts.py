"""Plays that begin behind a mistake: verified, told, rewarded for the repair, and the same through every adapter."""

import json
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from samples import SHED_GROUNDED, trajectory

from refinesynth.chat import render_act_task, render_task, render_tool_turns, render_turns
from refinesynth.environments import GroundedEnvironment, find_world, read_worlds
from refinesynth.environments.grounded import HISTORY_HEADING, turns_to_mistake
from refinesynth.environments.trl import TextWorld
from refinesynth.errors import InputError
from refinesynth.evaluate.environments.environment import Instance
from refinesynth.evaluate.environments.worlds import GroundedWorld
from refinesynth.export import export, write_export
from refinesynth.export.formats import WorldFormat
from refinesynth.testing import valid_grounded_drafts
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn, Script, Trajectory
from refinesynth.world import check_solvability


def recorded(script: Script, *actions: str) -> tuple[PlayerTurn | DungeonMasterTurn, ...]:
    world = GroundedEnvironment(script)
    for action in actions:
        world.rule(action)
    return world.turns


def played(number: int, *actions: str, script: Script = SHED_GROUNDED) -> Trajectory:
    made = trajectory(script=script, id=f"{number:06}-aaaaaaaa")
    return made.model_copy(update={"turns": recorded(script, *actions)})


SOLUTION: tuple[str, ...] = SHED_GROUNDED.rulebook.solution if SHED_GROUNDED.rulebook else ()
EARLY = "".join(SOLUTION[-1:])
"""An action that the world refuses at the beginning."""
CLEAN, MISTAKEN = played(0, *SOLUTION), played(1, "sing", *SOLUTION)
LOGICAL = played(2, EARLY, *SOLUTION)


@given(valid_grounded_drafts())
def test_a_play_begins_in_the_state_behind_a_mistake_and_its_repair_is_seen(draft: Draft) -> None:
    turns = tuple(turn for turn in draft.turns if isinstance(turn, PlayerTurn | DungeonMasterTurn))
    at = next(at for at, turn in enumerate(turns) if isinstance(turn, DungeonMasterTurn) and turn.flagged)
    whole, behind = GroundedEnvironment(draft.script), GroundedEnvironment(draft.script, recovery=100)
    for turn, answer in pairwise(turns[: at + 1]):
        if isinstance(turn, PlayerTurn) and isinstance(answer, DungeonMasterTurn) and not answer.transient:
            whole.rule(turn.action)
    task = behind.reset(before=turns[: at + 1])
    assert task.startswith(f"{render_task(draft.script)}\n\n{HISTORY_HEADING}\n")
    assert all(turn.action in task for turn in turns[: at + 1] if isinstance(turn, PlayerTurn))
    assert (behind.state, behind.progress_before) == (whole.state, whole.progress)
    assert behind.progress == whole.world.progress(whole.state)
    assert behind.reward(progress=1.0) == 0
    assert (behind.taken, behind.mistakes, behind.repeats, behind.recovered) == (0, 0, 0, False)
    again = pickle.loads(pickle.dumps(behind))
    for action in check_solvability(draft.script.model_copy(update={"environment": behind.state})).shortest or ():
        assert behind.act(action) == again.act(action)
    assert behind.success
    assert behind.recovered  # the goal was reached
    assert again.reward(recovered=0.5) == behind.reward(recovered=0.5) == 1.5


def test_what_the_mistake_lacked_is_rewarded_once_and_in_time() -> None:
    before = turns_to_mistake(LOGICAL)
    assert before[-1] == LOGICAL.turns[1]
    world = GroundedEnvironment(SHED_GROUNDED)
    world.reset(before=before)
    assert world.reward(recovered=0.5) == 0
    found: list[bool] = []
    for action in SOLUTION[:-1]:
        world.act(action)
        found.append(world.recovered)
    assert found == sorted(found)
    assert found[-1]
    assert world.reward(recovered=0.5) == 0.5
    late = GroundedEnvironment(SHED_GROUNDED, recovery=1)
    late.reset(before=before)
    for action in ("sing", "dance", *SOLUTION):
        late.act(action)
    assert (late.success, late.recovered) == (True, False)
    late.reset()
    for action in (EARLY, *SOLUTION):
        late.act(action)
    assert (late.success, late.recovered) == (True, False)  # this play began with no mistake


CHEST = Script.model_validate(
    {
        "introduction": "A chest.",
        "environment": {"open": False, "taken": False},
        "goal": "Take the gem and shut the chest.",
        "completion_conditions": ["The chest is shut.", "The gem is taken."],
        "actions": [
            {"name": "open", "pattern": "open", "effects": [{"op": "set", "path": "/open", "value": True}]},
            {"name": "shut", "pattern": "shut", "effects": [{"op": "set", "path": "/open", "value": False}]},
            {
                "name": "take",
                "pattern": "take",
                "requires": [{"condition": "state.open", "hint": "It is shut."}],
                "effects": [{"op": "set", "path": "/taken", "value": True}],
            },
        ],
        "rulebook": {"goal": ["!state.open", "state.taken"], "solution": ["open", "take", "shut"]},
    }
)
"""A world whose solution breaks a condition of the goal that holds at the beginning."""


def test_progress_that_was_lost_before_the_play_is_no_progress_of_the_play() -> None:
    before = recorded(CHEST, "shut", "open", "sing")
    world = GroundedEnvironment(CHEST)
    rewards: list[float] = []
    for actions in ((), ("sing",), ("take",), ("take", "shut")):
        world.reset(before=before)
        for action in actions:
            world.act(action)
        rewards.append(world.reward(success=0.0, progress=1.0))
    assert rewards == [0.0, 0.0, 0.5, 1.0]
    evaluated = GroundedWorld()
    turns = [turn.model_dump(mode="json") for turn in before]
    evaluated.reset(Instance("chest", {"script": CHEST.model_dump(mode="json"), "turns": turns}))
    assert evaluated.step("sing").progress == 0.5  # in scores, the earlier turns count


def test_repeating_what_just_failed_costs_until_the_state_is_another() -> None:
    world = GroundedEnvironment(SHED_GROUNDED)
    world.reset(before=turns_to_mistake(LOGICAL))
    world.act(EARLY)
    world.act(f"  {EARLY} ")
    world.act("sing")
    assert (world.repeats, world.mistakes) == (2, 3)
    assert world.reward(repeat=0.1, mistake=0.01) == pytest.approx(-0.23)
    world.act(SOLUTION[0])
    if len(SOLUTION) > 2:
        world.act(EARLY)
        assert world.repeats == 2
        world.act(EARLY)
        assert world.repeats == 3


def test_turns_of_another_play_and_those_that_are_over_or_half_are_refused() -> None:
    other = (PlayerTurn(thought="", action=SOLUTION[0]), MISTAKEN.turns[1])
    for before, problem in (
        (other, r"turn 1 of the play to begin behind, .*, is parameter .* right in this world"),
        (CLEAN.turns, "reach the goal; expected ones up to an answer"),
        (MISTAKEN.turns[:3], "end with an action"),
    ):
        with pytest.raises(ValueError, match=problem):
            GroundedEnvironment(SHED_GROUNDED).reset(before=before)
    for text in ("{", "7"):
        with pytest.raises(InputError, match="are no turns"):
            TextWorld().reset(script=SHED_GROUNDED.model_dump_json(), before=text)


def test_what_failed_by_chance_before_the_mistake_is_not_carried_out_by_any_adapter() -> None:
    slipped = CLEAN.turns[1].model_copy(update={"observation": "It slips.", "progress": 0.0, "transient": True})
    turns = (PlayerTurn(thought="", action=SOLUTION[0]), slipped, *LOGICAL.turns[:2])
    one = LOGICAL.model_copy(update={"turns": (*turns, *LOGICAL.turns[2:])})
    (row,) = export([one], WorldFormat(start="mistakes"))
    text = TextWorld()
    text.reset(script=str(row["script"]), before=str(row["before"]))
    bare = GroundedEnvironment(SHED_GROUNDED)
    bare.reset(before=turns)
    assert bare.state is SHED_GROUNDED.environment or bare.state == SHED_GROUNDED.environment
    assert text.act(EARLY) == bare.act(EARLY)
    assert not bare.success


@pytest.mark.parametrize("form", ["react", "tools"])
def test_rows_hold_the_conversation_up_to_the_mistake_and_play_on(form: Any) -> None:
    rows = list(export([CLEAN, MISTAKEN, LOGICAL], WorldFormat(form, start="mistakes")))
    assert [row["id"] for row in rows] == [MISTAKEN.id, LOGICAL.id]
    for row, one in zip(rows, (MISTAKEN, LOGICAL), strict=True):
        render = render_turns if form == "react" else render_tool_turns
        told = render(one.script, one.turns[:2])
        prompt: Any = row["prompt"]
        assert [said["content"] for said in prompt] == [message.content for message in told]
        assert prompt[-1]["role"] in {"user", "tool"}
        world = TextWorld(recovered=0.5)
        task = world.reset(script=str(row["script"]), before=str(row["before"]))
        assert task.startswith(f"{render_act_task(one.script)}\n\n{HISTORY_HEADING}")
        for action in SOLUTION:
            world.act(action)
        assert world.get_reward() == 1.5


def test_a_share_of_the_trajectories_begins_behind_its_mistake_always_the_same() -> None:
    many = [played(number, "sing", *SOLUTION) for number in range(200)]
    rows = list(export(many, WorldFormat(start="mixed:0.3")))
    behind = [row["id"] for row in rows if json.loads(str(row["before"]))]
    assert 40 <= len(behind) <= 80
    assert len(rows) == len(behind) + 1  # the world's clean beginning, once
    assert [row["id"] for row in export(many, WorldFormat(start="mixed:0.3")) if row["before"] != "[]"] == behind
    assert [row.keys() for row in export(many, "rl")] == [rows[0].keys() - {"before"}]
    assert next(export(many, WorldFormat(start="mixed:0"))).keys() == rows[0].keys() - {"before"}
    assert len(list(export(many, WorldFormat(start="mixed:1")))) == 200


def test_worlds_are_read_with_their_start(tmp_path: Path) -> None:
    path = tmp_path / "trajectories.jsonl"
    path.write_bytes(b"".join(one.to_json() + b"\n" for one in (CLEAN, MISTAKEN, LOGICAL)))
    assert [(one.id, len(one.before)) for one in read_worlds(path)] == [(CLEAN.id, 0)]
    assert [(one.id, len(one.before)) for one in read_worlds(path, "mistakes")] == [(MISTAKEN.id, 2), (LOGICAL.id, 2)]
    assert find_world(path, start="mistakes").id == MISTAKEN.id
    assert find_world(path, LOGICAL.id, "mistakes").before == LOGICAL.turns[:2]
    with pytest.raises(InputError, match="has no mistake to begin behind"):
        find_world(path, CLEAN.id, "mistakes")
    path.write_bytes(CLEAN.to_json() + b"\n")
    with pytest.raises(InputError, match="has a mistake to begin behind"):
        list(read_worlds(path, "mistakes"))
    with pytest.raises(InputError, match="a grounded script with a solution and a mistake"):
        write_export(path, tmp_path / "out.jsonl", WorldFormat(start="mistakes"))


@pytest.mark.parametrize("start", ["dirty", "mixed", "mixed:2", "mixed:-1", "mixed:nan", "mixed:0.5x", ""])
def test_another_start_is_refused(start: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected clean, mistakes or mixed"):
        list(read_worlds(tmp_path / "any", start))
