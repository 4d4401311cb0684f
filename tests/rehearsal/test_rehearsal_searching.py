"""The Player of worlds that hide things: it looks for them where it has not looked, and knows no more than it was told."""

import pytest
from grounded_stage import LABELS, grounded, play
from hypothesis import given, settings

from refinesynth.rehearsal.families import FAMILIES
from refinesynth.rehearsal.replayed_history import Exchange, Past, opening
from refinesynth.rehearsal.scene import GROUNDED, draw_scene
from refinesynth.rehearsal.search_plan import plan_of, sought
from refinesynth.rules.information_leak import KnowsOnlyWhatWasSeen
from refinesynth.trajectory import Draft
from refinesynth.world.hidden_places import hidden_names

FEW = settings(max_examples=20)
HIDDEN = [
    label
    for family in FAMILIES
    for label in (f"{family}-{number}{GROUNDED}" for number in range(60))
    if draw_scene(label).hidden
]


@pytest.mark.long
def test_the_first_place_to_look_is_no_better_than_a_guess() -> None:
    guesses = right = 0
    chance = 0.0
    for label in HIDDEN:
        past, thing = _at_the_search(label)
        if thing is None:
            continue
        truth = hidden_names(past.position.scene.world).places_of[thing]
        among = max((one for one in past.position.scene.plot.values.values() if truth & {*one}), key=len)
        place = next((value for value in _values(past, plan_of(past)[0]) if value in among), None)
        if place is not None:
            guesses += 1
            right += place in truth
            chance += 1 / (len(among) - 1)
    assert guesses > 100
    assert abs(right - chance) < 3 * (chance * (1 - chance / guesses)) ** 0.5


def _at_the_search(label: str) -> tuple[Past, str | None]:
    """Where the player of this scene begins to look for something, and for what."""
    past = Past.of(opening(label), ())
    while sought(past) is None and past.position.plan:
        step = plan_of(past)[0]
        past = past.and_then(Exchange(step, past.position.ruling(step).text, refused=False))
    return past, sought(past)


def _values(past: Past, step: str) -> tuple[str, ...]:
    return (*past.position.ruling(step).values.values(),)


@pytest.mark.long
@given(LABELS)
@FEW
def test_a_play_finds_what_is_hidden_and_never_knows_it_before(label: str) -> None:
    script = grounded(label)
    played = play(script)
    assert played.done
    assert [*KnowsOnlyWhatWasSeen()(Draft(script=script, turns=tuple(played.turns)))] == []


def test_what_a_refusal_names_is_still_looked_for() -> None:
    for label in HIDDEN:
        past = Past.of(opening(label), ())
        thing = sought(past)
        if thing is None:
            continue
        told = past.and_then(Exchange("a try", f"The {thing} is not in hand.", refused=True))
        assert sought(told) == thing
        seen = past.and_then(Exchange("a look", f"Here you see the {thing}.", refused=False))
        assert sought(seen) != thing


def test_the_introduction_shows_what_can_be_seen_at_the_start() -> None:
    for label in HIDDEN[::7]:
        scene = draw_scene(label)
        looking = next(
            name for name in scene.verbs if "{" not in name and scene.world.step(scene.plot.state, name).kind is None
        )
        assert scene.executed.introduction.endswith(scene.world.step(scene.plot.state, looking).text)
