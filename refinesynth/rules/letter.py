"""Algorithm 1 to the letter: the printed form and no other."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType

from pydantic.dataclasses import dataclass

from refinesynth.rules.form import KEYS
from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.trajectory import Draft, Liberty

PRINTED = (
    'A player turn has the keys "turn", "role" ("Player"), "Thought" and "Action"; a DM turn has "turn", "role" ("DM"), "Thought", '
    '"Observation", "parameter_error", "place_error" and "logic_error".'
)
"""The keys as the paper prints them."""

_TEXT: Mapping[Liberty, str] = MappingProxyType(
    {
        Liberty.FENCED: "stands in a code fence",
        Liberty.MENDED_JSON: "is no JSON as it stands: something is around it, missing or broken",
    }
)
_TURN: Mapping[Liberty, str] = MappingProxyType(
    {
        Liberty.EXTRA_KEYS: "has keys that a turn of its role does not have",
        Liberty.SPELLING: "spells keys or the role otherwise",
        Liberty.UNNUMBERED: 'has no key "turn"',
        Liberty.TEXT_BOOLEANS: "has flags that are neither true nor false",
    }
)


@dataclass(frozen=True, config=FIELDS)
class ToTheLetter(BaseRule, built_in=True):
    """Nothing had to be let pass when the draft was read, but for `allow`; else codes `not_json`, `wrong_keys`.

    What is let pass otherwise: extra keys, keys in another spelling than the paper's, turns without a number, flags
    that are not JSON's true or false, JSON in a code fence or repaired (see `Liberty`). Only a reader of a whole answer
    knows of it: a draft that was played turn by turn, or read from a file of ours, passes.
    """

    allow: tuple[Liberty, ...] = ()
    """What may pass all the same. Our own prompts ask for `spelling` and `unnumbered`: a run that refuses these accepts
    nothing."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        keys = KEYS if Liberty.SPELLING in self.allow else PRINTED
        refused = (taken for taken in draft.liberties if taken[1] not in self.allow)
        for at, taken in groupby(refused, key=itemgetter(0)):
            found = [one for _, one in taken]
            if texts := [_TEXT[one] for one in found if one in _TEXT]:
                message = f"Your answer {' and '.join(texts)}. Answer with JSON alone."
                yield self.violation(at, "not_json", message)
            if turns := [_TURN[one] for one in found if one in _TURN]:
                message = (
                    f"Turn {at + 1} {' and '.join(turns)}. {keys} There are no others, and errors are true or false."
                )
                yield self.violation(at, "wrong_keys", message)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(allow={tuple(map(str, self.allow))!r})"  # as it is written in a chain
