"""Integrity of worlds as environments: sound ones pass, those that reward talking or cannot be won are found."""

import json
from pathlib import Path

import pytest
from command_line import cli
from hypothesis import given
from hypothesis import settings as profile
from samples import KITCHEN, SHED_GROUNDED, trajectory

from refinesynth.environments import GroundedEnvironment, NamedWorld
from refinesynth.environments.grounded import turns_to_mistake
from refinesynth.environments.integrity import check_integrity
from refinesynth.testing import valid_grounded_drafts, valid_grounded_scripts
from refinesynth.trajectory import ActionSpec, Draft, Effect, EffectOp, Requirement, Rulebook, Script
from refinesynth.world import check_solvability

COUNT, LEAP = (Effect(op=EffectOp.ADD, path="/words", value=number) for number in (1, 2))
TALK = Script(
    introduction="",
    environment={"words": 0},
    goal="Say two words.",
    completion_conditions=("two words are said",),
    actions=(
        ActionSpec(name="wait", pattern="wait", effects=(COUNT,), reveals="Task Succeed"),
        ActionSpec(name="{word}", pattern="(.+)", parameters={"word": ()}, effects=(LEAP,), reveals="{word}"),
    ),
    rulebook=Rulebook(goal=("state.words >= 2",), solution=("wait", "wait")),
)
"""Any text is an action and reaches the goal, which no planner can know."""


def rewards(script: Script, seeds: int = 2) -> dict[str, float]:
    found = check_integrity(NamedWorld("x", script), seeds=range(seeds))
    return {one.policy: one.reward for one in found.baselines}


@profile(max_examples=10)
@given(valid_grounded_scripts())
def test_a_valid_world_is_sound(script: Script) -> None:
    found = check_integrity(NamedWorld("x", script), seeds=range(2))
    if len(check_solvability(script).shortest or ()) > 1:
        assert found.is_sound
    assert found == check_integrity(NamedWorld("x", script), seeds=range(2))


def test_a_world_that_rewards_talking_is_not_sound() -> None:
    found = check_integrity(NamedWorld("x", TALK), seeds=range(2))
    assert not found.is_sound
    failing = {one.policy for one in found.baselines if one.fails}
    assert failing == {"echo", "forge"}
    assert {one.policy for one in found.baselines if one.is_easy} == {"random", "search"}


def test_a_world_that_is_won_by_the_same_action_again_is_sound() -> None:
    alone = TALK.model_copy(update={"actions": TALK.actions[:1], "environment": {"words": -1}})
    found = check_integrity(NamedWorld("x", alone), seeds=range(1))
    assert found.is_sound
    with pytest.raises(ValueError, match="has 3 actions, and steps is 2; give steps=3"):
        check_integrity(NamedWorld("x", alone), steps=2)


def test_success_in_the_words_of_an_action_or_an_observation_ends_nothing() -> None:
    environment = GroundedEnvironment(TALK)
    assert environment.act("wait") == "success"
    assert not environment.done
    shed = GroundedEnvironment(SHED_GROUNDED)
    for said in ("Task Succeed", "task  succeed", "look\nObservation: Task Succeed", "Action: Task Succeed"):
        assert "task succeed" not in shed.reply(f"Action: {said}").casefold()
    assert (shed.success, shed.reward()) == (False, 0.0)


def test_a_world_that_cannot_be_won_is_not_sound() -> None:
    locked = TALK.model_copy(update={"environment": {"words": 0, "off": True}})
    never = Requirement(condition="!state.off", hint="No.")
    script = locked.model_copy(
        update={"actions": tuple(one.model_copy(update={"requires": (never,)}) for one in TALK.actions)}
    )
    assert rewards(script)["oracle"] == 0
    assert not check_integrity(NamedWorld("x", script)).is_sound


@profile(max_examples=5)
@given(valid_grounded_drafts())
def test_a_play_that_begins_behind_a_mistake_is_won_by_the_oracle(draft: Draft) -> None:
    one = trajectory(script=draft.script).model_copy(update={"turns": draft.turns})
    world = NamedWorld("x", draft.script, turns_to_mistake(one))
    found = check_integrity(world, seeds=range(1))
    assert next(each.reward for each in found.baselines if each.policy == "oracle") == 1


@pytest.mark.parametrize(("script", "code"), [(SHED_GROUNDED, 0), (TALK, 1), (KITCHEN, 2)])
def test_the_command_says_which_worlds_are_not_sound(tmp_path: Path, script: Script, code: int) -> None:
    path = tmp_path / "trajectories.jsonl"
    path.write_bytes(trajectory(script=script).to_json() + b"\n")
    found = cli("environments", "check", path, "--seeds", "2")
    assert found.exit_code == code
    if code == 2:
        return
    assert ("not sound" in found.output) == bool(code)
    (row,) = json.loads(cli("environments", "check", path, "--seeds", "2", "--json").stdout)
    assert row["sound"] == (code == 0)
    assert row["rewards"]["oracle"] == 1
