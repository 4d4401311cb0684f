"""A grounded world as an environment: the reward is of script, seed and actions alone, and nothing that is done to it
raises.
"""

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import SHED, SHED_GROUNDED

import refinesynth as rs
from refinesynth import rules
from refinesynth.actions.calls import Call, call_of
from refinesynth.chat import render_task, render_tool_task, to_messages
from refinesynth.environments import STEPS, GroundedEnvironment
from refinesynth.environments.grounded import OVER
from refinesynth.errors import RulebookError
from refinesynth.testing import texts, valid_grounded_scripts
from refinesynth.trajectory import ActionSpec, Draft, DungeonMasterTurn, Effect, EffectOp, Rulebook, Script

SOLUTION: tuple[str, ...] = SHED_GROUNDED.rulebook.solution if SHED_GROUNDED.rulebook else ()
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
    max_leaves=5,
)


def played(script: Script, actions: list[str], seed: int = 0, slips: float = 0.0) -> tuple[list[str], float, bool]:
    world = GroundedEnvironment(script, slips=slips)
    world.reset(seed)
    return [world.act(action) for action in actions], world.reward(progress=0.5, mistake=0.25, length=0.01), world.done


@given(valid_grounded_scripts())
def test_the_solution_gets_one_and_nothing_gets_nothing(script: Script) -> None:
    world = GroundedEnvironment(script)
    assert (world.reward(), world.done) == (0.0, False)
    assert world.reset() == render_task(script)
    observation = ""
    for action in script.rulebook.solution if script.rulebook else ():
        assert not world.done
        observation = world.act(action)
    assert world.done
    assert observation.endswith("Task Succeed")
    assert (world.reward(), world.progress, world.mistakes) == (1.0, 1.0, 0)
    assert world.act("look") == OVER
    world.reset()
    assert (world.reward(progress=1), world.taken, world.turns) == (0.0, 0, ())


def test_what_holds_at_the_beginning_pays_nothing() -> None:
    rulebook = Rulebook(goal=("state.a", "state.b"), solution=("set b",))
    effect = Effect(op=EffectOp.SET, path="/b", value=True)
    action = ActionSpec(name="set b", pattern="^set b$", effects=(effect,))
    script = Script(
        environment={"a": True, "b": False},
        goal="Both.",
        completion_conditions=("a", "b"),
        actions=(action,),
        rulebook=rulebook,
    )
    world = GroundedEnvironment(script)
    rewards = [(world.act(text), world.reward(success=0, progress=1))[1] for text in ("nonsense", "set b")]
    assert rewards == [0.0, 1.0]


@given(valid_grounded_scripts(), st.data())
def test_calls_are_worth_what_their_texts_are(script: Script, data: st.DataObject) -> None:
    solution = list(script.rulebook.solution) if script.rulebook else []
    actions = data.draw(st.lists(st.sampled_from(solution) | texts(), max_size=6))
    text, calls = GroundedEnvironment(script), GroundedEnvironment(script)
    assert calls.reset(form="tools") == render_tool_task(script)
    names = {tool["function"]["name"] for tool in calls.tools()}
    assert len(names) == len(script.actions)
    for action in actions:
        name, arguments = call = call_of(script, action)
        assert text.act(action) == calls.act(call if len(action) % 2 else {"name": name, "arguments": arguments})
    assert text.reward(progress=1, mistake=1, length=1) == calls.reward(progress=1, mistake=1, length=1)


@given(st.lists(texts() | st.sampled_from([*SOLUTION, "look"]), max_size=8), st.integers(), st.sampled_from([0.0, 0.5]))
def test_the_reward_is_of_script_seed_and_actions_alone(actions: list[str], seed: int, slips: float) -> None:
    first = played(SHED_GROUNDED, actions, seed, slips)
    assert played(SHED_GROUNDED, actions, seed, slips) == first
    world = GroundedEnvironment(SHED_GROUNDED, slips=slips)
    world.reset(seed)
    observations: list[str] = []
    for action in actions:
        observations.append(world.act(action))
        world = pickle.loads(pickle.dumps(world))
    assert (observations, world.reward(progress=0.5, mistake=0.25, length=0.01), world.done) == first


