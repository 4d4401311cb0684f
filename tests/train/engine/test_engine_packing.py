"""Packs and steps: nothing lost, nothing twice, nothing over the capacity, the same for all ranks."""

import itertools
from collections import Counter
from typing import Any

import engine_toys as toys
import pytest
from hypothesis import given
from hypothesis import strategies as st
from train_values import a_config

from refinesynth.train.engine.schedule import Schedule, balance, pack_best_fit

pytestmark = pytest.mark.train


def scheduled(store: toys.TokenStore, *, capacity: int, ranks: int = 1, **fields: Any) -> Schedule:
    config = a_config(max_length=capacity, **{"epochs": 1, "seed": 0, **fields})
    return Schedule.from_config(store, config, ranks=ranks)


LENGTHS = st.lists(st.integers(1, 40), max_size=30)


@pytest.mark.representative
@given(LENGTHS, st.integers(40, 90))
def test_packs_hold_every_conversation_once_and_never_too_much(lengths: list[int], capacity: int):
    packs = pack_best_fit(lengths, capacity)
    assert sorted(k for pack in packs for k in pack) == list(range(len(lengths)))
    assert all(pack and sum(lengths[k] for k in pack) <= capacity for pack in packs)
    # Any two packs together would not fit into one, or best fit would not have opened the second.
    loads = sorted(sum(lengths[k] for k in pack) for pack in packs)
    assert len(loads) < 2 or loads[0] + loads[1] > capacity


@given(LENGTHS, st.integers(40, 90), st.integers(0, 5))
def test_balanced_packs_are_as_many_as_asked_for_and_hold_the_same(lengths: list[int], capacity: int, more: int):
    number = max(1, len(pack_best_fit(lengths, capacity)) + more)
    packs = balance(lengths, capacity, number)
    assert len(packs) == number
    assert sorted(k for pack in packs for k in pack) == list(range(len(lengths)))
    loads = [sum(lengths[k] for k in pack) for pack in packs]
    assert max(loads) <= capacity
    assert loads == sorted(loads, reverse=True)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("ranks", [1, 3])
def test_each_conversation_comes_once_in_an_epoch_and_ranks_do_equal_passes(ranks: int, packed: bool):
    store = toys.store(23)
    schedule = scheduled(store, batch_size=5, ranks=ranks, capacity=60, seed=4, packing=packed, epochs=3)
    assert (schedule.steps_per_epoch, schedule.steps) == (5, 15)
    for epoch in range(3):
        seen: Counter[int] = Counter()
        for number in range(schedule.steps_per_epoch):
            step = schedule.step(epoch, number)
            assert all(len(micro) == ranks for micro in step.packs)
            inside = [k for micro in step.packs for pack in micro for k in pack]
            assert sorted(inside) == sorted(schedule.conversations(epoch, number).tolist())
            assert step.trained == sum(store[k].trained for k in inside)
            seen.update(inside)
        assert seen == Counter(range(23))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_has_as_many_micro_batches_as_its_conversations_need(ranks: int):
    store = toys.store(40, seed=2)
    schedule = scheduled(store, batch_size=8, ranks=ranks, capacity=60, epochs=2)
    for epoch, number in itertools.product(range(2), range(schedule.steps_per_epoch)):
        lengths = [int(store.lengths[k]) for k in schedule.conversations(epoch, number)]
        packs = schedule.step(epoch, number).packs
        assert len(packs) == -(-len(pack_best_fit(lengths, 60)) // ranks)
        assert sum(not pack for micro in packs for pack in micro) < ranks


def test_epochs_differ_and_a_seed_gives_the_same_order():
    store = toys.store(30)
    one, same, other = (scheduled(store, batch_size=6, capacity=60, seed=seed, epochs=2) for seed in (1, 1, 2))
    assert [one.step(e, s) for e in (0, 1) for s in range(5)] == [same.step(e, s) for e in (0, 1) for s in range(5)]
    assert one.conversations(0, 0).tolist() != one.conversations(1, 0).tolist()
    assert one.conversations(0, 0).tolist() != other.conversations(0, 0).tolist()


@pytest.mark.parametrize(
    ("epochs", "max_steps", "steps"), [(1.0, None, 10), (0.1, None, 1), (0.01, None, 1), (2.5, None, 25), (1.0, 7, 7)]
)
def test_steps(epochs: float, max_steps: int | None, steps: int):
    schedule = scheduled(toys.store(30), batch_size=3, capacity=60, epochs=epochs, max_steps=max_steps)
    assert schedule.steps == steps


def test_a_conversation_longer_than_the_capacity_raises_it():
    store = toys.store(8)
    schedule = scheduled(store, batch_size=4, capacity=1)
    assert schedule.capacity == max(store.lengths)


def test_the_first_token_of_a_conversation_is_never_counted():
    one = toys.example(1)
    one.labels[:] = 1
    schedule = scheduled(toys.TokenStore([one]), batch_size=1, capacity=99)
    assert schedule.step(0, 0).trained == len(one) - 1
