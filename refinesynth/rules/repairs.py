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

from refinesynth.actions.matching import match_pattern, meaning
from refinesynth.actions.wording import folded, quoted
from refinesynth.rules.exchanges import Exchange, exchanges, is_complete
from refinesynth.rules.rule import BuiltInRule, Violation
from refinesynth.rules.world_replay import world_played
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, Refinements, Trajectory, flagged_turns
from refinesynth.world import mentions

WITHIN = 3
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
    retake: int
    """Index of the first player turn after its message; the number of turns if there is none."""
    waits: bool
    """True if an answer can still come."""
    again: bool = False
    """True if it is a second attempt: the turn before it was a mistake too."""
    late: bool = False
    """True if its answer came later than necessary; executed worlds only."""
    abandoned: bool = False
    """True if the goal was reached without it; executed worlds only."""


def refinements(trajectory: Trajectory) -> Refinements:
    """Return the counts recorded at a trajectory's acceptance, or count now."""
    known = trajectory.provenance.refinements
    return count_refinements(repairs(trajectory.draft())) if known is None else known


def count_refinements(found: Sequence[Repair]) -> Refinements:
    """Return the number of mistakes by outcome."""
    abandoned = sum(repair.abandoned for repair in found)
    answered = sum(repair.answer is not None for repair in found)
    return Refinements(
        answered=answered,
        abandoned=abandoned,
        unanswered=len(found) - answered - abandoned,
        again=sum(repair.again for repair in found),
        late=sum(repair.late for repair in found),
    )


def repairs(draft: Draft, within: int = WITHIN) -> tuple[Repair, ...]:
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
        self._played = world_played(draft) if draft.script.grounded else None
        self._known = {} if self._played is None else {step.at: step for step in self._played.answered}
        self._accepted = list(accumulate((step.accepted for step in steps), initial=0))
        """Number of accepted steps before each step."""
        self._script = draft.script
        self._met: dict[int, tuple[int, int | None]] = {}
        """Index of a refused turn to the step that established its requirement, and the number of actions for that."""
        self._succeeded: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        self._refused: dict[tuple[str, ...], int] = {}
        """Last refused step of each action."""
        for number, step in enumerate(steps):
            if (known := self._known.get(step.at)) is None:
                continue
            self._met.update((met.at, (number, met.needed)) for met in known.meets)
            if step.accepted:
                self._succeeded[self._done(number)].append(number)
            elif step.flagged:
                self._refused[self._done(number)] = number

    def _done(self, number: int) -> tuple[str, ...]:
        """Return the meaning of a step's action."""
        return meaning(self._script, self._steps[number].player.action)

    def repair(self, number: int) -> Repair:
        """Return the outcome of a flagged step."""
        steps, mistake, complete = self._steps, self._steps[number], self._complete
        # The first step after its message.
        behind = next((at for at in range(number + 1, len(steps)) if not steps[at].player.parallel), len(steps))
        window = steps[behind : behind + self._within]
        retake = window[0].at if window else self._turns
        again = number > 0 and steps[number - 1].flagged and not mistake.player.parallel
        known = self._known.get(mistake.at)
        # A flag that the rulebook contradicts, or a draft that cannot be replayed, is left to `Replays`; it counts as
        # imagined here.
        if self._played is None or known is None or known.ruling.kind is None:
            accepted = self._different(number, behind, behind + len(window))
            waits = not complete and (len(window) < self._within or window[-1].after is None)
            return Repair(mistake, accepted, accepted, retake, waits, again)
        met, needed = self._met.get(mistake.at, (None, None))
        found: list[int] = []
        if met is not None and needed is not None and behind <= met < behind - 1 + needed + self._within:
            found.append(met)
        succeeded = self._succeeded.get(self._done(number), [])
        found += succeeded[bisect_left(succeeded, behind) :][:1]
        if known.ruling.action is None:
            found += (at for at in range(behind, behind + len(window)) if self._is_meant(known.action, steps[at]))
        answer = min(found, default=None)
        takes = needed if met == answer and needed is not None else 1
        return Repair(
            mistake,
            None if answer is None else steps[answer].at,
            self._different(number, behind, len(steps)),
            retake,
            waits=not complete,
            again=again,
            late=answer is not None and self._accepted[answer + 1] - self._accepted[behind] > takes,
            abandoned=answer is None
            and complete
            and self._played.answered[-1].ruling.done
            and self._refused[self._done(number)] == number,
        )

    def _different(self, number: int, begin: int, end: int) -> int | None:
        """Return the index of the first accepted player turn in these steps that differs from a step, if any."""
        first = bisect_right(self._accepted, self._accepted[begin]) - 1
        different = (
            at for at in range(first, end) if self._steps[at].accepted and self._done(at) != self._done(number)
        )
        return next((self._steps[at].at for at in different), None)

    def _is_meant(self, text: str, step: Exchange) -> bool:
        """Return whether an accepted action is the intended one of an unknown text."""
        known = self._known.get(step.at)
        if self._played is None or known is None or not step.accepted:
            return False
        ruling = known.ruling
        taken = next((taken.spec for taken in self._played.world.actions if taken.spec.name == ruling.action), None)
        return taken is not None and (
            folded(known.action).partition(" ")[0] == folded(text).partition(" ")[0]
            or match_pattern(taken, text) is not None
            or any(mentions(text, value) for value in ruling.values.values())
        )


