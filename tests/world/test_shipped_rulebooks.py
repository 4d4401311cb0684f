"""The grounded scripts that come with the package: the language's own examples must be right in every respect."""

from functools import cache
from importlib.resources import files
from random import Random
from typing import Any, cast

import pytest
from pydantic import JsonValue

from refinesynth import rules
from refinesynth.rules.observation_words import judge_words
from refinesynth.trajectory import Draft, Script
from refinesynth.world import Ruling, World, ground_actions, mentions, replay

NAMES = ("blocks", "files", "household", "pump_station", "services", "village_fair")
STEPS = 2_000

shipped = pytest.mark.parametrize("name", NAMES)


def read(name: str) -> bytes:
    return (files("refinesynth.prompts") / "examples" / "grounded" / f"{name}.json").read_bytes()


@cache
def world(name: str) -> World:
    return World(Script.from_json(read(name)))


def beginning(name: str) -> JsonValue:
    return cast("JsonValue", world(name).script.environment)


def solution(name: str) -> tuple[str, ...]:
    rulebook = world(name).script.rulebook
    assert rulebook is not None
    return rulebook.solution


@cache
def walk(name: str) -> tuple[tuple[Any, str, Ruling], ...]:
    """A long random walk: the state before each action, the action, the ruling. Half of the actions are possible
    ones."""
    rng, place, steps = Random(20), world(name), list[tuple[Any, str, Ruling]]()
    actions = tuple(ground_actions(place))
    state = beginning(name)
    for number in range(STEPS):
        if number % 100 == 0:
            state = beginning(name)
        tried = [rng.choice(actions) for _ in range(1 if rng.random() < 0.5 else 12)]
        rulings = [(action, place.step(state, action)) for action in tried]
        action, ruling = next((each for each in rulings if each[1].kind is None), rulings[0])
        steps.append((state, action, ruling))
        state = ruling.state
    return tuple(steps)


@pytest.mark.long
@shipped
def test_the_script_satisfies_the_rules_for_scripts(name: str) -> None:
    verdict = rules.verify(Draft(script=world(name).script), rules.grounded_script(difficulty=(6, 12)))
    assert verdict.accepted, verdict.violations


@shipped
def test_the_solution_reaches_the_goal_with_its_last_action_and_progress_on_the_way(name: str) -> None:
    rulings = replay(world(name), solution(name))
    assert [ruling.kind for ruling in rulings] == [None] * len(rulings)
    assert [ruling.done for ruling in rulings] == [False] * (len(rulings) - 1) + [True]
    assert 6 <= len(rulings) <= 12
    shares = [ruling.progress for ruling in rulings]
    assert shares == sorted(shares)
    assert len(set(shares)) > 2


@shipped
def test_no_action_of_the_solution_can_be_left_out(name: str) -> None:
    actions = solution(name)
    for at in range(len(actions)):
        assert not replay(world(name), actions[:at] + actions[at + 1 :])[-1].done


@pytest.mark.long
@shipped
def test_random_play_meets_no_fault_and_breaks_no_invariant(name: str) -> None:
    assert [(action, ruling.problem) for _, action, ruling in walk(name) if ruling.problem] == []
    for _, _, ruling in walk(name):
        assert [*world(name).broken_invariants(ruling.state)] == []


@shipped
def test_every_action_is_possible_and_every_requirement_can_fail(name: str) -> None:
    worked = {ruling.action for _, _, ruling in walk(name) if ruling.kind is None}
    assert worked == {action.name for action in world(name).script.actions}
    told = {(ruling.action, ruling.kind) for _, _, ruling in walk(name) if ruling.kind is not None}
    asked = {(spec.name, each.kind) for spec in world(name).script.actions for each in spec.requires}
    assert told == asked


@shipped
def test_the_worlds_own_words_name_nothing_hidden(name: str) -> None:
    for state, action, ruling in walk(name):
        before = world(name).visible(state)
        assert judge_words(world(name), ruling, before, ruling.text, action=action) == []
        said = (*before, *ruling.visible, action, world(name).script.introduction, world(name).script.goal)
        known = {each for each in world(name).names if any(mentions(text, each) for text in said)}
        named = {each for each in world(name).names - known if mentions(ruling.text, each)}
        assert not named or ruling.text in texts_in(ruling.state), (action, ruling.text)


def texts_in(value: JsonValue) -> list[str]:
    """Texts that the world quotes: labels, mails."""
    if isinstance(value, dict | list):
        return [text for item in (value.values() if isinstance(value, dict) else value) for text in texts_in(item)]
    return [value] if isinstance(value, str) else []
