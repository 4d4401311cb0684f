"""Which scripts are near-duplicates: copies in other words are found, other scripts are not, and order decides
alone."""

import unicodedata
from random import Random
from typing import Any

import pytest
from diversity_scripts import REWORDINGS, drawn, renamed, reworded, shuffled
from hypothesis import given, settings
from hypothesis import strategies as st

from refinesynth.diversity import NEAR, Novelty
from refinesynth.diversity.novelty import SIZE, sketch, words
from refinesynth.errors import InputError
from refinesynth.testing import scripts
from refinesynth.trajectory import ActionSpec, Script

SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=max(5, settings().max_examples // 4))


def similarity(one: Script, other: Script) -> float:
    novelty = Novelty(0.004)
    assert novelty.admit(one, "one") is None
    found = novelty.admit(other, "other")
    return 0.0 if found is None else found.similarity


@FEW
@given(SEEDS, st.booleans())
def test_a_copy_in_which_everything_is_called_otherwise_is_found(seed: int, grounded: bool) -> None:
    script = drawn(seed, grounded=grounded)
    novelty = Novelty()
    assert novelty.admit(script, "first") is None
    found = novelty.admit(renamed(script), "second")
    assert found is not None
    assert found.of == "first"
    assert found.world == 1


@FEW
@given(SEEDS, st.booleans(), st.sampled_from(REWORDINGS))
def test_a_copy_with_a_goal_in_other_words_is_found(seed: int, grounded: bool, how: str) -> None:
    script = drawn(seed, grounded=grounded)
    novelty = Novelty(0.8)
    novelty.admit(script, "first")
    assert novelty.admit(reworded(script, how), "second") is not None


@FEW
@given(SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_what_has_none_does_not_count(seed: int, rng: Random) -> None:
    script = drawn(seed)
    assert (sketch(script) == sketch(shuffled(script, rng))).all()


@FEW
@given(SEEDS)
def test_one_more_thing_or_action_changes_little_and_another_world_much(seed: int) -> None:
    script = drawn(seed)
    whistle = ActionSpec(name="whistle loudly", pattern="^whistle loudly$")
    more = script.model_copy(
        update={"actions": (*script.actions, whistle), "environment": {**script.environment, "umbrella": {"wet": True}}}
    )
    assert similarity(script, more) > NEAR
    empty = script.model_copy(update={"environment": {}})
    assert similarity(script, empty) < NEAR


@FEW
@given(st.lists(st.sampled_from([*range(6), "renamed 0", "renamed 3"]), max_size=12), st.floats(0.3, 1))
def test_the_order_decides_and_what_is_refused_is_forgotten(order: list[Any], threshold: float) -> None:
    known: dict[Any, Script] = {seed: drawn(seed) for seed in range(6)}
    known |= {"renamed 0": renamed(known[0]), "renamed 3": renamed(known[3])}
    once, again = Novelty(threshold), Novelty(threshold)
    answers = [once.admit(known[one], str(at)) for at, one in enumerate(order)]
    assert answers == [again.admit(known[one], str(at)) for at, one in enumerate(order)]
    # Without those that were refused, all others are answered as before.
    without = Novelty(threshold)
    for at, (one, answer) in enumerate(zip(order, answers, strict=True)):
        if answer is None:
            assert without.admit(known[one], str(at)) is None
    # Learning what was admitted is as good as having admitted it.
    learnt = Novelty(threshold)
    half = len(order) // 2
    learnt.learn((str(at), known[order[at]]) for at in range(half) if answers[at] is None)
    assert [learnt.admit(known[order[at]], str(at)) for at in range(half, len(order))] == answers[half:]


@FEW
@given(scripts(), st.floats(0.1, 1), st.floats(0.1, 1))
def test_whatever_a_script_holds_it_is_its_own_copy_and_takes_as_much_room(
    script: Script, one: float, other: float
) -> None:
    assert sketch(script).nbytes == SIZE
    low, high = Novelty(min(one, other)), Novelty(max(one, other))
    assert low.admit(script, "it") is None
    assert high.admit(script, "it") is None
    assert low.admit(script, "it") == high.admit(script, "it")
    found = high.admit(script, "again")
    assert found is not None
    assert (found.similarity, found.world, found.actions, found.goal) == (1, 1, 1, 1)


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


HOSTILE: list[dict[str, Any]] = [
    {"environment": {str(number): {"x": [number] * 50} for number in range(5_000)}},
    {"environment": deep(900)},
    {"environment": {"\ud800": "\udfff" * 100_000, "": "", "a": [[], {}, None, True, 1e308, -0.0]}},
    {"goal": "word " * 200_000},
    {"actions": (ActionSpec(name="{" * 10_000, pattern="a", parameters={"": ("",) * 10, "x": ("?",)}),)},
    {
        "actions": tuple(
            ActionSpec(name=f"a{n} {{x}}", pattern="a", parameters={"x": tuple(map(str, range(3_000)))})
            for n in range(200)
        )
    },
    {"actions": ()},
]


@pytest.mark.parametrize(
    "change", HOSTILE, ids=["many facts", "deep", "surrogates", "long goal", "braces", "many values", "no actions"]
)
def test_hostile_scripts_are_sketched_within_bounds(change: dict[str, Any]) -> None:
    script = drawn(0).model_copy(update=change)
    novelty = Novelty()
    assert novelty.admit(script, "hostile") is None
    assert novelty.admit(script, "again") is not None


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.1, float("nan")])
def test_a_threshold_is_a_share(threshold: float) -> None:
    with pytest.raises(InputError, match="more than 0 and at most 1"):
        Novelty(threshold)


def test_words_are_those_of_any_script_and_composition() -> None:
    assert words("拿起剑。Take it") == ["拿", "起", "剑", "take", "it"]
    assert words(unicodedata.normalize("NFD", "Café")) == words("café") == ["café"]
