"""A draft that grows turn by turn: what was verified before needs not be read again after each exchange."""

from refinesynth.rules.actions import NoFalseAlarm, ValidActions
from refinesynth.rules.form import NothingBlank, RequiredKeys
from refinesynth.rules.grounded import Replays
from refinesynth.rules.knowing import KnowsOnlyWhatWasSeen
from refinesynth.rules.leaks import NoLeaks
from refinesynth.rules.rendering import ReadsBack
from refinesynth.rules.replaying import ReplayRule
from refinesynth.rules.rule import All, FirstFailure, Rule, Warn, rejects
from refinesynth.rules.words import WordsAgree
from refinesynth.trajectory import Draft

_LOCAL = frozenset({NoFalseAlarm, NoLeaks, NothingBlank, ReadsBack, RequiredKeys, ValidActions})
"""Rules whose objection to a turn depends on that turn, the one after it and the script alone. Not their subclasses."""

_REPLAYING = frozenset({KnowsOnlyWhatWasSeen, Replays, WordsAgree})
"""Rules that play a draft again and need not say again what they said of its beginning. Not their subclasses."""


def still_passes(draft: Draft, rule: Rule, *, verified: int) -> bool:
    """Whether `rule` accepts `draft`, of which it has accepted the first `verified` turns as an unfinished draft.

    If so, `verify` accepts it too, perhaps with warnings, which are not looked for here. If not, only `verify` can tell: a
    turn may look wrong without those before it.
    """
    if verified and draft.turns[verified - 1].role == "Player":
        verified -= 1  # the first new turn may be the answer to it
    return _passes(draft, draft.model_copy(update={"turns": draft.turns[verified:]}), rule)


def _passes(draft: Draft, new: Draft, rule: Rule) -> bool:
    if isinstance(rule, All | FirstFailure):
        return all(_passes(draft, new, one) for one in rule.rules)
    if (
        isinstance(rule, ReplayRule) and type(rule) in _REPLAYING
    ):  # which need what is before, but need not say it again
        return not any(map(rejects, rule.since(draft, len(draft.turns) - len(new.turns))))
    return isinstance(rule, Warn) or not any(map(rejects, rule(new if type(rule) in _LOCAL else draft)))
