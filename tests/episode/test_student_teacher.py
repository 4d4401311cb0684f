"""The student errs, the teacher repairs: who acts after a mistake, and what the record says of it."""

from typing import Any

import pytest
from interrupted_episodes import continued
from samples import SHED_GROUNDED, dm, player
from scripted import Scripted, said
from stage import PERSONA, grounded, only, rehearsing, settings_for

from refinesynth import rules
from refinesynth.backends import BackendSpec
from refinesynth.episode import EpisodeOutcome, play_episode
from refinesynth.episode.grounded import plan_to_goal
from refinesynth.rules.repairs import repairs
from refinesynth.settings import Attempts
from refinesynth.settings.mistakes import natural, spread
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Script, Trajectory, read_turn
from refinesynth.world import world_of

WEAK = {"default": "rehearsal", "player": "rehearsal:skill=0.5"}


async def rehearsed(play: str, backend: BackendSpec = WEAK, index: int = 1, **given: Any) -> EpisodeOutcome:
    settings = settings_for(play, mistakes=natural(), **given)
    return await play_episode(PERSONA, index=index, settings=settings, models=rehearsing(backend))


def acts(trajectory: Trajectory) -> list[tuple[bool, str | None]]:
    """Of each player's turn, whether it is a mistake, and who acted."""
    wrong = trajectory.mistakes()
    return [(at in wrong, turn.by) for at, turn in enumerate(trajectory.turns) if isinstance(turn, PlayerTurn)]


@pytest.mark.parametrize(("play", "repairer"), [("grounded", "planner"), ("grounded", "model"), ("live", "model")])
async def test_the_repairer_acts_right_after_each_mistake_and_nowhere_else(play: str, repairer: str) -> None:
    mistakes = 0
    for index in range(4):
        outcome = await rehearsed(play, index=index, repairer=repairer)
        for trajectory in outcome.trajectories:
            found = acts(trajectory)
            assert rules.verify(trajectory, settings_for(play).rules).accepted
            assert [by for _, by in found[1:]] == ["repairer" if wrong else None for wrong, _ in found[:-1]]
            assert trajectory.provenance.models["repairer"] == ("planner" if repairer == "planner" else "rehearsal")
            assert Trajectory.from_json(trajectory.to_json()) == trajectory
            mistakes += len(trajectory.mistakes())
    assert mistakes > 3


@pytest.mark.parametrize("repairer", ["planner", "model", None])
async def test_with_a_perfect_student_it_is_the_play_without_a_repairer(repairer: str | None) -> None:
    perfect = {"default": "rehearsal", "player": "rehearsal:skill=1"}
    today = {"default": "rehearsal", "player": "rehearsal:natural_mistake=0"}
    for index in range(3):
        clean = await rehearsed("grounded", today, index)
        found = await rehearsed("grounded", perfect, index, repairer=repairer)
        assert [one.turns for one in found.trajectories] == [one.turns for one in clean.trajectories]
        assert all(not one.mistakes() for one in found.trajectories)


@pytest.mark.parametrize("play", ["live", "grounded"])
async def test_an_interrupted_play_with_a_repairer_is_continued(play: str) -> None:
    for repairer in ("model", "planner") if play == "grounded" else ("model",):
        settings = settings_for(play, mistakes=spread(4, clean=0), repairer=repairer)
        outcome = await continued(settings, index=1, lives=3)
        assert any(turn.by for one in outcome.trajectories for turn in one.turns if isinstance(turn, PlayerTurn))


async def test_it_may_take_several_turns_or_all_until_the_mistake_is_answered() -> None:
    for index in range(1, 4):
        (two,) = (await rehearsed("grounded", index=index, repairer="planner", repair_turns=2)).trajectories
        found = acts(two)
        for at, (_, by) in enumerate(found):
            assert (by == "repairer") == any(wrong for wrong, _ in found[max(0, at - 2) : at])
        (until,) = (await rehearsed("grounded", index=index, repairer="planner", repair_turns="until")).trajectories
        for repair in repairs(until.draft()):
            last = len(until.turns) - 2 if repair.answer is None else repair.answer
            between = until.turns[repair.mistake.turn + 2 : last + 1 : 2]
            assert all(isinstance(turn, PlayerTurn) and turn.by == "repairer" for turn in between)


async def test_the_repairer_reads_why_and_the_player_does_not() -> None:
    stage = grounded(("open box", "take saw", "take key", "put key on bench"))
    stage.repairer = Scripted([said(player("take key", "There is no saw, so I take the key."))])
    stage.player = Scripted([said(player(one)) for one in ("open box", "take saw", "put key on bench")])
    outcome = await stage.play(repairer="model", terse=True)
    assert acts(only(outcome)) == [(False, None), (True, None), (False, "repairer"), (False, None)]
    (asked,) = stage.repairer.asked
    assert asked.blocks["private"] == {
        "action": "take saw",
        "fault": "place",
        "reason": "The action is refused: it is a place mistake. Nothing changes.",
    }
    assert "private" not in stage.player.asked[-1].blocks
    assert asked.chat[:-1] == stage.player.asked[-1].chat[: len(asked.chat) - 1]


PRICED = SHED_GROUNDED.model_dump(mode="json")
PRICED["actions"][1]["requires"][0]["effects"] = [{"op": "remove", "path": "/inside/box", "value": "key"}]


