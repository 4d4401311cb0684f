"""Rules about the DungeonMaster's answers: flags fit the action's form, observations are new, success comes last.

Algorithm 1 requires success in the last turn. An unfinished draft needs no ending.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from refinesynth.actions.matching import explain_mismatch, match_in
from refinesynth.rules.rule import BuiltInRule, Violation, exchanges, is_complete
from refinesynth.text.formatting import folded, quoted
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn


class ValidActions(BuiltInRule):
    """An action without a flag matches an available action (Algorithm 1, the player's part).

    Applies to a player turn followed by an unflagged DungeonMaster turn or by another player turn. A flagged action may
    be anything, and an unanswered one is not judged yet. Codes: `unknown_action`, `value_not_allowed`, `empty_action`,
    `action_too_long`.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        script = draft.script
        for step in exchanges(draft.turns):
            if not (step.accepted or isinstance(step.next_turn, PlayerTurn)):
                continue
            if match_in(script, step.player.action) is None:
                mismatch = explain_mismatch(script.actions, step.player.action)
                fix = "Take an available action with allowed values, or let the DM flag parameter_error."
                yield self.violation(step.turn, mismatch.code, f"Turn {step.turn + 1}: {mismatch.message} {fix}")


class NoFalseAlarm(BuiltInRule):
    """The DungeonMaster sets no `parameter_error` on an action that matches pattern and parameters; else code
    `false_alarm`.

    In the paper, 18 % of the flagged turns were right by human judgement; this rule finds those that a program can
    find. An opening DungeonMaster turn must not have a flag, because it would count as a mistake without an action;
    else code `nothing_to_judge`.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        opening = draft.turns[0] if draft.turns else None
        if isinstance(opening, DungeonMasterTurn) and opening.flagged:
            message = "Turn 1 flags an error before the player has done anything. An opening observation flags none."
            yield self.violation(0, "nothing_to_judge", message)
        for step in exchanges(draft.turns):
            if step.answer is None or not step.answer.parameter_error:
                continue
            match = match_in(draft.script, step.player.action)
            if match is not None:
                message = (
                    f"Turn {step.turn + 2} flags parameter_error, but {quoted(step.player.action)} is the available action "
                    f"{quoted(match.action.name)} with allowed values. Judge it by place and state: set place_error or "
                    "logic_error if it fails for such a reason, no flag if it works."
                )
                yield self.violation(step.turn + 1, "false_alarm", message)


class FreshObservations(BuiltInRule):
    """An observation answers only a limited number of accepted actions of a trajectory; else code
    `observation_repeats`.

    Two looks may show the same, and so may entering a room and looking around. A further repetition means that the
    DungeonMaster no longer describes the action's effect, or that the player goes in circles. Answers to mistakes and
    transient failures are not counted, because errors may be worded alike. Texts are compared without regard to case
    and white space.
    """

    times: Annotated[int, Field(ge=1)] = 2
    """Maximum number of accepted actions with the same observation."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        seen: Counter[str] = Counter()
        for step in exchanges(draft.turns):
            if step.answer is None or step.answer.flagged or step.transient:
                continue
            text = folded(step.answer.observation)
            seen[text] += 1
            if seen[text] > self.times:
                earlier = "an action" if seen[text] == 2 else f"{seen[text] - 1} actions"  # noqa: PLR2004 - one before
                message = (
                    f"Turn {step.turn + 2} gives the observation {quoted(step.answer.observation)}, which has answered "
                    f"{earlier} before. "
                    f"Say what {quoted(step.player.action)} changed or showed, with what is particular to it."
                )
                yield self.violation(step.turn + 1, "observation_repeats", message)


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