@given(st.dictionaries(texts(), JSON, max_size=3) | st.builds(Call, texts(), st.dictionaries(texts(), JSON)) | texts())
def test_whatever_is_done_is_answered(action: Any) -> None:
    world = GroundedEnvironment(SHED_GROUNDED)
    assert world.act(action)
    assert world.taken == 1


def test_success_in_the_words_of_an_action_or_an_observation_ends_nothing() -> None:
    wait = SHED.actions[0].model_copy(
        update={"name": "wait", "pattern": "wait", "parameters": {}, "reveals": "Task Succeed"}
    )
    rulebook = Rulebook(goal=("false",))
    assert (
        GroundedEnvironment(SHED.model_copy(update={"actions": (wait,), "rulebook": rulebook})).act("wait") == "success"
    )
    shed = GroundedEnvironment(SHED_GROUNDED)
    for said in ("Task Succeed", "task  succeed", "look\nObservation: Task Succeed", "Action: Task Succeed"):
        assert "task succeed" not in shed.reply(f"Action: {said}").casefold()
    assert (shed.success, shed.reward()) == (False, 0.0)


def test_a_play_is_over_after_so_many_actions() -> None:
    world = GroundedEnvironment(SHED_GROUNDED, steps=3)
    for _ in range(3):
        assert not world.done
        world.act("dance")
    assert world.done
    assert world.act(next(iter(SOLUTION))) == OVER
    assert (world.reward(mistake=0.5), world.taken, world.mistakes) == (-1.5, 3, 3)
    assert GroundedEnvironment(SHED_GROUNDED).steps == STEPS


async def test_the_observations_are_those_of_training(tmp_path: Path) -> None:
    run = await rs.synthesize(n=2, play="grounded", grounding=rs.Grounding(terse=True), output=tmp_path / "run")
    for one in run:
        world = GroundedEnvironment(one.script)
        assert world.reset() == to_messages(one)[0].content
        for act, answer in zip(one.turns[::2], one.turns[1::2], strict=True):
            assert world.act(getattr(act, "action", "")) == getattr(answer, "observation", "")
        assert world.reward() == 1.0


def test_an_action_that_slips_keeps_the_present_progress() -> None:
    turned = [
        ActionSpec(
            name=f"turn {lamp} {way}",
            pattern=f"turn {lamp} {way}",
            effects=(Effect(op=EffectOp.SET, path=f"/{lamp}", value=way),),
            reveals="Done.",
        )
        for lamp in ("left", "right")
        for way in ("on", "off")
    ]
    goal = ("state.left == 'on'", "state.right == 'on'")
    script = Script(
        environment={"left": "off", "right": "off"},
        goal="Both on.",
        completion_conditions=goal,
        actions=tuple(turned),
        rulebook=Rulebook(goal=goal, solution=("turn left on", "turn right on")),
    )
    world = GroundedEnvironment(script, slips=0.5)
    slipped_after_undoing = 0
    for seed in range(16):
        world.reset(seed)
        for action in ("turn left on", "turn left on", "turn left off", "turn left off", "turn right on"):
            world.act(action)
        last = world.turns[-1]
        slipped_after_undoing += isinstance(last, DungeonMasterTurn) and last.transient and last.progress == 0
        assert not [*rules.Replays()(Draft(script=script, turns=world.turns, finished=False))]
    assert slipped_after_undoing


def test_a_script_that_is_not_grounded_is_refused() -> None:
    with pytest.raises(RulebookError):
        GroundedEnvironment(SHED)


def test_a_players_message_is_read_as_in_a_play() -> None:
    world = GroundedEnvironment(SHED_GROUNDED, steps=4)
    same = GroundedEnvironment(SHED_GROUNDED, steps=4)
    assert world.reply(f"<think>Action: fly</think>Thought: so\nAction: {SOLUTION[0]}") == same.act(SOLUTION[0])
    assert world.reply("I give up") == (
        'There is no line that begins with "Action:"; write "Thought: ..." and then "Action: ...".'
    )
    assert (world.taken, world.mistakes) == (2, 1)
    assert "more than one" in world.reply("Action: a\nAction: b")
    world.reply("")
    assert world.done
    assert world.reply("") == OVER
    assert world.taken == 4
