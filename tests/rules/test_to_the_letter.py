"""Where `agentrefine()` is more tolerant than Algorithm 1 as it is printed, and `agentrefine(letter=True)` is not."""

from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rule_drafts import END, HOUSE, draft, right, wrong

from refinesynth import rules
from refinesynth.rules import ToTheLetter, agentrefine, verify
from refinesynth.trajectory import Draft, Liberty, MalformedTurn, MistakeKind

WHOLE = draft(
    *wrong("go to cellar"), *right("go to hall"), *wrong("fly", MistakeKind.PARAMETER), *right("go to kitchen"), *END
)  # turns 1, 3, 5, 7 and 9 are the player's
TURNS = [turn for turn in WHOLE.turns if not isinstance(turn, MalformedTurn)]
PRINTED: list[dict[str, Any]] = [turn.to_paper(number) for number, turn in enumerate(TURNS, start=1)]


def text(*turns: Any) -> str:
    return orjson.dumps(list(turns)).decode()


def changed(at: int, **keys: Any) -> str:
    """The printed trajectory with other keys in one turn; None takes one away."""
    turn = {name: value for name, value in {**PRINTED[at], **keys}.items() if value is not None}
    return text(*PRINTED[:at], turn, *PRINTED[at + 1 :])


def renamed(at: int, old: str, new: str) -> str:
    turn = {new if name == old else name: value for name, value in PRINTED[at].items()}
    return text(*PRINTED[:at], turn, *PRINTED[at + 1 :])


ALL = text(*PRINTED)
KEPT = None
"""Accepted."""


class Case(NamedTuple):
    name: str
    text: str
    tolerant: tuple[str, int] | None
    """Code and turn of what `agentrefine()` finds."""
    letter: tuple[str, int] | None
    """The same of `agentrefine(letter=True)`."""


def both(name: str, written: str, found: tuple[str, int] | None) -> Case:
    return Case(name, written, found, found)


