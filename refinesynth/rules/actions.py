"""Rules about the DungeonMaster's answers: they agree with the script on an action's form, and say something new."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from refinesynth.actions.matching import explain_mismatch, match_in
from refinesynth.actions.wording import folded, quoted
from refinesynth.rules.exchanges import exchanges
from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn


@dataclass(frozen=True, config=FIELDS)
class ValidActions(BaseRule, built_in=True):
    """An action that the DM does not call wrong matches an available action (Algorithm 1, the player's part).

    Checked of a player turn whose next turn is an unflagged DM turn, or another player turn, as then it was not flagged
    either. An action that the DM called wrong may be anything, and of one that was not answered yet nothing is known.
    Codes: `unknown_action`, `value_not_allowed`, `empty_action`, `action_too_long`.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        script = draft.script
        for step in exchanges(draft.turns):
            if not (step.accepted or isinstance(step.after, PlayerTurn)):
                continue
            if match_in(script, step.player.action) is None:
                found = explain_mismatch(script.actions, step.player.action)
                fix = "Take an available action with allowed values, or let the DM flag parameter_error."
                yield self.violation(step.at, found.code, f"Turn {step.at + 1}: {found.message} {fix}")


@dataclass(frozen=True, config=FIELDS)
class NoFalseAlarm(BaseRule, built_in=True):
    """The DM flags no `parameter_error` on an action that matches pattern and parameters; else code `false_alarm`.

    Of the turns that the paper's DM called wrong, 18 % were right by human judgement; this finds those that a rule can
    find. An opening DM turn flags nothing at all, or it would count as a mistake without an action; else code
    `nothing_to_judge`.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        opening = draft.turns[0] if draft.turns else None
        if isinstance(opening, DungeonMasterTurn) and opening.flagged:
            message = "Turn 1 flags an error before the player has done anything. An opening observation flags none."
            yield self.violation(0, "nothing_to_judge", message)
        for step in exchanges(draft.turns):
            if step.answer is None or not step.answer.parameter_error:
                continue
            found = match_in(draft.script, step.player.action)
            if found is not None:
                message = (
                    f"Turn {step.at + 2} flags parameter_error, but {quoted(step.player.action)} is the available action "
                    f"{quoted(found.action.name)} with allowed values. Judge it by place and state: set place_error or "
                    "logic_error if it fails for such a reason, no flag if it works."
                )
                yield self.violation(step.at + 1, "false_alarm", message)


@dataclass(frozen=True, config=FIELDS)
class FreshObservations(BaseRule, built_in=True):
    """The same observation answers only so many accepted actions of one trajectory; else code `observation_repeats`.

    Looking twice may well show the same, and so may entering a room and then looking round; a text that comes once more
    is a DM that no longer says what the action did, or a player who goes in circles. Answers to mistakes and to
    transient failures are left out: an error may be worded alike each time. Texts are compared without regard to case
    and white space.
    """

    times: Annotated[int, Field(ge=1)] = 2
    """Most accepted actions that one text may answer."""

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
