"""The shipped examples: that they are what the prompts ask for, differ from each other, and are drawn for each
episode."""

import re
from collections import Counter
from contextlib import suppress
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import SHED
from scripted import Scripted

from refinesynth import rules
from refinesynth.prompts import SHOWN, Kind, Prompts, drawn, shipped_examples
from refinesynth.prompts.data_blocks import encode
from refinesynth.roles import InvalidAnswer, Narrator, RulebookWriter, ScriptWriter
from refinesynth.trajectory import Draft, Persona, PlayerTurn, Script

PROMPTS = Prompts()
EXAMPLES = shipped_examples()


def by_name(folder: str) -> dict[str, Script]:
    found = (files("refinesynth.prompts") / "examples" / folder).iterdir()
    return {entry.name.removesuffix(".json"): Script.from_json(entry.read_bytes()) for entry in found}


SCRIPTS = by_name("scripts")
each = pytest.mark.parametrize("name", sorted(SCRIPTS))


def sentences(text: str) -> int:
    return len(re.findall(r"[.?!](?=\s|$)", text))


def values(script: Script) -> set[str]:
    return {value for action in script.actions for given in action.parameters.values() for value in given}


def test_there_are_enough_to_draw_from_and_to_compare_with() -> None:
    assert len(EXAMPLES.scripts) == len(SCRIPTS) >= 12
    assert len(EXAMPLES.trajectories) >= 3
    assert len(EXAMPLES.grounded) >= 2 * SHOWN
    assert len({draft.script.goal for draft in EXAMPLES.trajectories}) == len(EXAMPLES.trajectories)


@each
def test_a_script_passes_the_rules_and_is_what_the_prompt_asks_for(name: str) -> None:
    script = SCRIPTS[name]
    verdict = rules.verify(Draft(script=script, finished=False), rules.script())
    assert verdict.violations == ()
    assert 5 <= len(script.actions) <= 12
    assert 1 <= len(script.completion_conditions) <= 4
    assert 2 <= sentences(script.introduction) <= 4
    assert sentences(script.goal) == 1
    assert "hidden" in encode(script.environment)
    # Numbers and words that are settings are no things; what can be named is 10 to 30, places included.
    assert 9 <= len(values(script)) <= 30
    for action in script.actions:
        assert re.sub(r"\{\w+\}", "", action.name).islower()
        assert sentences(action.description) == 1


@pytest.mark.parametrize("played", EXAMPLES.trajectories, ids=lambda draft: draft.script.goal[:20])
def test_a_trajectory_passes_the_rules(played: Draft) -> None:
    for chain in (rules.strict(), rules.agentrefine()):
        assert rules.verify(played, chain).violations == ()
    assert isinstance(played.turns[0], PlayerTurn)
    kinds = {turn.mistake_kind for turn in played.turns if turn.role == "DM"} - {None}
    assert len(kinds) >= 2


@given(st.integers(0, 2**31), st.integers(0, 9), st.integers(1, 4))
def test_a_draw_is_some_of_them_each_once_and_always_the_same(seed: int, count: int, most: int) -> None:
    items = list(range(count))
    got = drawn(items, Kind.SCRIPTS, seed, most=most)
    assert got == drawn(items, Kind.SCRIPTS, seed, most=most)
    assert list(got) == items[got[0] : got[0] + most] if got else count == 0
    assert len(got) == min(most, count)


def test_few_sets_are_drawn_each_about_as_often_so_that_requests_begin_alike() -> None:
    items = "abcdefg"
    counts = Counter("".join(drawn(items, Kind.GROUNDED, seed)) for seed in range(600))
    assert counts.keys() == {"abc", "def", "efg"}
    assert 150 < min(counts.values()) < max(counts.values()) < 250
    assert {drawn(items, Kind.GROUNDED, seed) == drawn(items, Kind.SCRIPTS, seed) for seed in range(50)} == {
        True,
        False,
    }


async def instructions(writer: type[ScriptWriter | Narrator], seed: int) -> str:
    """What the system is told in the first request."""
    model = Scripted(["{}"])
    asked = writer(model.model, PROMPTS, seed=seed, answers=0)
    with suppress(InvalidAnswer):
        if isinstance(asked, ScriptWriter):
            await asked.write(Persona(text="A joiner."))
        else:
            await asked.tell(SHED)
    return model.asked[0].instructions or ""


@pytest.mark.parametrize("writer", [ScriptWriter, RulebookWriter, Narrator])
async def test_episodes_are_shown_different_examples_after_the_same_words(
    writer: type[ScriptWriter | Narrator],
) -> None:
    told = [await instructions(writer, seed) for seed in range(8)]
    assert told == [await instructions(writer, seed) for seed in range(8)]
    assert len(set(told)) > 1
    # What a provider's cache can keep for all.
    assert len({one.partition("\n<example")[0] for one in told}) == 1
    shown = "\n<example_script>\n" if writer is Narrator else "\n<example>\n"
    assert {one.count(shown) for one in told} == {1 if writer is Narrator else SHOWN}
