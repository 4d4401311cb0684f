"""Whether a grounded draft says what its rulebook says: every verdict is executed again, none is believed."""

from collections.abc import Iterator

from pydantic.dataclasses import dataclass

from refinesynth.actions.wording import quoted
from refinesynth.rules.ending import SUCCESS
from refinesynth.rules.exchanges import is_complete
from refinesynth.rules.replaying import Answered, Played, world_played
from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind
from refinesynth.world.replaying import world_or_problem

_FLAGS = {
    MistakeKind.PARAMETER: "parameter_error",
    MistakeKind.PLACE: "place_error",
    MistakeKind.LOGIC: "logic_error",
}


@dataclass(frozen=True, config=FIELDS)
class Replays(BaseRule, built_in=True):
    """Carried out by its script's rulebook, the draft's actions give its flags, its progress and its success, turn by
    turn.

    Only the actions and the marks of transient failures are taken from the draft; a transient failure must be one of an
    action that would have changed something, and changes nothing. Codes: `not_grounded` and `done_at_start`, which
    start over, `wrong_flags`, `wrong_progress`, `wrong_transient`, `wrong_success`, `goes_on` after the goal, and
    `cannot_replay` where the voices do not take turns. The words beside it are `WordsAgree`'s affair.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        if not draft.turns and not draft.finished:
            return
        world = world_or_problem(draft.script)
        if isinstance(world, str):
            message = f"The script's world cannot be executed: {world}"
            yield self.violation(0, "not_grounded", message, keeps_prefix=False)
            return
        played = world_played(draft)
        if played is None or played.done:
            message = "The goal is reached before the first action. Write a script whose goal takes something to reach."
            yield self.violation(0, "done_at_start", message, keeps_prefix=False)
            return
        yield from self._opening(draft, played)
        for answered in played.answered:
            yield from self._answer(answered)
            if answered.done:
                break  # what comes after it should not be there at all
        yield from self._whole(draft, played)

    def _opening(self, draft: Draft, played: Played) -> Iterator[Violation]:
        turn = draft.turns[0] if draft.turns else None
        if not isinstance(turn, DungeonMasterTurn):
            return
        if turn.flagged or turn.transient:
            message = (
                "Turn 1 judges an action before the player has done anything. An opening observation flags nothing."
            )
            yield self.violation(0, "wrong_flags", message)
        if turn.progress not in {None, played.progress}:
            yield self.violation(0, "wrong_progress", _progress(1, turn.progress, played.progress))
        if SUCCESS in turn.observation:
            message = f"Turn 1 says {quoted(SUCCESS)}, but nothing has been done yet."
            yield self.violation(0, "wrong_success", message)

    def _answer(self, step: Answered) -> Iterator[Violation]:
        """At most one violation for each thing that is recorded of an answer."""
        turn, at, number = step.answer, step.at + 1, step.at + 2
        allowed = step.ruling.kind
        if (turn.parameter_error, turn.place_error, turn.logic_error) != tuple(kind is allowed for kind in _FLAGS):
            flagged = [name for name in _FLAGS.values() if getattr(turn, name)]
            right = "none: the action is carried out" if allowed is None else f"{_FLAGS[allowed]}: {step.ruling.text}"
            message = (
                f"Turn {number} flags {' and '.join(flagged) or 'no error'} for {quoted(step.action)}; by the rulebook it is "
                f"{right}"
            )
            yield self.violation(at, "wrong_flags", message)
        if turn.transient and (allowed is not None or not step.changes):
            why = "is a mistake" if allowed is not None else "changes nothing"
            message = (
                f"Turn {number} is a transient failure, but {quoted(step.action)} {why}; only what works fails so."
            )
            yield self.violation(at, "wrong_transient", message)
        if turn.progress != step.progress:
            yield self.violation(at, "wrong_progress", _progress(number, turn.progress, step.progress))
        if step.done != turn.observation.rstrip().endswith(SUCCESS) or turn.observation.count(SUCCESS) > step.done:
            reached = f"reached, so it ends with {quoted(SUCCESS)}" if step.done else "not reached"
            message = f"After turn {number} the goal is {reached}; the observation says something else."
            yield self.violation(at, "wrong_success", message)

    def _whole(self, draft: Draft, played: Played) -> Iterator[Violation]:
        reached = next((step.at for step in played.answered if step.done), None)
        if reached is not None and reached + 2 < len(draft.turns):
            message = f"After turn {reached + 2} the goal is reached, and the play goes on. End it there."
            yield self.violation(reached + 2, "goes_on", message)
        if played.end < len(draft.turns):
            message = f"Turn {played.end + 1} is no answer to an action and no action that is answered; nothing after it can be replayed."
            yield self.violation(played.end, "cannot_replay", message)
        elif is_complete(draft) and reached is None:
            message = "By the rulebook the goal is not reached at the end. Go on until every condition holds."
            yield self.violation(max(len(draft.turns) - 1, 0), "wrong_success", message)


def _progress(number: int, given: float | None, right: float) -> str:
    return f"Turn {number} says that the progress is {given}; by the rulebook it is {right}."
