"""Rules about the DungeonMaster's answers: flags agree with the script on an action's form, and observations are new."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from refinesynth.actions.matching import explain_mismatch, match_in
from refinesynth.actions.wording import folded, quoted
from refinesynth.rules.exchanges import exchanges
from refinesynth.rules.rule import BuiltInRule, Violation
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
