"""Replay of a grounded draft: its actions, and nothing else of it, are executed in its script's world."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import NamedTuple

from pydantic import JsonValue

from refinesynth.actions.wording import quoted
from refinesynth.rules.ending import SUCCESS
from refinesynth.rules.exchanges import is_complete
from refinesynth.rules.rule import BuiltInRule, Violation
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, PlayerTurn
from refinesynth.trajectory.weak_cache import weakly_cached
from refinesynth.world import Ruling, World
from refinesynth.world.executor import world_or_problem
from refinesynth.world.expression import Expression

_AWAITED = 32
"""Maximum number of mistakes, the latest ones, that are tracked until they are answered; a replay takes linear time."""

_FOLLOWED = 12
"""Maximum number of actions after a mistake that are tested for necessity; the time grows with its square."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One exchange with the world's ruling."""

    at: int
    """Index of the player turn."""
    action: str
    answer: DungeonMasterTurn
    ruling: Ruling
    """Outcome of the action in its state; without the new state and the list of changes."""
    changes: bool
    """True if the action would change the state."""
    done: bool
    """True if the goal is reached after this exchange; a transient failure changes nothing."""
    progress: float
    """Progress after this exchange, likewise."""
    visible: tuple[str, ...]
    """Names that are visible after this exchange."""
    meets: tuple["Met", ...]
    """Refusals whose unmet requirement holds since this exchange."""


class Met(NamedTuple):
    """A refusal whose unmet requirement came to hold."""

    at: int
    """Index of the refused player turn."""
    needed: int | None
    """Number of actions that this takes: those since the refusal except unnecessary ones; None for more than
    `_FOLLOWED`."""


@dataclass(frozen=True, slots=True)
class ReplayedDraft:
    """A replayed draft, up to the first turn out of order."""

    world: World
    visible: tuple[str, ...]
    """Names that are visible at the beginning."""
    done: bool
    """True if the goal is reached before the first action."""
    progress: float
    answered: tuple[Answered, ...]
    end: int
    """Index of the first turn that could not be replayed: an action without an answer, an answer without an action, or
    a malformed turn; the number of turns if there is none."""


def world_played(draft: Draft) -> ReplayedDraft | None:
    """Return the replay of a draft; None if its script's world cannot be executed. Never raises.

    The last replay of a world is cached with its final state, so a draft that grows by an exchange costs one step.
    """
    world = world_or_problem(draft.script)
    if isinstance(world, str):
        return None
    exchanged, end = _exchanged(draft.turns)
    course = _course(world)
    return ReplayedDraft(world, course.visible, course.done, course.progress, course.follow(world, exchanged), end)


def _exchanged(
    turns: Sequence[object],
) -> tuple[list[tuple[int, PlayerTurn, DungeonMasterTurn]], int]:
    """Return actions with their answers up to the first turn out of order, and its index; an answer may come first."""
    at = 1 if turns and isinstance(turns[0], DungeonMasterTurn) else 0
    found: list[tuple[int, PlayerTurn, DungeonMasterTurn]] = []
    while at + 1 < len(turns):
        player, answer = turns[at], turns[at + 1]
        if not (isinstance(player, PlayerTurn) and isinstance(answer, DungeonMasterTurn)):
            return found, at if not isinstance(player, PlayerTurn) else at + 1
        found.append((at, player, answer))
        at += 2
    last = at < len(turns) and isinstance(turns[at], PlayerTurn)
    return found, at + 1 if last else at


@dataclass(frozen=True, slots=True)
class _Lack:
    """The requirement that refused an action and does not hold yet."""

    at: int
    """Index of the refused player turn."""
    condition: Expression
    values: Mapping[str, str]
    state: JsonValue
    """State after the refusal."""
    since: tuple[str, ...] = ()
    """Accepted actions with an effect since then; at most `_FOLLOWED` + 1."""

    def after(self, action: str) -> "_Lack":
        """Return the same after one more accepted action."""
        return replace(self, since=(*self.since, action)[: _FOLLOWED + 1])

    def holds(self, state: JsonValue) -> bool:
        """Return whether the requirement holds now."""
        return self.condition.answer(state, self.values) is True

    def needed(self, world: World) -> int | None:
        """Return the number of necessary actions, see `Met`."""
        if len(self.since) > _FOLLOWED:
            return None
        needed, at = self.since, 0
        while at < len(needed) - 1:
            shorter = needed[:at] + needed[at + 1 :]
            if self._met_by(world, shorter):
                needed = shorter
            else:
                at += 1
        return len(needed)

    def _met_by(self, world: World, actions: tuple[str, ...]) -> bool:
        state = self.state
        for action in actions:
            ruling = world.step(state, action)
            if ruling.kind is not None:
                return False
            state = ruling.state
        return self.holds(state)


