"""Replaying a grounded draft, example by example: what is blamed, and what the other rules make of failures that
pass."""

import pytest
from rule_drafts import draft, found, right, wrong
from samples import dm, player, with_rulebook
from words_corpus import HOUSE

from refinesynth import rules
from refinesynth.rules import NoRepeatedMistake, RealRefinement, Replays, WordsAgree
from refinesynth.trajectory import Draft, DraftTurn, DungeonMasterTurn, MistakeKind

KITCHEN = "You stand in the kitchen."


def told(
    observation: str, *, kind: MistakeKind | None = None, progress: float | None = 0.0, transient: bool = False
) -> DungeonMasterTurn:
    answer = dm(observation, kind) if kind else dm(observation)
    return answer.model_copy(update={"progress": progress, "transient": transient})


OPEN = (player("open fridge"), told("The fridge is open. In it: apple."))
SHUT = (player("take apple from fridge"), told("The fridge is closed.", kind=MistakeKind.LOGIC))
STUCK = (player("open fridge"), told("It sticks. It does not work this time.", transient=True))
TAKE = (player("take apple from fridge"), told("You take the apple.", progress=0.5))
END = (player("go to cellar"), told("You are in the cellar now. You see the mug. Task Succeed", progress=1.0))


def played(*parts: tuple[DraftTurn, ...] | DraftTurn, finished: bool = True) -> Draft:
    return draft(*parts, script=HOUSE, finished=finished)


def test_a_play_by_the_book_passes() -> None:
    whole = played(told(KITCHEN, progress=None), SHUT, STUCK, OPEN, TAKE, END)
    for rule in (Replays(), WordsAgree(), rules.grounded(min_refinements=1)):
        assert found(rule, whole) == []


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((SHUT[0], told("The fridge is closed.")), [("wrong_flags", 1)]),
        ((SHUT[0], told("No.", kind=MistakeKind.PLACE)), [("wrong_flags", 1)]),
        ((OPEN[0], told("No.", kind=MistakeKind.LOGIC)), [("wrong_flags", 1)]),
        ((*OPEN, TAKE[0], told("You take it.", progress=0.0)), [("wrong_progress", 3)]),
        ((*OPEN, TAKE[0], told("You take it.", progress=None)), [("wrong_progress", 3)]),
        ((SHUT[0], told("Try again.", transient=True)), [("wrong_flags", 1), ("wrong_transient", 1)]),
        ((player("look"), told("Try again.", transient=True)), [("wrong_transient", 1)]),
        ((*STUCK, TAKE[0], told("You take it.", progress=0.5)), [("wrong_flags", 3), ("wrong_progress", 3)]),
        ((*OPEN, *TAKE, END[0], told("The cellar.", progress=1.0)), [("wrong_success", 5)]),
        ((*OPEN, TAKE[0], told("You have it. Task Succeed", progress=0.5)), [("wrong_success", 3)]),
        ((*OPEN, *TAKE, *END, *right("look")), [("goes_on", 6)]),
        ((told(KITCHEN, progress=0.5), *OPEN), [("wrong_progress", 0)]),
        ((told(KITCHEN, kind=MistakeKind.PLACE), *OPEN), [("wrong_flags", 0)]),
        ((*OPEN, player("look"), player("look")), [("cannot_replay", 3)]),
        ((*OPEN, told("And more.")), [("cannot_replay", 2)]),
    ],
)
def test_what_is_wrong_is_named_where_it_is(parts: tuple[DraftTurn, ...], expected: list[tuple[str, int]]) -> None:
    assert found(Replays(), played(*parts, finished=False)) == expected


def test_of_a_whole_draft_the_goal_is_asked() -> None:
    assert found(Replays(), played(OPEN, TAKE)) == [("wrong_success", 3)]
    assert found(Replays(), played(OPEN, TAKE, finished=False)) == []
    assert found(Replays(), played()) == [("wrong_success", 0)]
    assert found(Replays(), played(finished=False)) == []


def test_without_a_rulebook_nothing_is_believed() -> None:
    bare = played(OPEN).model_copy(update={"script": HOUSE.imagined()})
    assert found(Replays(), bare) == [("not_grounded", 0)]
    assert rules.verify(bare, Replays()).verified_turns == 0
    assert found(WordsAgree(), bare) == [], "which is the other rule's affair"


def test_a_goal_that_is_reached_at_the_start_is_none() -> None:
    assert found(Replays(), draft(OPEN, script=with_rulebook(HOUSE, goal=("true",)))) == [("done_at_start", 0)]


def test_words_are_judged_against_what_can_be_seen_then() -> None:
    torch = (player("go to hall"), told("You are in the hall now, with a torch and a drawer."))
    assert found(WordsAgree(), played(torch, finished=False)) == []
    early = (player("open fridge"), told("The fridge is open. In it: apple. Somewhere there is a torch."))
    assert found(WordsAgree(), played(early, torch, finished=False)) == [("words_disagree", 1)]
    opening = told("You stand in the kitchen and think of the red key.")
    assert found(WordsAgree(), played(opening, OPEN, finished=False)) == [("words_disagree", 0)]


@pytest.mark.parametrize("phrase", ["Task Succeed", "task succeed", "TASK  SUCCEED"])
def test_an_opening_that_says_success_in_any_case_is_refused(phrase: str) -> None:
    assert ("words_disagree", 0) in found(WordsAgree(), played(told(f"Your kitchen. {phrase}"), OPEN, finished=False))


class TestFailuresThatPass:
    """Whoever plays: `transient` is no flag, no repair, no change and no repetition."""

    FAILS = (player("go to hall"), told("Not this time.", transient=True))

    def test_it_changes_nothing_so_what_was_wrong_still_is(self) -> None:
        again = draft(wrong("take mug from hall"), self.FAILS, right("take mug from hall"))
        assert found(NoRepeatedMistake(), again) == [("mistake_repeated", 4)]
        assert (
            found(NoRepeatedMistake(), draft(wrong("take mug from hall"), right("look"), right("take mug from hall")))
            == []
        )

    def test_it_repairs_nothing_yet_and_takes_no_room(self) -> None:
        mistake = wrong("take mug from hall")
        assert found(RealRefinement(within=1), draft(mistake, self.FAILS, right("go to hall"))) == []
        assert found(RealRefinement(within=1), draft(mistake, self.FAILS)) == [("not_refined", 4)]
        assert found(RealRefinement(within=1), draft(mistake, self.FAILS, finished=False)) == []

    def test_a_flag_beside_it_is_still_a_mistake(self) -> None:
        flagged = self.FAILS[1].model_copy(update={"logic_error": True})
        assert found(NoRepeatedMistake(), draft(self.FAILS[0], flagged, self.FAILS[0], flagged)) == [
            ("mistake_repeated", 2)
        ]
