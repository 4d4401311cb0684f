"""The Player of worlds that hide things: it looks for them where it has not looked, and knows no more than it was told."""

import pytest
from grounded_stage import LABELS, grounded, play
from hypothesis import given, settings

from refinesynth.rehearsal.families import FAMILIES
from refinesynth.rehearsal.replayed_history import Exchange, History, initial_position
from refinesynth.rehearsal.scene import GROUNDED, draw_scene
from refinesynth.rehearsal.search_plan import hidden_target, plan_of
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
        history, thing = _at_the_search(label)
        if thing is None:
            continue
        truth = hidden_names(history.position.scene.world).places_of[thing]
        among = max((one for one in history.position.scene.plot.values.values() if truth & {*one}), key=len)
        place = next((value for value in _values(history, plan_of(history)[0]) if value in among), None)
        if place is not None:
            guesses += 1
            right += place in truth
            chance += 1 / (len(among) - 1)
    assert guesses > 100
    assert abs(right - chance) < 3 * (chance * (1 - chance / guesses)) ** 0.5


def _at_the_search(label: str) -> tuple[History, str | None]:
    """Where the player of this scene begins to look for something, and for what."""
    history = History.of(initial_position(label), ())
    while hidden_target(history) is None and history.position.plan:
        step = plan_of(history)[0]
        history = history.with_exchange(Exchange(step, history.position.ruling(step).text, refused=False))
    return history, hidden_target(history)


def _values(history: History, step: str) -> tuple[str, ...]:
    return (*history.position.ruling(step).values.values(),)


@pytest.mark.long
@given(LABELS)
@FEW
def test_a_play_finds_what_is_hidden(label: str) -> None:
    assert play(grounded(label)).done


def test_what_a_refusal_names_is_still_looked_for() -> None:
    for label in HIDDEN:
        history = History.of(initial_position(label), ())
        thing = hidden_target(history)
        if thing is None:
            continue
        told = history.with_exchange(Exchange("a try", f"The {thing} is not in hand.", refused=True))
        assert hidden_target(told) == thing
        seen = history.with_exchange(Exchange("a look", f"Here you see the {thing}.", refused=False))
        assert hidden_target(seen) != thing


def test_the_introduction_shows_what_can_be_seen_at_the_start() -> None:
    for label in HIDDEN[::7]:
        scene = draw_scene(label)
        looking = next(
            name for name in scene.verbs if "{" not in name and scene.world.step(scene.plot.state, name).kind is None
        )
        assert scene.executed.introduction.endswith(scene.world.step(scene.plot.state, looking).text)
