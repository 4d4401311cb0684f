"""Rules about the end of a trajectory: success at the end, and not earlier.

Algorithm 1 requires success in the last turn. An unfinished draft needs no ending.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from refinesynth.actions.wording import quoted
from refinesynth.rules.exchanges import is_complete
from refinesynth.rules.rule import BuiltInRule, Violation
from refinesynth.trajectory import Draft, DungeonMasterTurn

SUCCESS = "Task Succeed"
"""Text in the last observation of a successful trajectory (paper, section 3.2)."""


class UnflaggedEnding(BuiltInRule):
    """The closing DungeonMaster turn has no flag; else code `ends_in_error`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        last = draft.turns[-1] if draft.turns else None
        if is_complete(draft) and isinstance(last, DungeonMasterTurn) and last.flagged:
            message = "The last turn flags an error. Let the player correct it, and end when the goal is reached."
            yield self.violation(len(draft.turns) - 1, "ends_in_error", message)


class TaskSucceed(BuiltInRule):
    """The last turn is an observation with `phrase`; else code `no_success`, or `no_turns` for an empty draft."""

    phrase: Annotated[str, Field(min_length=1)] = SUCCESS
    """Compared exactly, including case, as in the paper."""

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


class SucceedsOnce(BuiltInRule):
    """No observation before the last turn contains `phrase`, and none with a flag; else code `success_too_early`.

    A player that reads the phrase has finished; with further turns it would learn that success is no reason to stop. If
    the text is unreadable after some turn, that turn is not the last, because the verified prefix would contain the
    success and could not be continued.
    """

    phrase: Annotated[str, Field(min_length=1)] = SUCCESS
    """Compared exactly, as in `TaskSucceed`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        last = len(draft.turns) - 1 if draft.text_error is None else len(draft.turns)
        for i, turn in enumerate(draft.turns):
            if isinstance(turn, DungeonMasterTurn) and self.phrase in turn.observation and (i < last or turn.flagged):
                place = "beside an error flag" if turn.flagged else "before the end"
                message = (
                    f"Turn {i + 1} says {quoted(self.phrase)} {place}. Say it once, in the observation of the last turn, "
                    "when every completion condition holds."
                )
                yield self.violation(i, "success_too_early", message)