class Mark(NamedTuple):
    """Label of a player turn, see `repairs`."""

    label: Literal["mistake", "refinement", "abandoned", "unanswered"]
    """A flagged action; one that answers mistakes; or the first different, accepted one after abandoned or unanswered
    mistakes."""
    of: tuple[int, ...] = ()
    """Indices of the mistakes before it that it belongs to."""
    kind: MistakeKind | None = None
    """Kind of a mistake."""


def marks(draft: Draft) -> dict[int, Mark]:
    """Return the labels of turns by index; other turns are not included."""
    found: dict[int, Mark] = {}
    for at in flagged_turns(draft.turns):
        answer = draft.turns[at + 1]
        if isinstance(answer, DungeonMasterTurn):
            found[at] = Mark("mistake", kind=answer.mistake_kind)
    outcomes = repairs(draft)
    # The last of several labels counts.
    for label in ("unanswered", "abandoned", "refinement"):
        mistakes = defaultdict[int, list[int]](list)
        for one in outcomes:
            outcome = "refinement" if one.answer is not None else "abandoned" if one.abandoned else "unanswered"
            at = one.accepted if one.answer is None else one.answer
            if outcome == label and at is not None:
                mistakes[at].append(one.mistake.at)
        found.update((at, Mark(label, tuple(of))) for at, of in mistakes.items())
    return found


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
    mistake must be answered or abandoned, as defined in `repairs`. Actions are compared by their effect, see `meaning`.
    An unfinished draft passes while an answer can still come. A transient failure answers nothing and is not counted; a
    retry is allowed.
    """

    within: Annotated[int, Field(ge=1)] = WITHIN
    """Number of player turns after the mistake within which the answer must come. In an executed world, a repair of
    several actions has one more for each further action."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for found in repairs(draft, self.within):
            if found.answer is None and not found.abandoned and not found.waits:
                yield self.violation(found.retake, "not_refined", self._message(found))

    def _message(self, found: Repair) -> str:
        wrong = quoted(found.mistake.player.action)
        if found.accepted is not None:
            return (
                f"{wrong} was refused, and nothing that was done since answers it. See to what it lacked, even if that takes several "
                "actions, or reach the goal without it and do not try it again."
            )
        return (
            f"The mistake in turn {found.mistake.at + 1}, {wrong}, is not repaired: one of the next "
            f"{self.within} player turns must be a different action that the DM accepts."
        )


class NoRepeatedMistake(BuiltInRule):
    """No refused action is repeated unchanged; else code `mistake_repeated`.

    The exception is an action that is now accepted, after another accepted one in between: an action that failed in the
    hall may work in the kitchen. Before its answer, only the second condition is checked. In an executed world, a
    refusal with effects counts as a change too. Actions are compared by their effect, see `meaning`. A transient
    failure is no refusal and may be retried; it changes nothing either.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        wrong: dict[tuple[str, ...], int] = {}
        # Those of `wrong` since which no other action was accepted, nor had a price.
        unchanged = set[tuple[str, ...]]()
        played = world_played(draft) if draft.script.grounded else None
        answered = played.answered if played else ()
        priced = {step.at for step in answered if step.changes and step.ruling.kind is not None}
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
                if step.at in priced:
                    unchanged.clear()
            elif step.accepted and not step.transient:
                unchanged &= {action}
