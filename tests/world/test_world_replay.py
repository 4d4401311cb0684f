"""Rulings, what they say has changed, invariants, and replays that are the same everywhere."""

from hashlib import blake2b
from random import Random
from time import process_time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from test_shipped_rulebooks import world as shipped_world
from world_scripts import script_of

from refinesynth.trajectory import ActionSpec, Effect, EffectOp, MistakeKind, Script
from refinesynth.world import RulebookError, World, ground_actions, replay, world_of
from refinesynth.world.compiled_action import (
    MAX_CHANGE_BYTES,
    MAX_CHANGES,
    MAX_SEARCHED,
    mentions,
    state_changes,
    with_appeared,
)

json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "y"]) | st.just(1.0),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b/c", "~"]), inner, max_size=3),
    max_leaves=10,
)


@given(json_values, json_values)
def test_states_differ_exactly_where_they_say(before: JsonValue, after: JsonValue) -> None:
    changes = state_changes(before, after)
    assert (changes == ()) == (
        orjson.dumps(before, option=orjson.OPT_SORT_KEYS) == orjson.dumps(after, option=orjson.OPT_SORT_KEYS)
    )
    assert len({change.path for change in changes}) == len(changes) <= MAX_CHANGES


def test_changes_are_bounded_in_number_and_size() -> None:
    many: JsonValue = {str(number): number for number in range(1_000)}
    assert len(state_changes({}, many)) == MAX_CHANGES
    (change,) = state_changes({"a": "x" * 5_000}, {"a": list(range(3_000))})
    assert (change.path, change.before, change.after) == ("/a", "(a text of 5,000 characters)", "(a list of 3,000)")
    assert len(orjson.dumps([change.before, change.after])) < MAX_CHANGE_BYTES


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("You see the Milk.", "milk", True),
        ("Buttermilk", "milk", False),
        ("the milky way and milk", "milk", True),
        ("buttermilk " * 1_000 + "milk", "milk", True),
        ("(-" * 9_000, "(-" * 4_000 + "a", False),
        ("notes.txt is here", "notes.txt", True),
        ("notes.txts", "notes.txt", False),
        ("a b", "", False),
        ("a" * 100_000, "a" * 50_000, False),
    ],
)
def test_a_name_is_mentioned_as_whole_words(text: str, name: str, said: bool) -> None:
    assert mentions(text, name) is said


def test_names_are_looked_for_in_the_beginning_of_an_observation_only() -> None:
    long = "." * MAX_SEARCHED
    assert mentions(f"milk{long}", "milk")
    assert not mentions(f"{long}milk", "milk")
    assert with_appeared("Milk here.", ("milk", "tea")) == "Milk here. In sight: tea."
    assert with_appeared("So.", tuple(map(str, range(42)))).endswith("38, 39 and 2 other things.")


def _press(*effects: Effect) -> ActionSpec:
    return ActionSpec(name="press", pattern="press", effects=effects)


def test_an_action_that_breaks_an_invariant_is_the_rulebooks_fault_and_changes_nothing() -> None:
    more = Effect(op=EffectOp.ADD, path="/n", value=1)
    world = World(script_of(_press(more), invariants=("state.n <= 2", "state.n != 7")))
    allowed = world.step({"n": 1}, "press")
    assert (allowed.kind, allowed.state) == (None, {"n": 2})
    refused = world.step(allowed.state, "press")
    assert refused.kind is MistakeKind.LOGIC
    assert refused.state is allowed.state
    assert refused.problem == "'press' would break invariant 1: 'state.n <= 2': it does not hold"


@given(st.sets(st.integers(0, 4)))
def test_what_fails_by_chance_leaves_no_trace(house: tuple[World, JsonValue], transient: set[int]) -> None:
    world, state = house
    texts = ["go to kitchen", "take cup from kitchen", "go to sink", "clean cup", "go to sofa"]
    rulings = replay(_beginning_with(world, state), texts, transient)
    kept = [text for at, text in enumerate(texts) if at not in transient]
    without = replay(_beginning_with(world, state), kept)
    assert [ruling.state for at, ruling in enumerate(rulings) if at not in transient] == [
        ruling.state for ruling in without
    ]
    for at in transient:
        before = rulings[at - 1].state if at else state
        ruling = rulings[at]
        assert ruling.state == before
        assert (ruling.changed, ruling.appeared, ruling.progress) == ((), (), world.progress(before))
        again = world.step(before, texts[at])
        assert (ruling.kind, ruling.action, ruling.values) == (again.kind, again.action, again.values)
        assert ruling.text == ("Nothing happens." if again.kind is None else again.text)


def _beginning_with(world: World, state: JsonValue) -> World:
    assert isinstance(state, dict)
    return World(world.script.model_copy(update={"environment": state}))


def test_worlds_are_compiled_once_for_what_a_script_says(house: tuple[World, JsonValue]) -> None:
    script = house[0].script
    again = Script.from_json(script.to_json())
    assert again is not script
    assert world_of(again) is world_of(script)
    assert again.digest == script.digest
    other = script.model_copy(update={"goal": "Something else."})
    assert other.digest != script.digest
    assert world_of(other) is not world_of(script)
    with pytest.raises(RulebookError):
        world_of(script.imagined())


def test_a_digest_is_sixteen_digits_and_does_not_change_with_the_package(house: tuple[World, JsonValue]) -> None:
    assert house[0].script.digest == PINNED_SCRIPT


PINNED_SCRIPT = "47f3da767ab4bfbc"
PINNED = {"blocks": "d2ab53cf9aa86732", "household": "b705ea04a07a5472", "village_fair": "fa38e9a6f690a970"}


@pytest.mark.parametrize("name", PINNED)
def test_states_and_flags_are_the_same_on_every_machine_and_python(name: str) -> None:
    world, rng = shipped_world(name), Random(17)
    state: JsonValue = world.script.environment
    texts = [*ground_actions(world), "dance", "go to moon"]
    # Mostly what is possible, so that play goes somewhere.
    actions: list[str] = []
    for _ in range(300):
        found = [text for text in rng.sample(texts, 12) if world.step(state, text).kind is None]
        actions.append(rng.choice(found or texts))
        state = world.step(state, actions[-1]).state
    digest = blake2b(digest_size=8)
    for ruling in replay(world, actions, transient=range(0, 300, 11)):
        digest.update(
            orjson.dumps(
                [ruling.state, ruling.kind, ruling.text, ruling.done, ruling.progress, ruling.visible, ruling.problem]
            )
        )
        digest.update(orjson.dumps([[change.path, change.before, change.after] for change in ruling.changed]))
    assert digest.hexdigest() == PINNED[name]


@pytest.mark.parametrize(("part", "end"), [("a.", "b"), ("a", "")])
def test_long_names_that_repeat_themselves_are_looked_for_quickly(part: str, end: str) -> None:
    names = tuple(f"{part * length}{end}" for length in range(1_000, 1_100))
    text = f"b{part * 9_000}bb"
    began = process_time()
    assert not any(mentions(text, name) for name in names)
    assert process_time() - began < 1
