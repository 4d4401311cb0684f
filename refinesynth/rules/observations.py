"""That the DungeonMaster is not stuck."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from refinesynth.actions.wording import folded, quoted
from refinesynth.rules.exchanges import exchanges
from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.trajectory import Draft


@dataclass(frozen=True, config=FIELDS)
class FreshObservations(BaseRule, built_in=True):
    """The same observation answers only so many accepted actions of one trajectory; else code `observation_repeats`.

    Looking twice may well show the same, and so may entering a room and then looking round; a text that comes once more
    is a DM that no longer says what the action did, or a player who goes in circles. Answers to mistakes and to
    transient failures are left out: an error may be worded alike each time. Texts are compared without regard to case
    and white space.
    """

    times: Annotated[int, Field(ge=1)] = 2
    """How many accepted actions one text may answer."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        seen: Counter[str] = Counter()
        for step in exchanges(draft.turns):
            if step.answer is None or step.answer.flagged or step.transient:
                continue
            text = folded(step.answer.observation)
            seen[text] += 1
            if seen[text] > self.times:
                message = (
                    f"Turn {step.at + 2} gives the observation {quoted(step.answer.observation)}, which has answered "
                    f"{_counted(seen[text] - 1)} before. "
                    f"Say what {quoted(step.player.action)} changed or showed, with what is particular to it."
                )
                yield self.violation(step.at + 1, "observation_repeats", message)


def _counted(actions: int) -> str:
    return "an action" if actions == 1 else f"{actions} actions"
