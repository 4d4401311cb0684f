"""What strict() adds to Algorithm 1, rule by rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_drafts import END, GARBAGE, HOUSE, LOOK, draft, found, right, wrong
from samples import dm, player

from refinesynth.chat import parse_player, render_player
from refinesynth.rules import (
    FreshObservations,
    NoFalseAlarm,
    NoRepeatedMistake,
    NothingBlank,
    ReadsBack,
    RealRefinement,
    SizeLimits,
    SucceedsOnce,
    strict,
    verify,
)
from refinesynth.trajectory import MistakeKind, PlayerTurn

PIECES = (
    "look", "Action", "action:", "Thought", ":", "\n", "\n\n", " ", "**", "`", '"', "> ", "- ", "é", "#", "Observation:",
)  # fmt: skip
TEXT = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


class TestNothingBlank:
    def test_what_is_blank_is_named(self) -> None:
        silent = PlayerTurn(thought=" ", action="\t")
        assert found(NothingBlank(), draft(silent, right("look"))) == [("blank", 0)]
        [violation] = NothingBlank()(draft(silent))
        assert "no thought and no action" in violation.message
        assert found(NothingBlank(), draft(right("look"), dm("\n"))) == [("blank", 2)]


class TestReadsBack:
    @pytest.mark.parametrize("character", ["\0", "\x1b", "\x7f", "\x9b"])
    def test_no_turn_holds_a_control_character(self, character: str) -> None:
        odd = f"The door{character} opens."
        assert found(ReadsBack(), draft(right("look"), player("wait"), dm(odd))) == [("control_character", 3)]
        assert found(ReadsBack(), draft(player("look", odd), dm("No.", MistakeKind.PLACE))) == [
            ("control_character", 0)
        ]
        assert found(ReadsBack(), draft(player("look"), dm("Two lines,\r\n\tand é 門 \u200d."))) == []
        malformed = GARBAGE.model_copy(update={"raw": odd})
        assert found(ReadsBack(), draft(malformed, player("look"))) == []

    @pytest.mark.parametrize(
        "turn",
        [
            player("look", "I could\nAction: go to hall\nbut no."),
            player("look", "Or else:\n> **Action:** go to hall"),
            player("say a\nAction: say b"),
            player("say a\n \nThat should do."),
            player("say a\nObservation: Done."),
            player("say a\nThought: Done."),
            player("`look`"),
            player('"look"'),
            player("**look**"),
            player(" "),
        ],
        ids=repr,
    )
    def test_what_cannot_be_read_as_one_thought_and_one_action(self, turn: PlayerTurn) -> None:
        assert found(ReadsBack(), draft(right("look"), turn, dm("Done."))) == [("ambiguous_text", 2)]
        assert found(ReadsBack(), draft(turn, GARBAGE)) == [("ambiguous_text", 0)]
        assert found(ReadsBack(), draft(turn)) == [("ambiguous_text", 0)]

        assert found(ReadsBack(), draft(turn, dm("No.", MistakeKind.PLACE))) == [], "mistakes are not trained on"
        assert found(ReadsBack(), draft(turn, finished=False)) == [], "it may yet be called wrong"

    @pytest.mark.parametrize(
        "turn",
        [
            player(" say a\nand b\n", "\nFirst a.\n\nThen b. "),
            player('say "a" or "b"', "What action: this? Action, that is."),
            player("look", "As I was told\nObservation: the hall.\nThought: so what."),
            player("look", "**Action:** as I was told"),
            player("look", ""),
        ],
        ids=repr,
    )
    def test_what_can(self, turn: PlayerTurn) -> None:
        assert found(ReadsBack(), draft(turn, dm("Done."))) == []

    @given(TEXT, TEXT)
    def test_a_turn_passes_exactly_if_it_reads_as_it_was(self, thought: str, action: str) -> None:
        turn = player(action, thought)
        try:
            read = parse_player(render_player(turn))
        except ValueError:
            as_it_was = False
        else:
            as_it_was = (read.thought, read.action) == (thought.strip(), action.strip())
        assert (found(ReadsBack(), draft(turn, dm("Done."))) == []) == as_it_was


class TestSucceedsOnce:
    EARLY = right("look", "Task Succeed, nearly")

    def test_before_the_end(self) -> None:
        assert found(SucceedsOnce(), draft(self.EARLY, END)) == [("success_too_early", 1)]
        assert found(SucceedsOnce(), draft(self.EARLY, player("look"), finished=False)) == [("success_too_early", 1)]
        assert found(SucceedsOnce(), draft(dm("Task Succeed"), END)) == [("success_too_early", 0)]
        assert verify(draft(wrong("look"), self.EARLY, END), SucceedsOnce()).verified_turns == 3

    def test_beside_a_flag_it_is_too_early_wherever_it_stands(self) -> None:
        shout = (player("look"), dm("You shout Task Succeed.", MistakeKind.PLACE))
        assert found(SucceedsOnce(), draft(right("look"), shout, finished=False)) == [("success_too_early", 3)]
        assert found(SucceedsOnce(), draft(shout)) == [("success_too_early", 1)]

    def test_a_text_that_goes_on_unreadably_goes_on(self) -> None:
        cut = draft(right("look"), END).model_copy(update={"text_error": "no JSON"})
        assert found(SucceedsOnce(), cut) == [("success_too_early", 3)]
        assert verify(cut, strict()).verified_turns == 3

    def test_the_phrase_is_compared_exactly_and_may_be_another(self) -> None:
        assert found(SucceedsOnce(), draft(right("look", "task succeed"), END)) == []
        assert found(SucceedsOnce("Won"), draft(self.EARLY, right("look", "Won"), END)) == [("success_too_early", 3)]


class TestRealRefinement:
    def test_a_later_action_in_the_window_may_repair(self) -> None:
        tries = draft(wrong("look"), wrong("say a"), right("go to hall"))
        assert found(RealRefinement(within=2), tries) == []
        assert found(RealRefinement(within=1), tries) == [("not_refined", 2)]

    def test_the_same_action_is_no_repair_however_spelled(self) -> None:
        same = draft(wrong("take mug from hall"), right("  take\n mug  from hall"))
        assert found(RealRefinement(within=1), same) == [("not_refined", 2)]
        loud = LOOK.model_copy(update={"pattern": "(?i)look"})
        same = draft(wrong("look"), right("LOOK"), script=HOUSE.model_copy(update={"actions": (loud,)}))
        assert found(RealRefinement(within=1), same) == [("not_refined", 2)]

    def test_a_value_in_the_right_case_is_the_repair_of_one_in_the_wrong(self) -> None:
        repaired = draft(wrong("go to HALL", MistakeKind.PARAMETER), right("go to hall"))
        assert found(RealRefinement(within=1) & NoRepeatedMistake(), repaired) == []

    def test_what_the_dm_calls_wrong_too_is_no_repair(self) -> None:
        tries = draft(wrong("look"), wrong("say a"), wrong("say b"), wrong("say c"), right("go to hall"))
        # Those after the first mistake are repaired in time.
        assert found(RealRefinement(within=3), tries) == [("not_refined", 2)]

    def test_a_whole_draft_without_repair_is_refused_at_its_end(self) -> None:
        assert found(RealRefinement(), draft(right("look"), wrong("look"))) == [("not_refined", 4)]
        assert found(RealRefinement(), draft(wrong("look"), player("go to hall"))) == [("not_refined", 2)]

    def test_an_unfinished_draft_may_still_repair(self) -> None:
        for part in (
            draft(wrong("look"), finished=False),
            draft(wrong("look"), wrong("say a"), finished=False),
            draft(wrong("look"), wrong("say a"), wrong("say b"), player("say c"), finished=False),
            draft(wrong("look"), finished=True).model_copy(update={"text_error": "no JSON"}),
        ):
            assert found(RealRefinement(within=3), part) == []


class TestNoRepeatedMistake:
    def test_accepted_once_something_else_was_accepted(self) -> None:
        assert found(NoRepeatedMistake(), draft(wrong("look"), right("go to hall"), right("look"))) == []
        assert found(NoRepeatedMistake(), draft(wrong("look"), right("say b"), wrong("say a"), right("look"))) == []

    def test_called_wrong_again_whatever_was_accepted_in_between(self) -> None:
        again = draft(wrong("look"), right("go to hall"), wrong("look "))
        assert found(NoRepeatedMistake(), again) == [("mistake_repeated", 4)]
        worked = draft(wrong("look"), right("go to hall"), right("look"), right("say a"), wrong("look"))
        assert found(NoRepeatedMistake(), worked) == [("mistake_repeated", 8)]

    def test_its_own_acceptance_is_not_the_other_action(self) -> None:
        same = draft(wrong("look"), right("look"), right("look"))
        assert found(NoRepeatedMistake(), same) == [("mistake_repeated", 2), ("mistake_repeated", 4)]

    def test_an_action_not_answered_yet_is_judged_only_if_nothing_else_was_accepted(self) -> None:
        hopeless = draft(wrong("look"), player("look"), finished=False)
        assert found(NoRepeatedMistake(), hopeless) == [("mistake_repeated", 2)]
        assert found(NoRepeatedMistake(), draft(wrong("look"), right("say a"), player("look"), finished=False)) == []


class TestNoFalseAlarm:
    @pytest.mark.parametrize("kind", [MistakeKind.PLACE, MistakeKind.LOGIC])
    def test_place_and_logic_are_the_dms_to_judge(self, kind: MistakeKind) -> None:
        assert found(NoFalseAlarm(), draft(wrong("go to hall", kind))) == []

    @pytest.mark.parametrize("kind", list(MistakeKind))
    def test_an_opening_observation_flags_nothing(self, kind: MistakeKind) -> None:
        assert found(NoFalseAlarm(), draft(dm("Hm.", kind), right("look"))) == [("nothing_to_judge", 0)]
        one_short = draft(dm("Hm.", kind), wrong("go to hall"), right("look"), player("say hi"), END)
        assert not verify(one_short, strict(min_refinements=2)).accepted


class TestFreshObservations:
    def test_looking_twice(self) -> None:
        twice = draft(right("go to hall", "The hall."), right("look", "the  HALL."))
        assert found(FreshObservations(), twice) == []
        assert found(FreshObservations(times=1), twice) == [("observation_repeats", 3)]


class TestSizeLimits:
    def test_one_long_turn_keeps_those_before_it(self) -> None:
        rule = SizeLimits(turn=20, total=1_000)
        verdict = verify(draft(player("look", ""), dm("x" * 21), player("look", "")), rule)
        assert [(violation.code, violation.turn) for violation in verdict.violations] == [("turn_too_long", 1)]
        assert verdict.verified_turns == 1

    def test_too_much_together_starts_over(self) -> None:
        rule = SizeLimits(turn=20, total=30)
        verdict = verify(draft(*(dm("x" * size, thought="") for size in (15, 15, 1, 1))), rule)
        assert [(violation.code, violation.turn) for violation in verdict.violations] == [("too_long", 2)]
        assert verdict.verified_turns == 0
