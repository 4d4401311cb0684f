"""Splitting by script: no script is on both sides, and nothing changes its side when data is added."""

import pytest
from export_samples import ORIGIN, SCRIPT
from hypothesis import given
from hypothesis import strategies as st
from samples import dm, player
from samples import trajectory as sample

from refinesynth.errors import InputError
from refinesynth.export import group_of, one_side
from refinesynth.train.data import read_record, split
from refinesynth.trajectory import Branch, Trajectory


def trajectory(script: int | None, number: int, persona: int) -> Trajectory:
    made = SCRIPT.model_copy(update={"goal": f"Bring mug {script} to the table.", "environment": {"mug": script}})
    recorded = {} if script is None else {"script_id": made.digest, "branch": Branch(number=number, of=9)}
    return sample(
        player("take mug", f"Try {number}."),
        dm("Task Succeed"),
        script=made,
        id=f"{script}-{number}-{persona}",
        persona=f"Somebody with the number {persona}",
        origin=ORIGIN.model_copy(update=recorded),
    )


records = st.lists(
    st.builds(trajectory, st.none() | st.integers(0, 15), st.integers(0, 8), st.integers(0, 5)),
    max_size=40,
    unique_by=lambda one: one.id,
)
shares = st.floats(0.01, 0.99)


@given(records, shares, st.integers(0, 3))
def test_both_sides_together_are_all_and_share_no_script(given_: list[Trajectory], held_out: float, seed: int) -> None:
    train = list(one_side(given_, "train", held_out=held_out, seed=seed))
    held = list(one_side(given_, "held_out", held_out=held_out, seed=seed))
    assert sorted(one.id for one in (*train, *held)) == sorted(one.id for one in given_)
    assert {group_of(one) for one in train}.isdisjoint(group_of(one) for one in held)


@given(records, records, shares)
def test_a_script_stays_on_its_side_when_a_run_goes_on(
    before: list[Trajectory], after: list[Trajectory], held_out: float
) -> None:
    then = [one.id for one in one_side(before, "held_out", held_out=held_out)]
    now = [one.id for one in one_side([*before, *after], "held_out", held_out=held_out)]
    assert now[: len(then)] == then


@pytest.mark.parametrize("held_out", [0.0, 1.0, -0.5, 2.0, float("nan")])
def test_what_is_no_share_is_said_at_once(held_out: float) -> None:
    with pytest.raises(InputError, match="held_out is"):
        one_side([], "train", held_out=held_out)


@given(st.integers(2, 12), st.integers(1, 4), st.sampled_from([0.2, 0.5, 1]), st.integers(0, 3))
def test_training_holds_scripts_out_whole_whoever_plays_them(
    scripts: int, each: int, held_out: float, seed: int
) -> None:
    # Every trajectory of a script has a persona of its own, so that only the script links them.
    played = [trajectory(script, number, 100 * script + number) for script in range(scripts) for number in range(each)]
    found = split([read_record(one, one.id) for one in played], held_out, seed)
    sides = [{one.script for one in side} for side in found]
    assert all(sides)
    assert sides[0].isdisjoint(sides[1])
    assert len(sides[0] | sides[1]) == scripts