async def test_where_a_mistake_loses_the_goal_the_draft_ends_in_words() -> None:
    stage = grounded(("open box", "take saw"), script=SHED_GROUNDED.model_validate(PRICED))
    outcome = await stage.play(repairer="planner", terse=True, attempts=Attempts(drafts=1))
    (refused,) = outcome.refused
    (found,) = refused.violations
    assert (found.rule, found.code, found.turn, found.keeps_prefix) == ("Planner", "goal_lost", 2, True)
    assert found.message.startswith('After "take saw" no way to the goal is found.')


async def test_after_a_mistake_that_lost_nothing_the_student_acts_where_there_is_no_plan() -> None:
    """A right action lost the goal, which is not the mistake's fault."""
    script = SHED_GROUNDED.model_dump(mode="json")
    script["actions"][0]["effects"].append({"op": "remove", "path": "/inside/box", "value": "key"})
    stage = grounded(("open box", "take saw", "take key"), script=SHED_GROUNDED.model_validate(script))
    outcome = await stage.play(repairer="planner", terse=True, attempts=Attempts(drafts=1), max_turns=6)
    (refused,) = outcome.refused
    assert [one.code for one in refused.violations] == ["out_of_turns"]
    assert refused.draft is not None
    assert [turn.by for turn in refused.draft.turns if isinstance(turn, PlayerTurn)] == [None] * 3
    world = world_of(SHED_GROUNDED.model_validate(script))
    lost = world.step(world.script.environment, "open box").state
    turns = (player("open box"), dm("It opens."))
    assert plan_to_goal(world, turns, lost) is None


def switches(number: int) -> Script:
    """A world of switches, whose only condition says nothing of the way there: a search sees no end of it."""
    names = [chr(ord("a") + at) * 3 for at in range(number)]
    flip = {
        "name": "flip {s}",
        "pattern": "^flip (?P<s>[a-z]+)$",
        "parameters": {"s": names},
        "requires": [{"condition": "true", "hint": "no"}],
        "effects": [{"op": "set", "path": "/on/{s}", "value": {"cel": "!before.on[s]"}}],
        "reveals": "Click.",
    }
    idle: list[dict[str, Any]] = [
        {"name": name, "pattern": f"^{name}$", "parameters": {}, "reveals": "Nothing new."} for name in ("look", "wait")
    ]
    return Script.model_validate(
        {
            "introduction": "Switches.",
            "environment": {"on": dict.fromkeys(names, False)},
            "goal": "All on.",
            "completion_conditions": ["all on"],
            "actions": [flip, *idle],
            "rulebook": {"goal": ["state.on.all(x, state.on[x])"], "solution": [f"flip {name}" for name in names]},
        }
    )


@pytest.mark.parametrize("done", [(), ("flip aaa", "flip bbb"), ("flip ccc", "flip aaa"), ("flip bbb", "flip bbb")])
async def test_a_known_way_is_gone_on_with_where_a_search_would_not_end(done: tuple[str, ...]) -> None:
    """Also out of order, and after a step that was undone."""
    stage = grounded((*done, "flop"), script=switches(13))
    settings: dict[str, Any] = {"repair_turns": len(done) + 13, "script_rules": rules.script()}
    (trajectory,) = (await stage.play(repairer="planner", terse=True, **settings)).trajectories
    found = acts(trajectory)
    assert found[: len(done) + 1] == [(False, None)] * len(done) + [(True, None)]
    on = {text for text in done if done.count(text) == 1}
    assert found[len(done) + 1 :] == [(False, "repairer")] * (13 - len(on))


async def test_a_planned_turn_that_a_rule_refuses_is_left_to_the_player() -> None:
    """Its plan would be the same again."""
    stage = grounded(("open box", "take saw", "take key", "put key on bench"))
    refuses = rules.grounded() & rules.NoLeaks(also=(r'"take key"',))
    (trajectory,) = (await stage.play(repairer="planner", terse=True, rules=refuses)).trajectories
    assert acts(trajectory) == [(False, None), (True, None), (False, None), (False, None)]


def test_a_model_has_no_say_in_who_acted() -> None:
    assert read_turn({"role": "Player", "thought": "I try.", "action": "take key", "by": "repairer"}) == player(
        "take key", "I try."
    )


async def test_tool_calls_are_asked_of_the_repairer_too() -> None:
    outcome = await rehearsed("live", repairer="model", player_form="tools")
    assert any(by for one in outcome.trajectories for _, by in acts(one))
    assert all(one.provenance.player_form == "tools" for one in outcome.trajectories)


async def test_a_momentary_failure_is_no_mistake_that_is_repaired() -> None:
    (trajectory,) = (await rehearsed("grounded", repairer="planner", transient=0.5)).trajectories
    failed = {at for at, turn in enumerate(trajectory.turns) if isinstance(turn, DungeonMasterTurn) and turn.transient}
    wrong = trajectory.mistakes()
    for at, (_, by) in zip(range(0, len(trajectory.turns), 2), acts(trajectory), strict=True):
        settled = [earlier for earlier in range(0, at, 2) if earlier + 1 not in failed]
        assert (by == "repairer") == (bool(settled) and settled[-1] in wrong)
    assert failed
