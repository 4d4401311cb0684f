"""The DungeonMaster of an executed world: its words agree with the ruling, and each planted fault is one that the rules
find."""

from collections.abc import Iterator

import pytest
from grounded_stage import LABELS, grounded, problems, ruled_of, worded
from hypothesis import given, settings
from pydantic import JsonValue
from rehearsal_stage import PERFECT, SEEDS, always

from refinesynth.episode.ruled_action import FAILURE_TEXTS, RuledAction
from refinesynth.rehearsal.families import FAMILIES
from refinesynth.rehearsal.scene import GROUNDED, draw_scene, outline
from refinesynth.world import World, world_of

FEW = settings(max_examples=12)


def rulings(label: str, *, others: int = 12) -> Iterator[tuple[World, RuledAction]]:
    """Rulings on the way to the goal: the right action, others, and the right one failing for a moment."""
    scene = draw_scene(label)
    script = scene.grounded
    assert script.rulebook is not None
    world = world_of(script)
    state: JsonValue = script.environment
    actions = list(scene.all_actions())
    for number, action in enumerate(script.rulebook.solution):
        yield world, ruled_of(world, state, action, excuse=FAILURE_TEXTS[number % len(FAILURE_TEXTS)])
        for other in (*actions[number::others][:4], "dance"):
            yield world, ruled_of(world, state, other)
        ruled = ruled_of(world, state, action)
        yield world, ruled
        state = ruled.ruling.state


@pytest.mark.long
@given(LABELS, SEEDS)
@FEW
def test_words_without_faults_agree_with_the_ruling(label: str, seed: int) -> None:
    script = grounded(label)
    for world, ruled in rulings(label):
        said = worded(PERFECT, script, ruled, seed=seed)
        assert problems(world, ruled, said) == []
        if not ruled.transient:
            assert ruled.ruling.text in said


@pytest.mark.long
@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("fault", ["contradiction", "said_success", "ignored_failure"])
def test_what_contradicts_the_ruling_is_found(fault: str, family: str) -> None:
    label, found, struck = f"{family}-5{GROUNDED}", 0, 0
    for world, ruled in rulings(label):
        if (fault == "ignored_failure") != ruled.transient and fault != "said_success":
            continue
        struck += 1
        found += bool(problems(world, ruled, worded(always(fault), grounded(label), ruled)))
    assert found == struck > 3


@pytest.mark.long
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_cannot_be_seen_is_found_where_it_is_named(family: str) -> None:
    numbers = (number for number in range(100) if "hidden" in outline(f"{family}-{number}{GROUNDED}").features)
    label = f"{family}-{next(numbers)}{GROUNDED}"
    struck = 0
    for world, ruled in rulings(label):
        said = worded(always("unseen_name"), grounded(label), ruled)
        _, named, rest = said.partition(" Not far off there is the ")
        # What was visible before the action may be named, and the DungeonMaster is not told of it.
        if named and rest.removesuffix(".") not in ruled.visible_before:
            struck += 1
            assert problems(world, ruled, said), said
        else:
            assert not problems(world, ruled, said), said
    assert struck > 3
