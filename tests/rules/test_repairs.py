"""What answers a mistake: in an executed world, and where the world is imagined."""

import pytest
from pydantic import ValidationError
from rule_drafts import draft, executed, right, wrong
from samples import accepted, dm, player, provenance
from words_corpus import HOUSE

from refinesynth import rules
from refinesynth.rules import RealRefinement
from refinesynth.rules.repairs import Repair, count_refinements, refinements, repairs
from refinesynth.trajectory import Draft, DungeonMasterTurn, Refinements, Trajectory


def played(*acts: str, finished: bool = False) -> Draft:
    return executed(HOUSE, *acts, finished=finished)


Fate = tuple[str, int | None]
"""What became of a mistake, and at which action, counted from 0."""


def became(subject: Draft, within: int = 3) -> list[Fate]:
    """Of each mistake."""

    def fate(repair: Repair) -> Fate:
        if repair.abandoned:
            return "abandoned", None if repair.accepted is None else repair.accepted // 2
        if repair.answer is None:
            return "open" if repair.is_pending else "unanswered", None
        return "late" if repair.late else "answered", repair.answer // 2

    return [fate(repair) for repair in repairs(subject, within)]


TAKE = "take apple from fridge"
END = ("open fridge", TAKE, "go to cellar")
"""What reaches the goal from the start."""


@pytest.mark.parametrize(
    ("acts", "expected"),
    [
        # What it lacked is there: the fridge is open.
        ((TAKE, "open fridge"), ("answered", 1)),
        ((TAKE, "look", "open fridge"), ("late", 2)),
        ((TAKE, "look", "turn lamp on", "open fridge"), ("late", 3)),
        # Actions that are needed on the way do not count.
        (("go to hall", TAKE, "go to kitchen"), ("answered", 2)),
        (("take red key from drawer", "go to hall", "open drawer"), ("answered", 1)),
        # What it lacked comes too late to be its answer, but the action itself is never too late.
        ((TAKE, "look", "look", "look", "open fridge"), ("open", None)),
        ((TAKE, "look", "look", "look", "open fridge", TAKE), ("late", 5)),
        # It can come yet, whatever is thought of it.
        ((TAKE, "look"), ("open", None)),
        ((TAKE, "go to hall", "turn lamp on", "look", "go to kitchen"), ("open", None)),
        # The goal is reached without it, or it was tried again in vain.
        (("turn lamp off", *END), ("abandoned", 1)),
        (("turn lamp off", "open drawer", *END), ("abandoned", 2)),
        (("turn lamp off", "open fridge", "turn lamp off", TAKE, "go to cellar"), ("unanswered", None)),
        (("turn lamp off", "turn lamp on", *END), ("answered", 1)),
        (("juggle mugs", *END), ("abandoned", 1)),
        # No action of the world, and what was meant.
        (("open frigde", "open fridge"), ("answered", 1)),
        (("grab the apple out of the fridge", "open fridge"), ("answered", 1)),
        (("turn lamp bright", "turn lamp on"), ("answered", 1)),
        (("look arround", "look"), ("answered", 1)),
        (("juggle mugs", "look"), ("open", None)),
        # Called wrong too, or the same again.
        ((TAKE, "go to kitchen", "open drawer"), ("open", None)),
        ((TAKE,), ("open", None)),
    ],
)
def test_in_an_executed_world_what_happens_decides(acts: tuple[str, ...], expected: Fate) -> None:
    done = acts[-1] == "go to cellar"
    assert became(played(*acts, finished=done))[0] == expected


def test_where_the_world_is_imagined_any_other_accepted_action_answers() -> None:
    for acts, fate in (
        ((TAKE, "look"), ("answered", 1)),
        ((TAKE, TAKE, "look"), ("answered", 2)),
        ((TAKE, "go to kitchen", "open drawer"), ("open", None)),
        ((TAKE, "go to kitchen", "open drawer", "take mug from fridge"), ("unanswered", None)),
    ):
        assert became(played(*acts).model_copy(update={"script": HOUSE.imagined()}))[0] == fate


def test_actions_on_the_way_to_an_answer_extend_its_window() -> None:
    away = ("go to hall", "go to cellar", "go to hall", TAKE, "look", "look", "go to kitchen")
    assert became(played(*away), within=3) == [("late", 6)]
    assert became(played(*away), within=2) == [("open", None)], "one action is needed, and two are not"
    long = ("open drawer", *("turn lamp on", "turn lamp off") * 8, "go to hall")
    assert became(played(*long)) == [("open", None)], "nobody follows a repair of so many actions"


