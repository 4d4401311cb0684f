"""The grounded form of the families: the same laws, what is hidden is not told, and every script passes its
checks."""

from hashlib import sha256
from random import Random

import orjson
import pytest
from grounded_stage import LABELS, grounded
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth import rules
from refinesynth.rehearsal.families import CLASSIC, FAMILIES
from refinesynth.rehearsal.scene import GROUNDED, draw_scene, outline
from refinesynth.trajectory import Draft
from refinesynth.world import check_solvability, world_of

FEW = settings(max_examples=20)
"""Drawing a scene and solving it takes some hundredths of a second."""


@pytest.mark.parametrize("label", [f"{family}-{number}{GROUNDED}" for family in sorted(FAMILIES) for number in (1, 2)])
def test_grounded_scripts_pass_the_rules(label: str) -> None:
    found = rules.verify(Draft(script=grounded(label)), rules.grounded_script((4, 12)))
    assert found.accepted, found.violations


@given(LABELS)
@FEW
def test_the_solution_reaches_the_goal_in_four_to_twelve_steps(label: str) -> None:
    script = grounded(label)
    assert script.rulebook is not None
    world = world_of(script)
    state: JsonValue = script.environment
    assert not world.done(state)
    assert 4 <= len(script.rulebook.solution) <= 12
    for action in script.rulebook.solution:
        ruling = world.step(state, action)
        assert ruling.kind is None
        state = ruling.state
    assert world.done(state)


@given(LABELS, st.randoms(use_true_random=False))
@FEW
def test_what_the_grounded_form_adds_changes_no_law(label: str, rng: Random) -> None:
    """The same actions in a world that is imagined and in its grounded form are ruled on alike."""
    scene = draw_scene(label)
    plain = draw_scene(label.removesuffix(GROUNDED)).world
    state: JsonValue = scene.plot.state
    actions = list(scene.all_actions())
    for _ in range(25):
        action = rng.choice((rng.choice(scene.useful), rng.choice(actions)))
        ruling, imagined = scene.world.step(state, action), plain.step(state, action)
        assert ruling.problem is None
        assert (ruling.kind, ruling.action, ruling.done) == (imagined.kind, imagined.action, imagined.done)
        if ruling.kind is not None:
            assert ruling.text == imagined.text
        else:
            assert ruling.text.startswith(imagined.text)
        state = ruling.state


@given(LABELS, st.randoms(use_true_random=False))
@FEW
def test_a_text_names_what_is_visible_and_nothing_that_is_hidden(label: str, rng: Random) -> None:
    scene = draw_scene(label)
    world = world_of(scene.grounded)
    state: JsonValue = scene.grounded.environment
    actions = list(scene.all_actions())
    for _ in range(25):
        action = rng.choice((rng.choice(scene.useful), rng.choice(actions)))
        before, ruling = world.visible(state), world.step(state, action)
        state = ruling.state
        if ruling.kind is not None:
            continue
        named = {*before, *ruling.visible, *ruling.values.values()}
        # Where one name is part of another, only the whole one counts: a `mug` in `blue mug` is not told of.
        rest = ruling.text
        for name in sorted(named, key=len, reverse=True):
            rest = rest.replace(name, "")
        assert not [name for name in world.names if name not in named and name in rest], ruling.text
        assert all(name in ruling.text for name in ruling.appeared)


@pytest.mark.parametrize("label", [f"{family}-{number}{GROUNDED}" for family in sorted(FAMILIES) for number in (2, 4)])
def test_features_are_there_where_they_are_told(label: str) -> None:
    told, found = outline(label).features, check_solvability(grounded(label)).difficulty
    assert found is not None
    assert "distractors" in told
    assert found.distractors >= 0.4
    assert found.hidden > 0 or "hidden" not in told
    assert ("hidden" in told) <= ("Nobody has told you where things are." in grounded(label).introduction)
    # None means that the check ended without knowing.
    assert found.losable is not False or "irreversible" not in told


def test_imagined_scenes_are_what_they_were() -> None:
    """A change here changes what live and narrated plays of the rehearsal look like, and so recorded runs."""
    digest = sha256()
    for family in sorted(CLASSIC):
        for number in range(12):
            script = draw_scene(f"{family}-{number}").script
            digest.update(orjson.dumps(script.to_paper(), option=orjson.OPT_SORT_KEYS))
    assert digest.hexdigest()[:16] == "7291b6c1018ca261"
