"""What is held out is whole personas and environments, whatever the order."""

import random

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.errors import InputError
from refinesynth.train.data import split
from refinesynth.train.labelled_conversation import Conversation, Turn


def one(number: int, group: str, environment: str = "", task: str | None = None) -> Conversation:
    talk = tiny.talk("c")
    first = Turn("user", task or f"Task {number}.", None)
    return Conversation(f"t{number}", group, (first, *talk.turns[1:]), f"x:{number}", environment)


worlds = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)), min_size=2, max_size=30).map(
    lambda keys: [one(k, f"p{p}", f"e{e}" if e else "", f"task {t}") for k, (p, e, t) in enumerate(keys)]
)


@given(worlds, st.sampled_from([0.1, 0.5, 1, 3]), st.integers(0, 3))
def test_the_sides_share_no_persona_no_environment_and_no_task(
    conversations: list[Conversation], held_out: float, seed: int
) -> None:
    try:
        train, held = split(conversations, held_out, seed)
    except InputError:
        return
    assert train
    assert held
    assert sorted([*train, *held], key=lambda c: c.id) == sorted(conversations, key=lambda c: c.id)
    for sides in (
        [{c.group for c in side} for side in (train, held)],
        [{c.environment or c.id for c in side} for side in (train, held)],
        [{c.turns[0].content for c in side} for side in (train, held)],
    ):
        assert sides[0].isdisjoint(sides[1])


@given(worlds, st.randoms(use_true_random=False))
def test_the_split_does_not_depend_on_the_order(conversations: list[Conversation], order: random.Random) -> None:
    shuffled = list(conversations)
    order.shuffle(shuffled)
    try:
        held = split(conversations, 0.3, 1).held_out
    except InputError:
        with pytest.raises(InputError):
            split(shuffled, 0.3, 1)
        return
    assert {c.id for c in held} == {c.id for c in split(shuffled, 0.3, 1).held_out}


def test_a_share_and_a_number_count_groups_and_the_seed_chooses() -> None:
    many = [one(k, f"p{k // 2}") for k in range(200)]
    assert len({c.group for c in split(many, 0.1, 0).held_out}) == 10
    assert len({c.group for c in split(many, 7, 0).held_out}) == 7
    assert len({c.group for c in split(many, 0.001, 0).held_out}) == 1
    assert split(many, 7, 0) == split(many, 7, 0)
    assert split(many, 7, 0) != split(many, 7, 1)
    train, held = split(many, 7, 0)
    assert [c.id for c in train] == [c.id for c in many if c in train]
    assert [c.id for c in held] == [c.id for c in many if c in held]


@pytest.mark.parametrize("held_out", [0.5, 1, 5])
def test_more_than_there_is_cannot_be_held_out(held_out: float) -> None:
    with pytest.raises(InputError, match="leaves none to train on"):
        split([one(k, "p") for k in range(3)], held_out)
