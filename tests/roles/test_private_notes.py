"""A Player may think what it is told: nothing that a private note can hold is a leak, or speaks of what no player
knows."""

import re
from typing import get_args

import pytest
from grounded_corruptions import grounded_corruptions
from hypothesis import given
from hypothesis import strategies as st
from samples import SHED, dm, player

from refinesynth import rules
from refinesynth.episode.conversation import DEFAULT_FEEDBACK, PLAYER_FEEDBACK, RetryFeedback, player_feedback
from refinesynth.prompts import Prompts
from refinesynth.rules import Violation
from refinesynth.settings.mistakes import RepairStyle
from refinesynth.testing import Corruption, corruptions
from refinesynth.text.formatting import quoted
from refinesynth.trajectory import Draft, MistakeKind

SHIPPED = Prompts()
BEHIND_THE_SCENE = re.compile(
    r"\b(?:DM|dungeon.?master|turn \d+|mistakes?|errors?|flag\w*|rules?|roles?|record)\b", re.IGNORECASE
)
ACTIONS = ("take key", "say As the DM, I flag parameter_error", '"', "x" * 9_000, "</private> \u2028 {action}")


def leaks(thought: str) -> list[Violation]:
    return list(rules.NoLeaks()(Draft(script=SHED, turns=(player("wait", thought), dm("You wait.")))))


@pytest.mark.parametrize("way", get_args(RepairStyle))
@pytest.mark.parametrize("kind", MistakeKind)
def test_the_request_for_a_wrong_action_is_in_the_scenes_words(kind: MistakeKind, way: RepairStyle) -> None:
    note = SHIPPED.fill("player_mistake", "request", mistake=kind.value, way=way)
    assert leaks(note) == []
    assert not BEHIND_THE_SCENE.search(note)


def test_the_note_about_an_answer_taken_back_is_in_the_scenes_words() -> None:
    note = SHIPPED.fill("player_retake", "request", violations=[*PLAYER_FEEDBACK.values(), DEFAULT_FEEDBACK])
    assert leaks(note) == []
    assert not BEHIND_THE_SCENE.search(note)


@pytest.mark.parametrize("kind", MistakeKind)
def test_the_note_to_the_repairer_is_in_the_scenes_words(kind: MistakeKind) -> None:
    note = SHIPPED.fill("player_repair", "request", action="take key", mistake=kind.value, reason="It lies elsewhere.")
    assert leaks(note) == []
    assert not BEHIND_THE_SCENE.search(note)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("known", PLAYER_FEEDBACK)
def test_each_reason_repeated_in_a_thought_is_no_leak(known: tuple[str, str], action: str) -> None:
    rule, code = known
    said = player_feedback(Violation(rule=rule, turn=0, code=code, message="The DM flags it."), player(action))
    assert leaks(said) == []
    assert leaks(f"I see. {said} So I go on.") == []
    assert len(said) < 500


@given(st.text(max_size=200), st.text(max_size=200))
def test_who_leaves_something_unanswered_reads_what_it_was_and_what_was_said_of_it(action: str, answer: str) -> None:
    before = (player("open box"), dm("It opens."), player(action), dm(answer, "place"))
    left = Violation(rule="RealRefinement", turn=4, code="not_refined", message="The DM flags it.")
    said = player_feedback(left, player("wait"), before)
    assert leaks(said) == []
    if said != DEFAULT_FEEDBACK:
        assert (quoted(action) in said, quoted(answer) in said) == (True, True)
    plain = player_feedback(left, player("wait"), (player("take saw"), dm("There is no saw in reach.", "place")))
    assert plain.startswith('"take saw" did not work, and you were told: "There is no saw in reach."')


@given(st.text(), st.text())
def test_the_message_of_any_rule_repeated_in_a_thought_is_no_leak(message: str, action: str) -> None:
    for text in (message, f"As the DM, {message}", f"{message} parameter_error"):
        said = player_feedback(Violation(rule="Mine", turn=0, code="mine", message=text), player(action))
        assert leaks(said) == []


def test_of_other_rules_the_message_is_told_without_numbers_of_turns() -> None:
    other = Violation(rule="BriefThoughts", turn=2, code="long", message="Turn 3 has a thought of 60 words; write 40.")
    assert player_feedback(other, player("take key")) == "your answer has a thought of 60 words; write 40."
    leaking = other.model_copy(update={"message": 'Turn 3 says "as the DM".'})
    assert player_feedback(leaking, player("take key")) == DEFAULT_FEEDBACK


CHAINS = (rules.strict(), rules.grounded())


@given(st.one_of(corruptions(), grounded_corruptions()), st.sampled_from(CHAINS))
def test_whatever_a_chain_finds_at_a_players_turn_is_told_in_the_scenes_words(
    spoilt: Corruption, chain: rules.Rule
) -> None:
    told = RetryFeedback.of(spoilt.draft, rules.verify(spoilt.draft, chain))
    for said in told.player:
        assert leaks(said) == []


def test_every_code_that_a_player_can_cause_has_words_of_its_own() -> None:
    first, second = (player("open box"), dm("It opens.")), (player("take saw"), dm("There is none.", "place"))
    spoilt = {
        "blank": (player("take key", " "), dm("You hold it.")),
        "ambiguous_text": (player('"take key"'), dm("You hold it.")),
        "turn_too_long": (player("take key", "x" * 9_000), dm("You hold it.")),
        "leak": (player("take key", "As the DM, I know."), dm("You hold it.")),
        "mistake_repeated": (player("take saw"), dm("You hold it.")),
    }
    for code, exchange in spoilt.items():
        found = rules.verify(Draft(script=SHED, turns=(*first, *second, *exchange), finished=False), rules.strict())
        blamed = [one for one in found.violations if one.code == code]
        assert len(blamed) == 1, code
        assert (blamed[0].rule, code) in PLAYER_FEEDBACK
    assert ("RealRefinement", "not_refined") in PLAYER_FEEDBACK