@dataclass(frozen=True, slots=True)
class _Known:
    """The replayed part of a draft."""

    answered: tuple[Answered, ...]
    state: JsonValue
    lacks: tuple[_Lack, ...] = ()


class _Course:
    """Cached last replay of a world. It depends on the world, the actions and the marks of transient failures only, and
    does not refer to the world, so both can be freed.
    """

    def __init__(self, world: World) -> None:
        self._start: JsonValue = world.script.environment
        self.visible = world.visible(self._start)
        self.done = world.done(self._start)
        self.progress = world.progress(self._start)
        self._known = _Known((), self._start)
        """Replaced as a whole, so several threads may use it."""

    def follow(self, world: World, asked: Sequence[tuple[int, PlayerTurn, DungeonMasterTurn]]) -> tuple[Answered, ...]:
        known = self._known
        if len(known.answered) > len(asked) or any(
            (step.at, step.action, step.answer.transient) != (at, player.action, answer.transient)
            for step, (at, player, answer) in zip(known.answered, asked, strict=False)
        ):
            known = _Known((), self._start)
        # The answers' words may differ from the cached ones.
        answered = [replace(step, answer=answer) for step, (_, _, answer) in zip(known.answered, asked, strict=False)]
        state, lacks = known.state, known.lacks
        for at, player, answer in asked[len(answered) :]:
            before, ruling = state, world.step(state, player.action)
            changes, bare = ruling.state is not state, replace(ruling, state=None, changed=())
            same, met = ruling, tuple[Met, ...]()
            if answer.transient:
                same = answered[-1] if answered else self
            if changes and not answer.transient:
                state = ruling.state
            if changes and not answer.transient and ruling.kind is None:
                lacks = tuple(lack.after(player.action) for lack in lacks)
                held = [lack.holds(state) for lack in lacks]
                met = tuple(Met(lack.at, lack.needed(world)) for lack in compress(lacks, held))
                lacks = tuple(lack for lack, holds in zip(lacks, held, strict=True) if not holds)
            if ruling.kind is not None and not answer.transient:
                lacks = (*lacks, *_lack(world, at, before, ruling))[-_AWAITED:]
            step = Answered(at, player.action, answer, bare, changes, same.done, same.progress, same.visible, met)
            answered.append(step)
        self._known = _Known(tuple(answered), state, lacks)
        return self._known.answered


def _lack(world: World, at: int, state: JsonValue, ruling: Ruling) -> Iterator[_Lack]:
    """Yield the requirement that refused an action; none if it is no action of the world or was refused for another
    reason.
    """
    taken = next((taken for taken in world.actions if taken.spec.name == ruling.action), None)
    unmet = None if taken is None else taken.unmet(state, ruling.values)
    if unmet is not None:
        yield _Lack(at, unmet.requirement.condition, ruling.values, ruling.state)


@weakly_cached
def _course(world: World) -> _Course:
    return _Course(world)


_FLAGS = {
    MistakeKind.PARAMETER: "parameter_error",
    MistakeKind.PLACE: "place_error",
    MistakeKind.LOGIC: "logic_error",
}


class Replays(BuiltInRule):
    """The rulebook's replay of the actions confirms the draft's flags, progress and success, turn by turn.

    Only the actions and the marks of transient failures are taken from the draft; a transient failure must belong to an
    accepted action that would have changed something, and changes nothing. Codes: `not_grounded` and `done_at_start`,
    which start over, `wrong_flags`, `wrong_progress`, `wrong_transient`, `wrong_success`, `goes_on` after the goal, and
    `cannot_replay` for turns out of order. Observations are checked by `WordsAgree`.
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
                break  # turns after the goal are reported as `goes_on`
        yield from self._whole(draft, played)

    def _opening(self, draft: Draft, played: ReplayedDraft) -> Iterator[Violation]:
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
        """Yield at most one violation per recorded value of an answer."""
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

    def _whole(self, draft: Draft, played: ReplayedDraft) -> Iterator[Violation]:
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
