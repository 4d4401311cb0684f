"""Outcomes of mistakes: the single definition of a refinement, for rules, counts and readers of a trajectory.

A mistake is *answered*, *abandoned* or *unanswered*; answered and abandoned mistakes count as refined.

In an imagined world, any different action that the DungeonMaster accepts within a few player turns answers a mistake,
because a program cannot judge more. In an executed world (the script has a working rulebook), the outcome decides;
docs/rules.md states the cases. Further calls in the message of a mistake answer nothing, because they were made before
its result was known.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from refinesynth.actions.matching import action_key, match_pattern
from refinesynth.rules.rule import BuiltInRule, Exchange, Violation, exchanges, is_complete
from refinesynth.rules.world_replay import replay_draft
from refinesynth.text.formatting import folded, quoted
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, Refinements, Trajectory
from refinesynth.trajectory.turns import answered_turns
from refinesynth.world import mentions

REPAIR_WINDOW = 3
"""Number of player turns after a mistake within which a one-action repair must come; the default of `RealRefinement`.
"""


class Repair(NamedTuple):
    """A mistake and its outcome."""

    mistake: Exchange
    answer: int | None
    """Index of the player turn that answers it; None without an answer."""
    accepted: int | None
    """Index of the first different, accepted player turn after it, in an imagined world within the window; None without
    one."""
    next_player: int
    """Index of the first player turn after its message; the number of turns if there is none."""
    is_pending: bool
    """True if an answer can still come."""
    second_attempt: bool = False
    """True if it is a second attempt: the turn before it was a mistake too."""
    late: bool = False
    """True if its answer came later than necessary; executed worlds only."""
    abandoned: bool = False
    """True if the goal was reached without it; executed worlds only."""


def refinements(trajectory: Trajectory) -> Refinements:
    """Return the counts recorded at a trajectory's acceptance, or count now."""
    recorded = trajectory.provenance.refinements
    return count_refinements(repairs(trajectory.draft())) if recorded is None else recorded


def count_refinements(outcomes: Sequence[Repair]) -> Refinements:
    """Return the number of mistakes by outcome."""
    abandoned = sum(repair.abandoned for repair in outcomes)
    answered = sum(repair.answer is not None for repair in outcomes)
    return Refinements(
        answered=answered,
        abandoned=abandoned,
        unanswered=len(outcomes) - answered - abandoned,
        again=sum(repair.second_attempt for repair in outcomes),
        late=sum(repair.late for repair in outcomes),
    )


def repairs(draft: Draft, within: int = REPAIR_WINDOW) -> tuple[Repair, ...]:
    """Return the outcome of each mistake of a draft, in order. Never raises; transient failures are skipped. Linear
    time in the number of turns.
    """
    steps = [step for step in exchanges(draft.turns) if not step.transient]
    if not any(step.flagged for step in steps):
        return ()
    outcomes = _Outcomes(draft, steps, within)
    return tuple(outcomes.repair(number) for number, step in enumerate(steps) if step.flagged)