CASES = (
    # 1. The text must parse as JSON.
    both("1: a list", ALL, KEPT),
    both("1: an object that holds the list", f'{{"Trajectory": {ALL}}}', KEPT),
    Case("1: in a fence", f"Here it is:\n```json\n{ALL}\n```", KEPT, ("not_json", 0)),
    Case("1: among words", f"Here it is: {ALL}", KEPT, ("not_json", 0)),
    Case("1: a comma too many", ALL.replace("},{", "},,{", 1), KEPT, ("not_json", 0)),
    both("1: the last bracket forgotten, which may be a cut", ALL[:-1], ("not_json", 0)),
    # 2.1 The keys must be those required of the role.
    Case("2.1: one key more", changed(2, mood="glad"), KEPT, ("wrong_keys", 2)),
    Case("2.1: another role's key, empty", changed(2, Observation=""), KEPT, ("wrong_keys", 2)),
    Case("2.1: one key more of a DM", changed(5, progress=0.5), KEPT, ("wrong_keys", 5)),
    Case("2.1: one key twice, in two spellings", changed(2, thought="I try this."), KEPT, ("wrong_keys", 2)),
    Case("2.1: our spelling", renamed(2, "Thought", "thought"), KEPT, ("wrong_keys", 2)),
    Case("2.1: our spelling of a DM", renamed(3, "Observation", "observation"), KEPT, ("wrong_keys", 3)),
    Case("2.1: a role in another spelling", changed(2, role=" player"), KEPT, ("wrong_keys", 2)),
    Case("2.1: a DM by its whole name", changed(3, role="Dungeon Master"), KEPT, ("wrong_keys", 3)),
    Case("2.1: no number", changed(4, turn=None), KEPT, ("wrong_keys", 4)),
    both("2.1: another number", changed(4, turn=77), KEPT),
    Case("2.1: a flag in words", changed(3, logic_error="false"), KEPT, ("wrong_keys", 3)),
    Case("2.1: a flag as a number", changed(3, logic_error=0), KEPT, ("wrong_keys", 3)),
    both("2.1: a flag that says neither", changed(3, logic_error="perhaps"), ("wrong_keys", 3)),
    # 2.2 A player turn that the DM does not flag: pattern and parameters.
    # 2.3 and 2.4 Errors are counted; the last turn has none, says Task Succeed, after two errors at least.
    # What comes first in the turns is told.
    Case("first: an action, then a key", changed(6, mood="glad").replace("go to hall", "go to moon"), ("value_not_allowed", 2), ("value_not_allowed", 2)),
    Case("first: a key, then an action", changed(2, mood="glad").replace("go to kitchen", "go to moon"), ("value_not_allowed", 6), ("wrong_keys", 2)),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_both_readings_of_algorithm_one(case: Case) -> None:
    told = Draft.from_text(HOUSE, case.text)
    for rule, expected in ((agentrefine(), case.tolerant), (agentrefine(letter=True), case.letter)):
        verdict = verify(told, rule)
        assert [(found.code, found.turn) for found in verdict.violations] == ([] if expected is None else [expected])
        assert verdict.accepted == (expected is None)
        if expected is not None:
            assert verdict.verified_turns == (0 if expected[0] == "too_few_errors" else expected[1])


@pytest.mark.parametrize("liberty", list(Liberty))
def test_every_liberty_is_refused_by_the_letter_and_can_be_allowed(liberty: Liberty) -> None:
    taken = [Draft.from_text(HOUSE, case.text) for case in CASES]
    alone = [one for one in taken if {kind for _, kind in one.liberties} == {liberty}]
    assert alone
    for one in alone:
        assert list(ToTheLetter()(one))
        assert not list(ToTheLetter(allow=(liberty,))(one))


class TestWhatIsRemembered:
    def test_a_continuation_is_told_at_the_turn_of_the_whole(self) -> None:
        before = TURNS[:4]
        told = Draft.from_text(HOUSE, text(*PRINTED[4:6], {**PRINTED[6], "mood": "glad"}, *PRINTED[7:]), prefix=before)
        assert told.turns == WHOLE.turns
        assert told.liberties == ((6, Liberty.EXTRA_KEYS),)

    def test_of_turns_that_were_told_again_nothing_is_said(self) -> None:
        again = text({**PRINTED[0], "mood": "glad"}, *PRINTED[1:5], {**PRINTED[5], "mood": "glad"}, *PRINTED[6:])
        told = Draft.from_text(HOUSE, f"So:\n```\n{again}\n```", prefix=TURNS[:4])
        assert told.turns == WHOLE.turns
        assert told.liberties == ((4, Liberty.FENCED), (5, Liberty.EXTRA_KEYS))

    def test_it_is_cut_with_the_turns_and_never_written(self) -> None:
        told = Draft.from_text(HOUSE, changed(2, mood="glad", role="player"))
        assert told.liberties == ((2, Liberty.EXTRA_KEYS), (2, Liberty.SPELLING))
        assert told.prefix(3).liberties == told.liberties
        assert told.prefix(2).liberties == ()
        assert b"liberties" not in told.to_json()
        again = Draft.from_json(told.to_json())
        assert again == told
        assert verify(again, agentrefine(letter=True)).accepted

    def test_a_model_cannot_say_it_itself(self) -> None:
        assert Draft.from_text(HOUSE, changed(2, liberties=[])).liberties == ((2, Liberty.EXTRA_KEYS),)

    @given(st.data())
    def test_what_is_verified_by_the_letter_verifies_again(self, data: st.DataObject) -> None:
        turns = [dict(turn) for turn in PRINTED]
        for turn in turns:
            if data.draw(st.booleans()):
                turn.update(
                    data.draw(st.sampled_from([{"mood": "glad"}, {"role": turn["role"].lower()}, {"thought": "?"}]))
                )
        told = Draft.from_text(HOUSE, data.draw(st.sampled_from(["", "So: "])) + text(*turns))
        verdict = verify(told, agentrefine(letter=True))
        assert verdict.accepted == (told.liberties == ())
        assert verify(told.prefix(verdict.verified_turns), agentrefine(letter=True)).accepted


def test_it_is_a_rule_by_name() -> None:
    written = "first_failure(ToTheLetter(allow=('spelling', 'unnumbered')), agentrefine(3))"
    chain = rules.first_failure(ToTheLetter(allow=(Liberty.SPELLING, Liberty.UNNUMBERED)), agentrefine(3))
    assert rules.parse(written) == chain
    assert rules.parse("agentrefine(letter=True)") == agentrefine(letter=True) != agentrefine()
