"""Algorithm 1 as a table: one line of the algorithm, a draft, what is found first, and the prefix that stays."""

from typing import NamedTuple

import pytest
from rule_drafts import END, GARBAGE, draft, right, wrong
from samples import dm, player

from refinesynth.rules import agentrefine, verify
from refinesynth.trajectory import Draft, DraftTurn, MistakeKind

MISTAKES = (*wrong("go to cellar"), *right("go to hall"), *wrong("fly", MistakeKind.PARAMETER), *right("go to kitchen"))
WHOLE = draft(MISTAKES, END)
LAST = len(WHOLE.turns) - 1


class Line(NamedTuple):
    name: str
    draft: Draft
    found: tuple[str, str, int] | None
    """Rule, code and turn of the one violation; None if the draft is accepted."""
    minimum: int = 2

    @property
    def kept(self) -> int:
        """Length of the verified prefix."""
        rule, _, turn = self.found or ("", "", len(self.draft.turns))
        return 0 if rule == "EnoughMistakes" else turn


def unreadable(*parts: tuple[DraftTurn, ...]) -> Draft:
    return draft(*parts).model_copy(update={"text_error": "the answer holds no JSON"})


LINES = (
    # 1. The text must parse as JSON.
    Line("1: nothing readable", unreadable(), ("ReadableText", "not_json", 0)),
    Line("1: unreadable after a prefix", unreadable(MISTAKES), ("ReadableText", "not_json", 8)),
    Line("1: unreadable asks for no ending", unreadable(right("look")), ("ReadableText", "not_json", 2)),
    # 2.1 Its keys must be those required of its role.
    Line("2.1: first turn", draft(GARBAGE, MISTAKES, END), ("RequiredKeys", "wrong_keys", 0)),
    Line("2.1: in between", draft(MISTAKES, GARBAGE, END), ("RequiredKeys", "wrong_keys", 8)),
    Line("2.1: last turn, before its ending is looked at", draft(MISTAKES, GARBAGE), ("RequiredKeys", "wrong_keys", 8)),
    Line("2.1: a DM turn after an invalid action", draft(player("fly"), GARBAGE), ("RequiredKeys", "wrong_keys", 1)),
    # 2.2 A player turn, only when the next DM turn flags no error: pattern and parameters.
    Line("2.2: unknown action", draft(MISTAKES, right("fly"), END), ("ValidActions", "unknown_action", 8)),
    Line("2.2: forbidden value", draft(MISTAKES, right("go to moon"), END), ("ValidActions", "value_not_allowed", 8)),
    Line("2.2: empty action", draft(MISTAKES, right("  "), END), ("ValidActions", "empty_action", 8)),
    Line(
        "2.2: the closing action too",
        draft(MISTAKES, right("fly", "Task Succeed")),
        ("ValidActions", "unknown_action", 8),
    ),
    Line("2.2: unanswered by a DM", draft(MISTAKES, player("fly"), END), ("ValidActions", "unknown_action", 8)),
    Line("2.2: flagged may be anything", draft(MISTAKES, wrong("fly"), END), None),
    Line("2.2: blanks around a value", draft(MISTAKES, right("go to  hall "), END), None),
    Line(
        "2.2: a value in another case",
        draft(MISTAKES, right("go to HALL"), END),
        ("ValidActions", "value_not_allowed", 8),
    ),
    Line("2.2: before keys of a later turn", draft(right("fly"), GARBAGE, END), ("ValidActions", "unknown_action", 0)),
    Line("2.1: before an action of a later turn", draft(GARBAGE, right("fly"), END), ("RequiredKeys", "wrong_keys", 0)),
    # 2.3 A DM turn with any error flag counts one error.
    Line(
        "2.3: three flags count once",
        draft(player("fly"), dm("No.", *MistakeKind), END),
        ("EnoughMistakes", "too_few_errors", 3),
    ),
    Line(
        "2.3: a flagged DM turn counts wherever it stands", draft(dm("Hm.", MistakeKind.LOGIC), wrong("fly"), END), None
    ),
    # 2.4 The last turn: no error, Task Succeed, at least two error turns, in this order.
    Line("2.4: ends in error", draft(MISTAKES, wrong("look")), ("UnflaggedEnding", "ends_in_error", 9)),
    Line(
        "2.4: error before success",
        draft(MISTAKES, player("look"), dm("Task Succeed", MistakeKind.LOGIC)),
        ("UnflaggedEnding", "ends_in_error", 9),
    ),
    Line("2.4: no success", draft(MISTAKES), ("TaskSucceed", "no_success", 7)),
    Line(
        "2.4: success in another case", draft(MISTAKES, right("look", "task succeed")), ("TaskSucceed", "no_success", 9)
    ),
    Line("2.4: success too early", draft(MISTAKES, END, right("look")), ("TaskSucceed", "no_success", 11)),
    Line(
        "2.4: success in a thought", draft(MISTAKES, player("look", "Task Succeed")), ("TaskSucceed", "no_success", 8)
    ),
    Line("2.4: no success before too few", draft(right("look")), ("TaskSucceed", "no_success", 1)),
    Line("2.4: no turns", draft(), ("TaskSucceed", "no_turns", 0)),
    Line("2.4: no errors, starts over", draft(right("go to hall"), END), ("EnoughMistakes", "too_few_errors", 3)),
    Line("2.4: one error, starts over", draft(wrong("fly"), END), ("EnoughMistakes", "too_few_errors", 3)),
    Line("2.4: fewer than asked", WHOLE, ("EnoughMistakes", "too_few_errors", LAST), minimum=3),
    # 3. All turns passed.
    Line("3: kept", WHOLE, None),
    Line("3: kept with an opening observation", draft(dm("You wake up."), MISTAKES, END), None),
    Line("3: none asked for", draft(END), None, minimum=0),
    # A part of a trajectory: nothing is asked of its end.
    Line("part: no ending", draft(MISTAKES, finished=False), None),
    Line("part: too few errors", draft(right("look"), finished=False), None),
    Line("part: ends in error", draft(wrong("fly"), finished=False), None),
    Line("part: action not answered yet", draft(player("fly"), finished=False), None),
    Line("part: nothing yet", draft(finished=False), None),
    Line(
        "part: an invalid action",
        draft(right("fly"), right("look"), finished=False),
        ("ValidActions", "unknown_action", 0),
    ),
)


@pytest.mark.parametrize("line", LINES, ids=[line.name for line in LINES])
def test_algorithm_one(line: Line) -> None:
    verdict = verify(line.draft, agentrefine(line.minimum))

    found = [(violation.rule, violation.code, violation.turn) for violation in verdict.violations]
    assert found == ([] if line.found is None else [line.found])
    assert verdict.accepted == (line.found is None)
    assert verdict.verified_turns == line.kept
