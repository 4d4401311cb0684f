"""How a trajectory ends (Algorithm 1, the last turn). Of an unfinished draft no ending is asked."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from refinesynth.rules.exchanges import is_complete
from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.rules.wording import quoted
from refinesynth.trajectory import Draft, DungeonMasterTurn


@dataclass(frozen=True, config=FIELDS)
class UnflaggedEnding(BaseRule):
    """The closing DM turn flags no error; else code `ends_in_error`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        last = draft.turns[-1] if draft.turns else None
        if is_complete(draft) and isinstance(last, DungeonMasterTurn) and last.flagged:
            message = "The last turn flags an error. Let the player correct it, and end when the goal is reached."
            yield self.violation(len(draft.turns) - 1, "ends_in_error", message)


@dataclass(frozen=True, config=FIELDS)
class TaskSucceed(BaseRule):
    """The last turn is an observation that contains `phrase`; else code `no_success`, or `no_turns` of an empty draft."""

    phrase: Annotated[str, Field(min_length=1)] = "Task Succeed"
    """Compared exactly, case included, as the paper does."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        if not is_complete(draft):
            return
        if not draft.turns:
            yield self.violation(0, "no_turns", "There are no turns. Write the trajectory from its first turn.")
            return
        last = draft.turns[-1]
        if not (isinstance(last, DungeonMasterTurn) and self.phrase in last.observation):
            message = (
                f"The last turn must be the DM's, with {quoted(self.phrase)} in its observation. Go on until every "
                "completion condition holds, and end so."
            )
            yield self.violation(len(draft.turns) - 1, "no_success", message)
