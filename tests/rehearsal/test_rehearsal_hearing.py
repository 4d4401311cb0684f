"""The Player of grounded plays: whatever the words, it knows what was carried out, tries again what failed for a
moment, and arrives."""

import pytest
from grounded_stage import FAILURES, LABELS, MISTAKES, Words, grounded, play, terse
from hypothesis import example, given, settings
from rehearsal_stage import Spoken, always

from refinesynth.episode.ruled_action import FAILURE_TEXTS, RuledAction
from refinesynth.rehearsal.phrasing import WORDINGS
from refinesynth.rehearsal.player import inferred_history
from refinesynth.rehearsal.replayed_history import Exchange, initial_position
from refinesynth.rehearsal.scene import GROUNDED, draw_scene
from refinesynth.trajectory import MistakeKind, PlayerTurn

FEW = settings(max_examples=10)

LABEL = f"household-4{GROUNDED}"


def _bare(ruled: RuledAction, _: tuple[Spoken, ...], __: int) -> str:
    """Somebody who leaves out every reason."""
    if ruled.transient:
        return "It gets stuck. Perhaps later."
    return "You cannot do that." if ruled.ruling.kind else "Very well."


@pytest.mark.parametrize("words", [None, pytest.param(terse, marks=pytest.mark.long), _bare])
@given(label=LABELS, mistakes=MISTAKES, failures=FAILURES)
@FEW
@example(label=f"files-177{GROUNDED}", mistakes={}, failures=set())  # two things to look for, in places on either side
def test_plays_arrive_in_the_dungeon_master_s_words_in_the_world_s_and_in_hardly_any(
    words: Words | None, label: str, mistakes: dict[int, MistakeKind], failures: set[int]
) -> None:
    played = play(grounded(label), words=words, mistakes=mistakes, failures=failures)
    assert played.done
    assert played.problems == [] or words is _bare
    assert all(given is not None for _, given in played.asked) or words is not None


@pytest.mark.long
@given(LABELS)
@FEW
def test_no_action_that_was_right_counts_as_wrong(label: str) -> None:
    """Without mistakes and failures a play is the plan and nothing else; where things are hidden, it finds them."""
    script = grounded(label)
    assert script.rulebook is not None
    for words in (None, terse, _bare):
        played = play(script, words=words)
        if draw_scene(label).hidden:
            assert played.done
            assert [ruling.kind for ruling in played.rulings] == [None] * len(played.rulings)
        else:
            assert [turn.action for turn in played.turns if isinstance(turn, PlayerTurn)] == [*script.rulebook.solution]


@pytest.mark.long
@given(LABELS, FAILURES)
@FEW
@example(LABEL, {0, 2, 4})
def test_what_failed_for_a_moment_is_tried_again_at_once(label: str, failures: set[int]) -> None:
    played = play(grounded(label), rehearsal=always("natural_mistake"), failures=failures)
    actions = [turn.action for turn in played.turns if isinstance(turn, PlayerTurn)]
    transient = [getattr(turn, "transient", False) for turn in played.turns[1::2]]
    for at, failed in enumerate(transient[:-1]):
        if failed:
            assert actions[at + 1] == actions[at]
            assert not transient[at + 1]


@pytest.mark.parametrize(
    "excuse", [*FAILURE_TEXTS, *WORDINGS["ruled_hindered"], "The command timed out.", "The door sticks."]
)
def test_failures_of_a_moment_are_understood(excuse: str) -> None:
    position = initial_position(LABEL)
    history = inferred_history(position, [Exchange(position.plan[0], excuse, refused=False)])
    assert history.last_failed
    assert history.position is position
    assert history.refused_actions == frozenset()
