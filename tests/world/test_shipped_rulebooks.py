"""The grounded scripts that come with the package: the language's own examples must be right in every respect."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any, cast

import orjson
import pytest
from pydantic import JsonValue

from refinesynth import rules
from refinesynth.rules.observation_words import judge_words
from refinesynth.trajectory import Draft, MistakeKind, Script
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


def after(name: str, *actions: str, state: JsonValue = None) -> Any:
    """The state after actions, all of which must work."""
    state = beginning(name) if state is None else state
    for action in actions:
        ruling = world(name).step(state, action)
        assert ruling.kind is None, (action, ruling.text)
        state = ruling.state
    return state


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


@shipped
def test_a_file_holds_what_its_script_writes_and_is_small(name: str) -> None:
    script = Script.from_json(read(name))
    assert orjson.loads(read(name)) == orjson.loads(script.to_json())
    assert len(script.to_json()) < 9_000


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
def test_what_is_refused_changes_nothing_and_is_told(name: str) -> None:
    for state, _, ruling in walk(name):
        if ruling.kind is not None:
            assert ruling.state is state
            assert ruling.text
            assert not ruling.changed


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


@shipped
def test_something_that_can_be_named_plays_no_part_in_the_solution(name: str) -> None:
    unused = {value for value in world(name).names if not any(value in action for action in solution(name))}
    assert unused


def seen_in_the_house(state: Any) -> Iterator[str]:
    yield from state["rooms"]
    yield from state["you"]["holding"]
    for place in state["rooms"][state["you"]["room"]]:
        yield place
        if state["furniture"][place]["open"]:
            yield from state["furniture"][place]["things"]


def seen_on_the_table(state: Any) -> Iterator[str]:
    yield from state["on"]
    if state["box"]["open"]:
        yield from state["box"]["blocks"]


def seen_at_the_terminal(state: Any) -> Iterator[str]:
    here = state["folders"][state["at"]]
    yield from filter(None, (state["at"], here["parent"], *here["folders"], *here["files"]))


@pytest.mark.parametrize(
    ("name", "seen"),
    [("household", seen_in_the_house), ("blocks", seen_on_the_table), ("files", seen_at_the_terminal)],
)
def test_what_is_closed_or_elsewhere_is_hidden(name: str, seen: Any) -> None:
    hidden = 0
    for _, _, ruling in walk(name):
        assert set(ruling.visible) == set(seen(ruling.state))
        hidden += len(world(name).names - set(ruling.visible))
    assert hidden > STEPS // 2


@pytest.mark.parametrize(
    ("name", "before", "there", "back"),
    [
        ("household", ("go to kitchen",), "take spoon from sink", "put spoon in sink"),
        ("household", (), "take supper card from writing desk", "put supper card on writing desk"),
        ("household", ("go to kitchen",), "open cupboard", "close cupboard"),
        ("household", (), "go to kitchen", "go to study"),
        ("blocks", (), "pick up blue block", "put down blue block"),
        ("blocks", (), "unstack green block from red block", "stack green block on red block"),
        ("files", (), "cd covers", "cd .."),
        ("files", ("cd covers", "mv cover-a.txt old", "cd old"), "mv cover-a.txt covers", "cd .."),
    ],
)
def test_what_is_done_can_be_undone(name: str, before: tuple[str, ...], there: str, back: str) -> None:
    begun = after(name, *before)
    if there.startswith("mv"):
        assert after(name, there, back, state=begun) == after(name, "cd covers")
    else:
        assert after(name, there, state=begun) != begun
        assert after(name, there, back, state=begun) == begun


def test_a_copy_leaves_the_original_and_a_removal_takes_one_file_alone() -> None:
    begun = after("files", "cd covers")
    copied = after("files", "cp cover-a.txt old", state=begun)
    assert copied["folders"]["old"]["files"] == {"cover-a.txt": "A heron on blue."}
    assert copied["folders"]["covers"] == begun["folders"]["covers"]
    removed = after("files", "rm cover-a.txt", state=copied)
    assert removed["folders"]["old"] == copied["folders"]["old"]
    assert removed["folders"]["covers"]["files"].keys() == {"cover-b.txt", "draft.lock"}


@pytest.mark.parametrize(
    ("name", "before", "mistake"),
    [
        ("household", ("go to kitchen", "open cupboard", "take plum jar from cupboard"), "heat plum jar"),
        ("files", ("cd covers",), "rm cover-b.txt"),
    ],
)
def test_a_goal_can_be_lost_for_good(name: str, before: tuple[str, ...], mistake: str) -> None:
    place, rng = world(name), Random(3)
    actions, second = tuple(ground_actions(place)), place.goal[1]
    # The longer way: whatever is played first, the solution's end is tried from there.
    for begun, lost in ((after(name, *before), False), (after(name, *before, mistake), True)):
        held = False
        for _ in range(30):
            state = begun
            for action in (*(rng.choice(actions) for _ in range(5)), *solution(name)[-8:]):
                state = place.step(state, action).state
                held |= second.answer(state, {}) is True
        assert held is not lost


@pytest.mark.parametrize(
    ("name", "before", "action", "kind", "text"),
    [
        ("household", (), "examine supper card", MistakeKind.LOGIC, "The writing on the supper card is too faint in this light."),
        ("household", (), "open cupboard", MistakeKind.PLACE, "There is no cupboard in the study."),
        ("household", ("go to kitchen", "take spoon from sink"), "put spoon in fridge", MistakeKind.LOGIC, "The fridge is closed."),
        ("household", ("take supper card from writing desk", "go to kitchen"), "clean supper card", MistakeKind.PARAMETER,
         "The supper card needs no washing."),
        ("blocks", (), "pick up red block", MistakeKind.LOGIC, "The red block does not stand on the table."),
        ("blocks", (), "pick up white block", MistakeKind.PLACE, "You see no white block."),
        ("blocks", ("pick up blue block",), "open box", MistakeKind.LOGIC, "Your hand holds the blue block already."),
        ("files", (), "cat cover-b.txt", MistakeKind.PLACE, "cover-b.txt: no such file in desk."),
        ("files", ("cd covers",), "cp cover-a.txt signed", MistakeKind.PLACE, "signed: no such folder from covers."),
    ],
)  # fmt: skip
def test_a_mistake_is_of_its_kind_and_said_in_words(
    name: str, before: tuple[str, ...], action: str, kind: MistakeKind, text: str
) -> None:
    ruling = world(name).step(after(name, *before), action)
    assert (ruling.kind, ruling.text) == (kind, text)
