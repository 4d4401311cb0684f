"""The ScriptWriter of grounded play: what is wanted, in steps, and each planted fault found by the stage that looks for it."""

from collections.abc import Mapping
from typing import Any

import pytest
from grounded_stage import always, written
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from rehearsal_stage import PERFECT, STRANGE, codes

from refinesynth import rules
from refinesynth.backends.rehearsal import Faults, Rehearsal
from refinesynth.backends.rehearsal.scene import label_in, outline
from refinesynth.mix import FEATURES
from refinesynth.roles.answers import GOAL, GROUNDED_SCRIPT, WORLD
from refinesynth.roles.rulebooks import read_goal, read_grounded, read_world, world_part
from refinesynth.trajectory import Draft, Script
from refinesynth.world import RulebookError, World

FEW = settings(max_examples=15)

SEEDS = st.integers(0, 2**32)


def verdict(script: Script) -> list[str]:
    return codes(rules.verify(Draft(script=script), rules.grounded_script((4, 12))).violations)


def label_of(answer: Mapping[str, Any]) -> str:
    label = label_in(str(answer["introduction"]))
    assert label is not None
    return label


@pytest.mark.parametrize("seed", range(5))
def test_without_faults_every_script_passes_at_once(seed: int) -> None:
    script = read_grounded(written(PERFECT, "a keeper of clocks", seed=seed))
    assert verdict(script) == []
    assert script.introduction.endswith("the following person: a keeper of clocks")


@given(SEEDS)
@FEW
def test_answers_have_the_keys_of_their_schema(seed: int) -> None:
    world = written(PERFECT, wanted={"step": "world"}, seed=seed)
    goal = written(PERFECT, wanted={"step": "goal"}, world=world, reachable={}, seed=seed)
    whole = written(PERFECT, seed=seed)
    for answer, schema in ((whole, GROUNDED_SCRIPT), (world, WORLD), (goal, GOAL)):
        assert set(answer) == set(schema["properties"])


@given(SEEDS)
@FEW
def test_two_steps_come_to_one_script(seed: int) -> None:
    world = read_world(written(PERFECT, wanted={"step": "world"}, seed=seed))
    shown = world_part(world)
    script = read_goal(written(PERFECT, wanted={"step": "goal"}, world=shown, reachable={}, seed=seed + 1), world)
    label = label_in(script.introduction)
    assert label is not None
    assert script.rulebook is not None
    assert script.rulebook.solution
    state: Any = script.environment
    for action in script.rulebook.solution:
        state = World(script).step(state, action).state
    assert World(script).done(state)


@given(st.sets(st.sampled_from(FEATURES)), SEEDS)
@FEW
def test_wanted_features_are_there(wanted: set[str], seed: int) -> None:
    answer = written(PERFECT, wanted={"features": sorted(wanted)}, seed=seed)
    assert wanted <= outline(label_of(answer)).features


@pytest.mark.parametrize("band", [(5, 5), (6, 6), (8, 9)])
def test_a_wanted_length_is_looked_for(band: tuple[int, int]) -> None:
    lengths: list[int] = []
    for seed in range(4):
        script = read_grounded(written(PERFECT, wanted={"actions": band}, seed=seed))
        assert script.rulebook is not None
        lengths.append(len(script.rulebook.solution))
    assert sum(band[0] <= length <= band[1] for length in lengths) >= 3, lengths


@given(
    st.sampled_from(["features", "actions", "step"]), st.none() | st.text() | st.lists(st.integers() | st.text()), SEEDS
)
@FEW
def test_whatever_is_wanted_there_is_a_script(name: str, value: object, seed: int) -> None:
    assert read_grounded(written(PERFECT, wanted={name: value}, seed=seed)).grounded


