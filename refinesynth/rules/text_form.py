"""Rules about the form of a draft: readable JSON, required keys, alternating roles, sizes, and text that can be read
back.

`ReadableText` and `RequiredKeys` are the beginning of Algorithm 1 (paper, section 3.2); the others are ours.
"""

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Annotated

from pydantic import Field

from refinesynth.chat import parse_player, render_player
from refinesynth.rules.rule import BuiltInRule, Violation, exchanges, is_complete
from refinesynth.text.formatting import control_character, quoted
from refinesynth.trajectory import Draft, DraftTurn, Liberty, MalformedTurn, PlayerTurn

KEYS = (
    'A player turn has "role": "Player", "thought" and "action"; a DM turn has "role": "DM", "thought", the booleans '
    '"parameter_error", "place_error" and "logic_error", and "observation".'
)
"""Required keys of each role in Algorithm 1, for the message about a missing one."""


class ReadableText(BuiltInRule):
    """The model's text parses as JSON turns; else code `not_json`, after the readable turns."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        if draft.text_error is not None:
            message = (
                f"Your answer could not be read: {draft.text_error}. Answer with one JSON object with the key "
                '"turns", the list of turns, and nothing else.'
            )
            yield self.violation(len(draft.turns), "not_json", message)


class RequiredKeys(BuiltInRule):
    """Every turn has the required keys of its role, with values of the right type; else code `wrong_keys`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for index, turn in enumerate(draft.turns):
            if isinstance(turn, MalformedTurn):
                yield self.violation(index, "wrong_keys", f"Turn {index + 1} is malformed: {turn.problem}. {KEYS}")


class Alternation(BuiltInRule):
    """Player and DungeonMaster alternate, and either may begin; else code `role_repeats`. Malformed turns are skipped."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for number, (previous, turn) in enumerate(pairwise(draft.turns), start=1):
            if previous.role == turn.role and not isinstance(turn, MalformedTurn):
                message = f"Turns {number} and {number + 1} are both the {turn.role}'s. Player and DM must take turns."
                yield self.violation(number, "role_repeats", message)


class NothingBlank(BuiltInRule):
    """A player's thought and action and a DungeonMaster's observation are not blank; else code `blank`. A
    DungeonMaster's thought may be blank, because it is not shown. A further call of a message needs no thought, because
    it has the thought of the first.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for index, turn in enumerate(draft.turns):
            if turn.role == "Player":
                texts = (("thought", turn.thought or "-" * turn.parallel), ("action", turn.action))
            elif turn.role == "DM":
                texts = (("observation", turn.observation),)
            else:
                continue
            if blank := [name for name, text in texts if not text or text.isspace()]:
                message = f"Turn {index + 1} has no {' and no '.join(blank)}. Write it in a sentence or more."
                yield self.violation(index, "blank", message)


PRINTED = (
    'A player turn has the keys "turn", "role" ("Player"), "Thought" and "Action"; a DM turn has "turn", "role" ("DM"), "Thought", '
    '"Observation", "parameter_error", "place_error" and "logic_error".'
)
"""The keys as printed in the paper."""

_TEXT = {
    Liberty.FENCED: "stands in a code fence",
    Liberty.MENDED_JSON: "is no JSON as it stands: something is around it, missing or broken",
}
_TURN = {
    Liberty.EXTRA_KEYS: "has keys that a turn of its role does not have",
    Liberty.SPELLING: "spells keys or the role otherwise",
    Liberty.UNNUMBERED: 'has no key "turn"',
    Liberty.TEXT_BOOLEANS: "has flags that are neither true nor false",
}


