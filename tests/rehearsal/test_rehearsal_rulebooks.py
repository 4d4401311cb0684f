"""The ScriptWriter of grounded play: what is wanted, in steps, and each planted fault found by the stage that looks for
it."""

from collections.abc import Mapping
from typing import Any

import pytest
from grounded_stage import written
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from rehearsal_stage import PERFECT, always, codes

from refinesynth import rules
from refinesynth.rehearsal.scene import label_in, outline
from refinesynth.roles.script_writer import read_grounded
from refinesynth.settings.grounding import FEATURES
from refinesynth.trajectory import Draft, Script

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


def test_a_script_that_was_refused_is_mended_for_good_or_replaced() -> None:
    spoilt = always("bad_condition", "ambiguous_pattern")
    before = written(spoilt, seed=1)
    after = [written(spoilt, seed=seed, previous=before, violations=["It does not compile."]) for seed in range(20)]
    mended = [answer for answer in after if label_of(answer) == label_of(before)]
    assert 3 < len(mended) < 17
    assert all(bool(verdict(read_grounded(answer))) == (answer not in mended) for answer in after)


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


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fault", PLANTED)
def test_every_planted_fault_is_found_by_its_stage(fault: str, seed: int) -> None:
    assert PLANTED[fault] in verdict(read_grounded(written(always(fault), seed=seed)))


def test_an_answer_without_a_required_key_cannot_be_read() -> None:
    for seed in range(8):
        with pytest.raises((ValidationError, ValueError)):
            read_grounded(written(always("missing_keys"), seed=seed))