class _Outcomes:
    """Exchanges of a draft, numbered, with the world's rulings if it can be executed."""

    def __init__(self, draft: Draft, steps: Sequence[Exchange], within: int) -> None:
        self._steps, self._within, self._complete = steps, within, is_complete(draft)
        self._turns = len(draft.turns)
        self._played = replay_draft(draft) if draft.script.grounded else None
        self._replayed = {} if self._played is None else {step.turn: step for step in self._played.exchanges}
        self._accepted = list(accumulate((step.accepted for step in steps), initial=0))
        """Number of accepted steps before each step."""
        self._script = draft.script
        self._resolved: dict[int, tuple[int, int | None]] = {}
        """Index of a refused turn to the step that established its requirement, and the number of actions for that."""
        self._succeeded: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        self._refused: dict[tuple[str, ...], int] = {}
        """Last refused step of each action."""
        for number, step in enumerate(steps):
            if (replayed := self._replayed.get(step.turn)) is None:
                continue
            self._resolved.update((resolved.turn, (number, resolved.needed)) for resolved in replayed.resolved)
            if step.accepted:
                self._succeeded[self._key(number)].append(number)
            elif step.flagged:
                self._refused[self._key(number)] = number

    def _key(self, number: int) -> tuple[str, ...]:
        """Return the meaning of a step's action."""
        return action_key(self._script, self._steps[number].player.action)

    def repair(self, number: int) -> Repair:
        """Return the outcome of a flagged step."""
        steps, mistake, complete = self._steps, self._steps[number], self._complete
        # The first step after its message.
        first = next((i for i in range(number + 1, len(steps)) if not steps[i].player.parallel), len(steps))
        window = steps[first : first + self._within]
        retake = window[0].turn if window else self._turns
        second_attempt = number > 0 and steps[number - 1].flagged and not mistake.player.parallel
        known = self._replayed.get(mistake.turn)
        # A flag that the rulebook contradicts, or a draft that cannot be replayed, is left to `Replays`; it counts as
        # imagined here.
        if self._played is None or known is None or known.ruling.kind is None:
            accepted = self._first_different(number, first, first + len(window))
            waits = not complete and (len(window) < self._within or window[-1].next_turn is None)
            return Repair(mistake, accepted, accepted, retake, waits, second_attempt)
        met, needed = self._resolved.get(mistake.turn, (None, None))
        answers: list[int] = []
        if met is not None and needed is not None and first <= met < first - 1 + needed + self._within:
            answers.append(met)
        succeeded = self._succeeded.get(self._key(number), [])
        answers += succeeded[bisect_left(succeeded, first) :][:1]
        if known.ruling.action is None:
            answers += (i for i in range(first, first + len(window)) if self._is_intended(known.action, steps[i]))
        answer = min(answers, default=None)
        required = needed if met == answer and needed is not None else 1
        return Repair(
            mistake,
            None if answer is None else steps[answer].turn,
            self._first_different(number, first, len(steps)),
            retake,
            is_pending=not complete,
            second_attempt=second_attempt,
            late=answer is not None and self._accepted[answer + 1] - self._accepted[first] > required,
            abandoned=answer is None
            and complete
            and self._played.exchanges[-1].ruling.done
            and self._refused[self._key(number)] == number,
        )

    def _first_different(self, number: int, begin: int, end: int) -> int | None:
        """Return the index of the first accepted player turn in these steps that differs from a step, if any."""
        first = bisect_right(self._accepted, self._accepted[begin]) - 1
        different = (i for i in range(first, end) if self._steps[i].accepted and self._key(i) != self._key(number))
        return next((self._steps[i].turn for i in different), None)

    def _is_intended(self, text: str, step: Exchange) -> bool:
        """Return whether an accepted action is the intended one of an unknown text."""
        replayed = self._replayed.get(step.turn)
        if self._played is None or replayed is None or not step.accepted:
            return False
        ruling = replayed.ruling
        spec = next((spec.spec for spec in self._played.world.actions if spec.spec.name == ruling.action), None)
        return spec is not None and (
            folded(replayed.action).partition(" ")[0] == folded(text).partition(" ")[0]
            or match_pattern(spec, text) is not None
            or any(mentions(text, value) for value in ruling.values.values())
        )


class Mark(NamedTuple):
    """Label of a player turn, see `repairs`."""

    label: Literal["mistake", "refinement", "abandoned", "unanswered"]
    """A flagged action; one that answers mistakes; or the first different, accepted one after abandoned or unanswered
    mistakes."""
    mistakes: tuple[int, ...] = ()
    """Indices of the mistakes before it that it belongs to."""
    kind: MistakeKind | None = None
    """Kind of a mistake."""