class ToTheLetter(BuiltInRule):
    """The text had no deviations except for `allow`; else code `not_json` or `wrong_keys`.

    Deviations are extra keys, keys in another spelling than the paper's, turns without a number, flags other than
    JSON's true and false, and JSON in a code fence or repaired (see `Liberty`). They are known only after reading a
    whole answer: drafts from turn-by-turn play or from our files pass.
    """

    allow: tuple[Liberty, ...] = ()
    """Accepted deviations. Our own prompts ask for `spelling` and `unnumbered`; a run that refuses them accepts
    nothing."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        keys = KEYS if Liberty.SPELLING in self.allow else PRINTED
        refused = (deviations for deviations in draft.liberties if deviations[1] not in self.allow)
        for i, deviations in groupby(refused, key=itemgetter(0)):
            liberties = [liberty for _, liberty in deviations]
            if texts := [_TEXT[liberty] for liberty in liberties if liberty in _TEXT]:
                message = f"Your answer {' and '.join(texts)}. Answer with JSON alone."
                yield self.violation(i, "not_json", message)
            if turns := [_TURN[liberty] for liberty in liberties if liberty in _TURN]:
                message = (
                    f"Turn {i + 1} {' and '.join(turns)}. {keys} There are no others, and errors are true or false."
                )
                yield self.violation(i, "wrong_keys", message)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(allow={tuple(map(str, self.allow))!r})"  # as it is written in a chain


class TurnLimit(BuiltInRule):
    """The draft has at most `most` turns; else code `too_many_turns`, which starts over because a prefix of that length
    leaves no room for an ending.
    """

    most: Annotated[int, Field(ge=1)] = 100
    """Number of turns of both roles."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        turns = len(draft.turns)
        if turns > self.most:
            message = f"There are {turns} turns, at most {self.most} are allowed. Reach the goal in fewer turns."
            yield self.violation(self.most, "too_many_turns", message, keeps_prefix=False)


class SizeLimits(BuiltInRule):
    """Turns and trajectories do not exceed these lengths.

    Codes: `turn_too_long`, which keeps the turns before it, and `too_long`, which starts over.
    """

    turn: Annotated[int, Field(ge=1)] = 8_000
    """Characters of one turn: thought and action, or thought and observation."""
    total: Annotated[int, Field(ge=1)] = 60_000
    """Characters of all turns; about 15,000 tokens of English."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        total = 0
        for i, turn in enumerate(draft.turns):
            size = len(_text(turn))
            if size > self.turn:
                message = f"Turn {i + 1} has {size:,} characters, at most {self.turn:,} are allowed. Write it shorter."
                yield self.violation(i, "turn_too_long", message)
            total += size
            if total > self.total:
                message = f"The turns have more than {self.total:,} characters. Write a shorter trajectory."
                yield self.violation(i, "too_long", message, keeps_prefix=False)
                return


class ReadsBack(BuiltInRule):
    """A player turn as rendered by `chat` is read back as the same thought and action, except for surrounding blanks;
    else code `ambiguous_text`.

    Otherwise a model would learn to write text that cannot be parsed: a thought with a line `Action: ...`, or an action
    with two paragraphs or in quotes. Flagged turns are not trained on and may be anything; the last turn of an
    unfinished draft may still be flagged.

    No turn holds a control character, such as NUL or ESC; else code `control_character`.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for index, turn in enumerate(draft.turns):
            if not isinstance(turn, MalformedTurn) and (character := control_character(_text(turn))):
                message = f"Turn {index + 1} holds the control character {character}. Write it without."
                yield self.violation(index, "control_character", message)
        for step in exchanges(draft.turns):
            if step.flagged or (step.next_turn is None and not is_complete(draft)):
                continue
            if problem := _problem(step.player):
                message = (
                    f'Turn {step.turn + 1}, written as "Thought: ..." and "Action: ...", {problem}. Begin no line of a text with '
                    "such a label, and write the Action without quotes around it and without a blank line."
                )
                yield self.violation(step.turn, "ambiguous_text", message)


def _text(turn: DraftTurn) -> str:
    if isinstance(turn, MalformedTurn):
        return turn.raw
    return turn.thought + (turn.action if isinstance(turn, PlayerTurn) else turn.observation)


def _problem(turn: PlayerTurn) -> str | None:
    action = turn.action.strip()
    if action[:1].isalnum() and "\n" not in action and ":" not in action and ":" not in turn.thought:
        return None  # no label, no quotes, one line: reading it would find just that
    try:
        parsed = parse_player(render_player(turn))
    except ValueError as error:
        return f"cannot be read: {error}"
    if (parsed.thought, parsed.action) == (turn.thought.strip(), action):
        return None
    return f"reads as the thought {quoted(parsed.thought)} and the action {quoted(parsed.action)}"
