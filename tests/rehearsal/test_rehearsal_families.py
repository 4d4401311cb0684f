"""The families: every scene can be solved, is written so that its script passes, and can be got wrong in every
way."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth import rules
from refinesynth.rehearsal.families import CLASSIC, FAMILIES
from refinesynth.rehearsal.injected_mistakes import draw_mistake
from refinesynth.rehearsal.replayed_history import Exchange, History, Position, initial_position
from refinesynth.rehearsal.scene import SCENES, draw_scene, label_in, random_label
from refinesynth.trajectory import Draft, MistakeKind

LABELS = st.builds("{}-{}".format, st.sampled_from(sorted(FAMILIES)), st.integers(0, SCENES - 1))


def along(position: Position) -> list[Position]:
    """The positions of a play that follows the plan."""
    positions = [position]
    for action in position.plan:
        positions.append(positions[-1].after(action))
    return positions


@given(LABELS)
def test_scripts_pass_the_script_rules(label: str) -> None:
    found = rules.verify(Draft(script=draw_scene(label).script), rules.script())
    assert found.accepted, found.violations


@pytest.mark.long
@given(LABELS)
def test_nothing_in_a_rulebook_is_at_fault(label: str) -> None:
    for position in along(initial_position(label)):
        for action in position.scene.all_actions():
            ruling = position.scene.world.step(position.state, action)
            assert ruling.problem is None, (action, ruling.problem)
            assert ruling.kind is not MistakeKind.PARAMETER
            if ruling.kind is None:
                assert "{" not in ruling.text


@given(LABELS, st.integers().map(Random))
def test_every_kind_of_mistake_is_possible_before_every_step(label: str, rng: Random) -> None:
    position = initial_position(label)
    history = History.of(position, ())
    for action in position.plan:
        for kind in MistakeKind:
            made = draw_mistake(rng, history, kind)
            assert made is not None
            assert kind is not MistakeKind.PARAMETER or made.kind is kind
            assert history.position.ruling(made.action).kind is made.kind
        history = history.with_exchange(Exchange(action, "Good.", refused=False))


@given(LABELS)
def test_a_label_survives_any_text_around_it(label: str) -> None:
    script = draw_scene(label).script
    assert label_in(script.introduction) == label
    assert label_in(f"Welcome.\n{script.introduction}\nScene office-1. {script.goal}") == label


@pytest.mark.parametrize("families", [CLASSIC, ("panel",), tuple(FAMILIES)])
def test_labels_are_drawn_from_the_chosen_families(families: tuple[str, ...]) -> None:
    drawn = {random_label(Random(seed), families).rpartition("-")[0] for seed in range(100)}
    assert drawn == set(families)


def test_the_default_families_stay_as_they_are() -> None:
    """A change here changes all runs of the rehearsal, among them those that are resumed."""
    assert [random_label(Random(seed)) for seed in range(3)] == [
        "warehouse-56448162",
        "files-76397250",
        "household-12292302",
    ]
