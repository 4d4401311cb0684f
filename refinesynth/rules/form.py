"""The form of a draft: that it can be read, that its turns have their keys and say something, and that the voices
alternate.

The first two begin Algorithm 1 (paper, section 3.2); the others are ours.
"""

from collections.abc import Iterator
from itertools import pairwise

from pydantic.dataclasses import dataclass

from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.trajectory import Draft, MalformedTurn

KEYS = (
    'A player turn has "role": "Player", "thought" and "action"; a DM turn has "role": "DM", "thought", the booleans '
    '"parameter_error", "place_error" and "logic_error", and "observation".'
)
"""What Algorithm 1 requires of each role, named in the message about a missing key."""


@dataclass(frozen=True, config=FIELDS)
class ReadableText(BaseRule, built_in=True):
    """The model's text parses as JSON turns; else code `not_json`, after the turns that were read before it."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        if draft.text_error is not None:
            message = (
                f"Your answer could not be read: {draft.text_error}. Answer with one JSON object with the key "
                '"turns", the list of turns, and nothing else.'
            )
            yield self.violation(len(draft.turns), "not_json", message)


@dataclass(frozen=True, config=FIELDS)
class RequiredKeys(BaseRule, built_in=True):
    """Every turn has the keys required of its role, with values of the right type; else code `wrong_keys`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for at, turn in enumerate(draft.turns):
            if isinstance(turn, MalformedTurn):
                yield self.violation(at, "wrong_keys", f"Turn {at + 1} is malformed: {turn.problem}. {KEYS}")


@dataclass(frozen=True, config=FIELDS)
class Alternation(BaseRule, built_in=True):
    """Player and DM take turns, either may begin; else code `role_repeats`. Malformed turns are passed over."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for at, (before, turn) in enumerate(pairwise(draft.turns), start=1):
            if before.role == turn.role and not isinstance(turn, MalformedTurn):
                message = f"Turns {at} and {at + 1} are both the {turn.role}'s. Player and DM must take turns."
                yield self.violation(at, "role_repeats", message)


@dataclass(frozen=True, config=FIELDS)
class NothingBlank(BaseRule, built_in=True):
    """A player thinks and acts, a DM answers; else code `blank`. A DM's thought may be blank: it is not shown."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for at, turn in enumerate(draft.turns):
            if turn.role == "Player":
                said = (("thought", turn.thought), ("action", turn.action))
            elif turn.role == "DM":
                said = (("observation", turn.observation),)
            else:
                continue
            if blank := [name for name, text in said if not text or text.isspace()]:
                message = f"Turn {at + 1} has no {' and no '.join(blank)}. Write it in a sentence or more."
                yield self.violation(at, "blank", message)
