"""Mistakes and their repair: what makes a trajectory worth refining on."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from refinesynth.actions.matching import meaning
from refinesynth.actions.wording import quoted
from refinesynth.rules.exchanges import exchanges, is_complete
from refinesynth.rules.repairs import WITHIN, Repair, repairs
from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.trajectory import Draft, DungeonMasterTurn


@dataclass(frozen=True, config=FIELDS)
class EnoughMistakes(BaseRule, built_in=True):
    """At least `minimum` DM turns flag an error (Algorithm 1); else code `too_few_errors`.

    The one failure of Algorithm 1 that keeps no prefix: generation starts over from nothing. Reported at the last turn,
    after all other checks. Unfinished drafts pass.
    """

    minimum: Annotated[int, Field(ge=0)] = 2
    """The paper's method says two; its printed pseudo-code compares with one, a slip."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        if not is_complete(draft):
            return
        errors = sum(1 for turn in draft.turns if isinstance(turn, DungeonMasterTurn) and turn.flagged)
        if errors < self.minimum:
            message = (
                f"The trajectory has {errors} turns with an error flag and needs at least {self.minimum}. Start over: let "
                "the player make that many plausible mistakes, each noticed from the DM's answer and then corrected."
            )
            yield self.violation(max(len(draft.turns) - 1, 0), "too_few_errors", message, keeps_prefix=False)


@dataclass(frozen=True, config=FIELDS)
class RealRefinement(BaseRule, built_in=True):
    """Each mistake is answered within a few player turns by an action that is accepted; else `not_refined`.

    Where the world is imagined, any different action counts. Where it is executed, it has to answer the mistake: what
    was refused succeeds, what it lacked is there, what was meant is done, or the plan is given up for a reason;
    `repairs` says what exactly is looked at. Blamed is the last player turn that could have been the answer. Actions
    are compared by what they do, see `meaning`. While an unfinished draft can still bring the answer in time, it
    passes. An action that failed for a moment answers nothing yet and is not counted: it may be tried again.
    """

    within: Annotated[int, Field(ge=1)] = WITHIN
    """How many player turns after the mistake may pass until the answer, that one included."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for found in repairs(draft, self.within):
            if found.answer is None and not found.waits:
                yield self.violation(found.last, "not_refined", self._message(found))

    def _message(self, found: Repair) -> str:
        wrong = quoted(found.mistake.player.action)
        if found.unrelated is not None:
            return (
                f"{wrong} was refused, and nothing that was done since has to do with it. Within the next {self.within} actions, see to what "
                "it lacked, or say in the next thought what stood in its way or why it is not needed, and do something else."
            )
        return (
            f"The mistake in turn {found.mistake.at + 1}, {wrong}, is not repaired: one of the next "
            f"{self.within} player turns must be a different action that the DM accepts."
        )


@dataclass(frozen=True, config=FIELDS)
class NoRepeatedMistake(BaseRule, built_in=True):
    """No action is taken again, unchanged, after it was called wrong; else code `mistake_repeated`.

    The exception is an action that the DM now accepts, after it accepted another one in between: what failed in the
    hall may work in the kitchen. While it is not answered, only the latter is asked. Compared by what they do, see
    `meaning`. What failed for a moment was not called wrong and may be tried again; it changed nothing either.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        wrong: dict[tuple[str, ...], int] = {}
        unchanged = set[tuple[str, ...]]()  # Those of `wrong` since which no other action was accepted.
        for step in exchanges(draft.turns):
            action = meaning(draft.script, step.player.action)
            if action in wrong and (step.flagged or action in unchanged):
                since = "and calls wrong again" if action not in unchanged else "though nothing has changed since"
                message = (
                    f"Turn {step.at + 1} repeats {quoted(step.player.action)}, which the DM called wrong in turn "
                    f"{wrong[action] + 2}, {since}. Try something different."
                )
                yield self.violation(step.at, "mistake_repeated", message)
            if step.flagged:
                wrong.setdefault(action, step.at)
                unchanged.add(action)
            elif step.accepted and not step.transient:
                unchanged &= {action}
