"""The grounded form of the families: the same laws, what is hidden is not told, and every script passes its
checks."""

from collections.abc import Callable
from hashlib import sha256
from random import Random
from typing import Any

import orjson
import pytest
from grounded_stage import LABELS, grounded
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from refinesynth import rules
from refinesynth.rehearsal.families import CLASSIC, FAMILIES
from refinesynth.rehearsal.scene import GROUNDED, draw_scene, label_in, outline
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


@given(LABELS)
@FEW
def test_a_scene_without_a_rulebook_has_a_grounded_sibling(label: str) -> None:
    plain = draw_scene(label.removesuffix(GROUNDED))
    assert plain.grounded == draw_scene(label).grounded
    assert plain.script.rulebook is None
    assert label_in(plain.script.introduction) == plain.label
    assert label_in(plain.grounded.introduction) == label
    assert plain.grounded.imagined() == draw_scene(label).script


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


def test_what_is_shut_or_elsewhere_is_hidden() -> None:
    seen_shut = 0
    for number in range(15):
        scene = draw_scene(f"household-{number}{GROUNDED}")
        world, state = world_of(scene.grounded), scene.plot.state
        here = state["you"]["at"]
        visible = set(world.visible(state))
        for name, place in state["places"].items():
            assert name in visible
            shown = (
                set(place["things"]) <= visible
                if name == here and place["open"]
                else not visible & set(place["things"])
            )
            assert shown, (name, here)
        seen_shut += not state["places"][here]["open"] and bool(state["places"][here]["things"])
    assert seen_shut


WHEREABOUTS: tuple[tuple[str, str, Callable[[Any], dict[str, str]]], ...] = (
    ("files", "terminal/cwd", lambda state: {name: one["directory"] for name, one in state["files"].items()}),
    (
        "laboratory",
        "you/at",
        lambda state: {name: at for at, one in state["stations"].items() for name in one["samples"]},
    ),
    ("laboratory", "you/at", lambda state: {name: one["at"] for name, one in state["gear"].items() if not one["worn"]}),
    ("warehouse", "robot/zone", lambda state: {name: one["zone"] for name, one in state["crates"].items()}),
    ("warehouse", "robot/zone", lambda state: {name: one["zone"] for name, one in state["vehicles"].items()}),
    ("office", "you/room", lambda state: {name: at for at, one in state["rooms"].items() for name in one["documents"]}),
    ("office", "you/room", lambda state: {name: one["room"] for name, one in state["people"].items()}),
)
"""Family, place of the player, and the places of things by name."""


@pytest.mark.parametrize(("family", "player", "whereabouts"), WHEREABOUTS)
def test_only_what_is_where_the_player_is_can_be_seen(
    family: str, player: str, whereabouts: Callable[[Any], dict[str, str]]
) -> None:
    thing, _, key = player.partition("/")
    for number in range(12):
        scene = draw_scene(f"{family}-{number}{GROUNDED}")
        visible = set(world_of(scene.grounded).visible(scene.grounded.environment))
        here, places = scene.plot.state[thing][key], whereabouts(scene.plot.state)
        assert places.keys() & visible == {name for name, at in places.items() if at == here}


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


def test_each_feature_is_there_and_is_not() -> None:
    told = [outline(f"{family}-{number}{GROUNDED}").features for family in FAMILIES for number in range(30)]
    for feature in ("irreversible", "hidden", "preconditions"):
        assert 0.2 < sum(feature in one for one in told) / len(told) < 0.8, feature


@pytest.mark.parametrize("family", ["household", "laboratory", "panel", "search"])
def test_some_families_cannot_be_lost(family: str) -> None:
    assert not any("irreversible" in outline(f"{family}-{number}{GROUNDED}").features for number in range(50))


def test_imagined_scenes_are_what_they_were() -> None:
    """A change here changes what live and narrated plays of the rehearsal look like, and so recorded runs."""
    digest = sha256()
    for family in sorted(CLASSIC):
        for number in range(12):
            script = draw_scene(f"{family}-{number}").script
            digest.update(orjson.dumps(script.to_paper(), option=orjson.OPT_SORT_KEYS))
    assert digest.hexdigest()[:16] == "7291b6c1018ca261"