def test_a_script_that_was_refused_is_mended_or_replaced() -> None:
    before = written(always("bad_condition"), seed=1)
    after = [written(PERFECT, seed=seed, previous=before, violations=["It does not compile."]) for seed in range(20)]
    for answer in after:
        World(read_grounded(answer))
    assert 3 < sum(label_of(answer) == label_of(before) for answer in after) < 17


def test_a_goal_for_a_strange_world_is_about_what_is_known_to_change() -> None:
    world = STRANGE.model_dump(mode="json", exclude={"goal", "completion_conditions"})
    answer = written(PERFECT, wanted={"step": "goal"}, world=world, reachable={"changes": {"/ship/speed": [0, 5]}})
    script = read_goal(answer, STRANGE)
    assert script.rulebook is not None
    assert script.rulebook.goal == ('state["ship"]["speed"] == 5',)
    nothings: tuple[object, ...] = (None, 3, {"changes": 5}, {"changes": {"/ship": [1]}})
    for nothing in nothings:
        answer = written(PERFECT, wanted={"step": "goal"}, world=world, reachable=nothing)
        assert read_goal(answer, STRANGE).goal


PLANTED = {
    "bad_condition": "does_not_compile",
    "misaligned_goal": "goal_does_not_fit",
    "dangling_pointer": "does_not_run",
    "met_goal": "already_done",
    "wrong_solution": "solution_fails",
    "unreachable_goal": "unsolvable",
    "useless_action": "never_usable",
    "ambiguous_pattern": "ambiguous",
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fault", PLANTED)
def test_every_planted_fault_is_found_by_its_stage(fault: str, seed: int) -> None:
    assert PLANTED[fault] in verdict(read_grounded(written(always(fault), seed=seed)))


@given(SEEDS)
@FEW
def test_a_bad_condition_never_compiles(seed: int) -> None:
    with pytest.raises(RulebookError):
        World(read_grounded(written(always("bad_condition"), seed=seed)))


@given(SEEDS)
@FEW
def test_a_wrong_solution_does_not_reach_the_goal(seed: int) -> None:
    script = read_grounded(written(always("wrong_solution"), seed=seed))
    assert script.rulebook is not None
    world = World(script)
    state: Any = script.environment
    for action in script.rulebook.solution:
        state = world.step(state, action).state
    assert not world.done(state)


@given(SEEDS)
@FEW
def test_a_goal_that_is_met_holds_at_the_beginning(seed: int) -> None:
    script = read_grounded(written(always("met_goal"), seed=seed))
    assert World(script).done(script.environment)  # pyright: ignore[reportArgumentType] - JSON


@pytest.mark.parametrize("fault", ["bad_condition", "dangling_pointer", "useless_action"])
def test_laws_are_spoilt_in_the_first_of_two_steps_too(fault: str) -> None:
    def world(rehearsal: Rehearsal) -> Script:
        return read_world(written(rehearsal, wanted={"step": "world"}, seed=2))

    assert world(always(fault)).actions != world(PERFECT).actions


@pytest.mark.parametrize("step", ["all", "world", "goal"])
def test_an_answer_without_a_required_key_cannot_be_read(step: str) -> None:
    world = written(PERFECT, wanted={"step": "world"})
    whole = read_world(world)
    for seed in range(8):
        answer = written(always("missing_keys"), wanted={"step": step}, world=world, reachable={}, seed=seed)
        with pytest.raises((ValidationError, ValueError)):
            _read(step, answer, whole)


def _read(step: str, answer: dict[str, Any], world: Script) -> Script:
    if step == "goal":
        return read_goal(answer, world)
    return read_grounded(answer) if step == "all" else read_world(answer)


def test_by_default_most_scripts_are_as_they_should_be() -> None:
    answers = [written(Rehearsal(Faults().model_copy(update={"invalid_json": 0.0})), seed=seed) for seed in range(60)]
    perfect = [written(PERFECT, seed=seed) for seed in range(60)]
    spoilt = sum(answer != right for answer, right in zip(answers, perfect, strict=True))
    assert 2 < spoilt < 30
