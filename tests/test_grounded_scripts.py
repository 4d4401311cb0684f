"""Writing grounded scripts: each refused one goes back with its stage, in one step or in two."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.models import Model
from roles.scripted import GROUNDED, PROMPTS, Answer, Scripted, act, as_json, said

from refinesynth import rules
from refinesynth.attempts import Attempts
from refinesynth.backends.role import Role
from refinesynth.episode import EpisodeOutcome, EpisodeSettings, play_episode
from refinesynth.episode.reach import MAX_PLACES, MAX_USABLE, MAX_VALUES, reachable
from refinesynth.errors import ConfigurationError
from refinesynth.jsontext import write_json
from refinesynth.mistakes import natural
from refinesynth.roles.rulebooks import UNWRITTEN, goal_part, world_part
from refinesynth.rules.rulebooks import (
    ActionsUsable,
    GoalFitsConditions,
    NotYetDone,
    RulebookCompiles,
    RulebookRuns,
    SolutionWorks,
    Solvable,
)
from refinesynth.trajectory import ActionSpec, Effect, Persona, Script
from refinesynth.world import world_of

STAGES = rules.script() & rules.all_of(
    RulebookCompiles(),
    GoalFitsConditions(),
    RulebookRuns(),
    NotYetDone(),
    SolutionWorks(),
    Solvable(),
    ActionsUsable(),
)
ACTIONS = ("open box", "take saw", "take key", "put saw on bench", "put key on bench")
REASON = "There is no saw here and I hold none, so the key will do instead."
"""Gives up what was refused, in whichever of these actions."""
WORLD = as_json(world_part(GROUNDED))
GOAL = as_json(goal_part(GROUNDED))


def book(**parts: Any) -> Script:
    """The grounded script with another rulebook."""
    assert GROUNDED.rulebook is not None
    return GROUNDED.model_copy(update={"rulebook": GROUNDED.rulebook.model_copy(update=parts)})


async def write(*answers: Answer, **given: Any) -> tuple[EpisodeOutcome, Scripted]:
    writer = Scripted(answers)
    player = Scripted([said(act(action, REASON)) for action in ACTIONS])
    models: dict[Role, Model] = {Role.SCRIPT_WRITER: writer.model, Role.PLAYER: player.model}
    chosen: dict[str, Any] = {
        "rules": rules.grounded(),
        "script_rules": STAGES,
        "prompts": PROMPTS,
        "play": "grounded",
        "terse": True,
        "mistakes": natural(),
        "attempts": Attempts(scripts=4),
        **given,
    }
    outcome = await play_episode(Persona(text="a joiner"), index=3, settings=EpisodeSettings(**chosen), models=models)
    return outcome, writer


async def test_each_stage_goes_back_with_what_to_mend() -> None:
    unread, unsolved = book(goal=("state.inside.",)), book(solution=("open box", "put key on bench"))
    outcome, writer = await write(*(one.model_dump_json() for one in (unread, unsolved, GROUNDED)))
    assert outcome.accepted
    assert [refused.rejecting for refused in outcome.refused] == [("RulebookCompiles",), ("SolutionWorks",)]
    assert [refused.script for refused in outcome.refused] == [unread, unsolved]
    for asked, refused in zip(writer.asked[1:], outcome.refused, strict=True):
        assert asked.blocks["violations"] == [violation.message for violation in refused.violations]
        assert asked.blocks["previous"] == (refused.script and refused.script.model_dump(mode="json"))
        assert asked.blocks["wanted"] == writer.asked[0].blocks["wanted"]


class TestTwoSteps:
    async def test_world_and_goal_are_one_attempt(self) -> None:
        outcome, writer = await write(WORLD, GOAL, two_steps=True)
        (trajectory,) = outcome.trajectories
        assert trajectory.script == GROUNDED
        assert trajectory.provenance.script_attempts == 1
        first, second = (asked.blocks for asked in writer.asked)
        assert (first["wanted"]["step"], second["wanted"]["step"]) == ("world", "goal")
        assert second["reachable"]["usable"][0] == "open box"
        assert second["reachable"]["changes"]["/things/box/open"] == [False, True]
        assert outcome.usage.requests == 2 + len(ACTIONS)

    async def test_a_world_that_does_not_run_is_mended_before_a_goal_is_asked_for(self) -> None:
        first, *others = GROUNDED.actions
        nowhere = Effect.model_validate({"op": "remove", "path": "/nowhere"})
        broken = GROUNDED.model_copy(update={"actions": (first.model_copy(update={"effects": (nowhere,)}), *others)})
        outcome, writer = await write(as_json(world_part(broken)), WORLD, GOAL, two_steps=True)
        assert outcome.accepted
        (refused,) = outcome.refused
        assert refused.script is not None
        assert refused.script.goal == UNWRITTEN
        assert refused.rejecting == ("RulebookRuns",)
        assert [asked.blocks["wanted"]["step"] for asked in writer.asked] == ["world", "world", "goal"]
        assert writer.asked[1].blocks["previous"] == world_part(refused.script)

    async def test_a_world_with_an_action_that_never_works_is_refused(self) -> None:
        *others, last = GROUNDED.actions
        never = last.model_copy(update={"requires": (last.requires[0].model_copy(update={"condition": "false"}),)})
        world = GROUNDED.model_copy(update={"actions": (*others, never)})
        outcome, _ = await write(as_json(world_part(world)), WORLD, GOAL, two_steps=True)
        assert outcome.accepted
        assert [refused.rejecting for refused in outcome.refused] == [("ActionsUsable",)]

    async def test_a_refused_goal_keeps_the_world(self) -> None:
        done = goal_part(book(goal=("true",), solution=()))
        outcome, writer = await write(WORLD, as_json(done), GOAL, two_steps=True)
        assert outcome.trajectories[0].script == GROUNDED
        assert outcome.trajectories[0].provenance.script_attempts == 2
        (refused,) = outcome.refused
        assert refused.rejecting == ("NotYetDone",)
        assert [asked.blocks["wanted"]["step"] for asked in writer.asked] == ["world", "goal", "goal"]
        again = writer.asked[2].blocks
        assert again["previous"] == {**done, "rulebook": {"goal": ["true"], "solution": []}}
        assert again["violations"] == [violation.message for violation in refused.violations]
        assert again["world"] == writer.asked[1].blocks["world"]

    async def test_what_no_goal_can_mend_asks_for_another_world(self) -> None:
        strict = STAGES & rules.ActionCount(least=4)
        look = ActionSpec(name="look", pattern="^look$", reveals="You see {visible}.")
        wider = GROUNDED.model_copy(update={"actions": (*GROUNDED.actions, look)})
        outcome, writer = await write(
            WORLD, GOAL, as_json(world_part(wider)), GOAL, two_steps=True, script_rules=strict
        )
        assert outcome.trajectories[0].script == wider
        assert [asked.blocks["wanted"]["step"] for asked in writer.asked] == ["world", "goal", "world", "goal"]
        assert writer.asked[2].blocks["violations"] == [outcome.refused[0].violations[0].message]

    async def test_unreadable_answers_count_and_keep_the_world(self) -> None:
        outcome, writer = await write("x", WORLD, "x", GOAL, two_steps=True, attempts=Attempts(scripts=3, answers=0))
        assert outcome.accepted
        assert [refused.script for refused in outcome.refused] == [None, None]
        assert [asked.blocks["wanted"]["step"] for asked in writer.asked] == ["world", "world", "goal", "goal"]
        outcome, _ = await write(WORLD, "x", two_steps=True, attempts=Attempts(scripts=2, answers=0))
        assert not outcome.accepted
        assert len(outcome.refused) == 2
        assert outcome.reason is not None
        assert outcome.reason.startswith("no script was accepted in 2 attempts")


class TestReachable:
    def test_it_shows_what_can_come_about(self) -> None:
        shown = reachable(world_of(GROUNDED))
        assert shown["usable"] == ["open box", "take key", "put key on bench"]
        assert shown["changes"]["/things/box/open"] == [False, True]
        assert shown["changes"]["/inside/bench"] == [[], ["key"]]
        assert shown["deepest"] == ["open box", "take key", "put key on bench"]
        assert shown["complete"]
        assert shown == reachable(world_of(GROUNDED))

    def test_it_is_bounded_whatever_the_world(self) -> None:
        values = tuple(f"v{at}" for at in range(500))
        count = ActionSpec.model_validate(
            {
                "name": "set {key} to {value}",
                "pattern": "^set (.+) to (.+)$",
                "parameters": {"key": values, "value": values},
                "effects": [{"op": "set", "path": "/{key}", "value": "{value}"}],
            }
        )
        wide = Script.model_validate({**GROUNDED.model_dump(mode="json"), "actions": [count, *GROUNDED.actions]})
        shown = reachable(world_of(wide))
        assert not shown["complete"]
        assert len(shown["usable"]) <= MAX_USABLE
        assert len(shown["changes"]) <= MAX_PLACES
        assert all(len(seen) <= MAX_VALUES for seen in shown["changes"].values())
        assert "open box" in shown["usable"], "no action crowds out the others"
        assert len(write_json(shown)) < 100_000

    def test_states_that_grow_do_not_fill_the_memory(self) -> None:
        grow = ActionSpec.model_validate(
            {"name": "grow", "pattern": "^grow$", "effects": [{"op": "add", "path": "/text", "value": "{state:/text}"}]}
        )
        big = Script.model_validate(
            {**GROUNDED.model_dump(mode="json"), "environment": {"text": "x" * 1_000}, "actions": [grow]}
        )
        assert len(write_json(reachable(world_of(big)))) < 100_000


@settings(max_examples=30)
@given(
    st.fixed_dictionaries(
        {"transient": st.floats(), "branches": st.integers(-1, 2), "episodes_per_script": st.integers(-1, 2)}
    ),
    st.none() | st.tuples(st.integers(-1, 4), st.integers(-1, 4)),
)
def test_settings_out_of_range_are_refused(given_: dict[str, Any], band: tuple[int, int] | None) -> None:
    right = (
        0 <= given_["transient"] < 1
        and given_["branches"] >= 1
        and given_["episodes_per_script"] >= 1
        and (band is None or 1 <= band[0] <= band[1])
    )

    def settle() -> EpisodeSettings:
        return EpisodeSettings(
            rules=rules.strict(), script_rules=rules.script(), prompts=PROMPTS, difficulty=band, **given_
        )

    if right:
        assert settle().difficulty == band
    else:
        with pytest.raises(ConfigurationError, match="expected"):
            settle()