def marks(draft: Draft) -> dict[int, Mark]:
    """Return the labels of turns by index; other turns are not included."""
    labels = {
        index: Mark("mistake", kind=answer.mistake_kind)
        for index, _, answer in answered_turns(draft.turns)
        if answer.flagged
    }
    outcomes = repairs(draft)
    # The last of several labels counts.
    for label in ("unanswered", "abandoned", "refinement"):
        mistakes = defaultdict[int, list[int]](list)
        for repair in outcomes:
            outcome = "refinement" if repair.answer is not None else "abandoned" if repair.abandoned else "unanswered"
            index = repair.accepted if repair.answer is None else repair.answer
            if outcome == label and index is not None:
                mistakes[index].append(repair.mistake.turn)
        labels.update((index, Mark(label, tuple(indices))) for index, indices in mistakes.items())
    return labels


class EnoughMistakes(BuiltInRule):
    """At least `minimum` DungeonMaster turns have a flag (Algorithm 1); else code `too_few_errors`.

    The only failure of Algorithm 1 that starts over from nothing. Reported at the last turn, after all other checks.
    Unfinished drafts pass.
    """

    minimum: Annotated[int, Field(ge=0)] = 2
    """The paper's text says two; its printed pseudo-code compares with one by mistake."""

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


class RealRefinement(BuiltInRule):
    """Each mistake is refined; else code `not_refined`, at the player turn right after its message.

    In an imagined world, a different action must be accepted within a few player turns. In an executed world, the
    mistake must be answered or abandoned, as defined in `repairs`. Actions are compared by effect, see `action_key`.
    An unfinished draft passes while an answer can still come. A transient failure answers nothing and is not counted; a
    retry is allowed.
    """

    within: Annotated[int, Field(ge=1)] = REPAIR_WINDOW
    """Number of player turns after the mistake within which the answer must come. In an executed world, a repair of
    several actions has one more for each further action."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for repair in repairs(draft, self.within):
            if repair.answer is None and not repair.abandoned and not repair.is_pending:
                yield self.violation(repair.next_player, "not_refined", self._message(repair))

    def _message(self, repair: Repair) -> str:
        action = quoted(repair.mistake.player.action)
        if repair.accepted is not None:
            return (
                f"{action} was refused, and nothing that was done since answers it. See to what it lacked, even if that takes several "
                "actions, or reach the goal without it and do not try it again."
            )
        return (
            f"The mistake in turn {repair.mistake.turn + 1}, {action}, is not repaired: one of the next "
            f"{self.within} player turns must be a different action that the DM accepts."
        )


class NoRepeatedMistake(BuiltInRule):
    """No refused action is repeated unchanged; else code `mistake_repeated`.

    The exception is an action that is now accepted, after another accepted one in between: an action that failed in the
    hall may work in the kitchen. Before its answer, only the second condition is checked. In an executed world, a
    refusal with effects counts as a change too. Actions are compared by their effect, see `action_key`. A transient
    failure is no refusal and may be retried; it changes nothing either.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        refused: dict[tuple[str, ...], int] = {}
        # Those of `refused` since which no other action was accepted, nor had a price.
        unchanged = set[tuple[str, ...]]()
        replayed = replay_draft(draft) if draft.script.grounded else None
        steps = replayed.exchanges if replayed else ()
        with_effects = {step.turn for step in steps if step.changes_state and step.ruling.kind is not None}
        for step in exchanges(draft.turns):
            action = action_key(draft.script, step.player.action)
            if action in refused and (step.flagged or action in unchanged):
                reason = "and calls wrong again" if action not in unchanged else "though nothing has changed since"
                message = (
                    f"Turn {step.turn + 1} repeats {quoted(step.player.action)}, which the DM called wrong in turn "
                    f"{refused[action] + 2}, {reason}. Try something different."
                )
                yield self.violation(step.turn, "mistake_repeated", message)
            if step.flagged:
                refused.setdefault(action, step.turn)
                unchanged.add(action)
                if step.turn in with_effects:
                    unchanged.clear()
            elif step.accepted and not step.transient:
                unchanged &= {action}