def test_longer_repairs_are_told_apart() -> None:
    def counted(*acts: str) -> tuple[int, int, int]:
        found = count_refinements(repairs(played(*acts, finished=acts[-1] == "go to cellar")))
        return found.again, found.late, found.abandoned

    assert counted(TAKE, "open fridge") == (0, 0, 0)
    assert counted(TAKE, "take mug from fridge", "open fridge") == (1, 0, 0)
    assert counted(TAKE, "look", "open fridge") == (0, 1, 0)
    assert counted("open drawer", *END) == (0, 0, 1)


def test_what_failed_for_a_moment_answers_nothing_yet() -> None:
    stuck = dm("It sticks.").model_copy(update={"transient": True, "progress": 0.0})
    shut = played(TAKE)
    failed = shut.model_copy(update={"turns": (*shut.turns, player("open fridge"), stuck)})
    assert became(failed) == [("open", None)]
    again = failed.model_copy(update={"turns": (*failed.turns, player("open fridge"), dm("The fridge is open."))})
    assert became(again, within=1) == [("answered", 2)]


def test_a_mistake_that_the_rulebook_does_not_know_is_judged_as_if_imagined() -> None:
    flagged = draft(wrong("open fridge"), right("look"), script=HOUSE, finished=False)
    assert became(flagged) == [("answered", 1)]


def test_a_draft_that_nobody_can_replay_is_judged_as_if_imagined() -> None:
    stray = draft(dm("Here."), dm("And here."), wrong(TAKE), right("look"), script=HOUSE, finished=False)
    assert [repair.answer for repair in repairs(stray)] == [4]


class TestRealRefinement:
    def test_a_mistake_that_is_repeated_in_vain_is_taken_back_to_the_turn_after_it(self) -> None:
        acts = ("look", "turn lamp off", "open fridge", "turn lamp off", TAKE, "go to cellar")
        [first] = RealRefinement()(played(*acts, finished=True))
        assert (first.code, first.turn) == ("not_refined", 4)
        assert "turn lamp off" in first.message
        assert list(RealRefinement()(played(*acts))) == [], "it may still be answered"
        kept = played(*acts).prefix(first.turn)
        assert list(RealRefinement()(kept)) == [], "what is kept may be gone on with"

    def test_a_play_that_answers_is_accepted(self) -> None:
        whole = played(TAKE, "open fridge", TAKE, "go to hall", "go to cellar")
        done = whole.turns[-1]
        assert isinstance(done, DungeonMasterTurn)
        ended = done.model_copy(update={"observation": f"{done.observation} Task Succeed"})
        finished = whole.model_copy(update={"turns": (*whole.turns[:-1], ended), "finished": True})
        assert rules.verify(finished, rules.grounded(min_refinements=1)).accepted


def test_what_was_counted_when_it_was_accepted_is_not_counted_again() -> None:
    turns = played(TAKE, "open fridge", "take mug from fridge", "look").turns
    found = accepted(Draft(script=HOUSE, turns=turns))
    assert found.provenance.refinements is None, "as an earlier version wrote it"
    assert refinements(found) == count_refinements(repairs(found.draft())) == Refinements(answered=1, unanswered=1)
    assert "refinements" not in found.provenance.model_dump(mode="json")
    kept = Refinements(answered=7, abandoned=2)
    stored = found.model_copy(update={"provenance": provenance(refinements=kept)})
    assert refinements(Trajectory.from_json(stored.to_json())) == kept


def test_a_mistake_after_which_everything_is_called_wrong_is_abandoned_at_no_turn() -> None:
    acts = ("open drawer", *END)
    whole = played(*acts, finished=True)
    flagged = [
        turn.model_copy(update={"logic_error": True}) if isinstance(turn, DungeonMasterTurn) else turn
        for turn in whole.turns
    ]
    found = count_refinements(repairs(whole.model_copy(update={"turns": tuple(flagged)})))
    assert (found.answered, found.abandoned, found.unanswered) == (0, 1, 3)


def test_two_texts_that_differ_in_case_are_one_try_each() -> None:
    acts = ("Fetch Apple", "look", "fetch apple", *END)
    assert list(RealRefinement()(played(*acts, finished=True))) == []


@pytest.mark.parametrize(
    "odd", [{"answered": "many"}, {"answered": 3, "given_up": None}, {"answered": 3, "unknown": 1}]
)
def test_counts_that_are_none_are_no_refinements(odd: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Refinements.model_validate(odd)


def test_the_counts_of_an_earlier_version_are_read() -> None:
    old = {"answered": 5, "unrelated": 2, "again": 1, "late": 1, "given_up": 3}
    assert Refinements.model_validate(old) == Refinements(answered=2, abandoned=3, unanswered=2, again=1, late=1)
