"""Replay of a grounded draft: its actions, and nothing else of it, are executed in its script's world."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """Outcome of the action, without the new state and the list of changes; after a transient failure, progress and
    visible names are those before it."""
    changes: bool
    """True if the action would change the state."""
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
    last = _last_replay(world)
    # Replaced as a whole, so several threads may use it.
    last[0] = replay = _continued(world, last[0], exchanged)
    return ReplayedDraft(world, *_beginning(world), replay.answered, end)


_Exchanged = Sequence[tuple[int, PlayerTurn, DungeonMasterTurn]]


def _exchanged(turns: Sequence[object]) -> tuple[_Exchanged, int]:
    """Return actions with their answers up to the first turn out of order, and its index; an answer may come first."""
    at = 1 if turns and isinstance(turns[0], DungeonMasterTurn) else 0
    found: list[tuple[int, PlayerTurn, DungeonMasterTurn]] = []
    for player, answer in zip(turns[at::2], turns[at + 1 :: 2], strict=False):
        if not (isinstance(player, PlayerTurn) and isinstance(answer, DungeonMasterTurn)):
            break
        found.append((at, player, answer))
        at += 2
    return found, at + (at < len(turns) and isinstance(turns[at], PlayerTurn))


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
class _Replay:
    """Exchanges with their rulings. It depends on the world, the actions and the marks of transient failures only, and
    does not refer to the world, so both can be freed.
    """

    state: JsonValue
    answered: tuple[Answered, ...] = ()
    lacks: tuple[_Lack, ...] = ()


@weakly_cached
def _last_replay(world: World) -> list[_Replay]:
    """Return the only holder of the last replay of a world."""
    return [_Replay(world.script.environment)]


@weakly_cached
def _beginning(world: World) -> tuple[tuple[str, ...], bool, float]:
    """Return visible names, success and progress before the first action."""
    start = world.script.environment
    return world.visible(start), world.done(start), world.progress(start)


def _continued(world: World, known: _Replay, asked: _Exchanged) -> _Replay:
    """Return the replay of these exchanges, continued from a known one if they begin with its exchanges."""
    if len(known.answered) > len(asked) or any(
        (step.at, step.action, step.answer.transient) != (at, player.action, answer.transient)
        for step, (at, player, answer) in zip(known.answered, asked, strict=False)
    ):
        known = _Replay(world.script.environment)
    # The answers' words may differ from the cached ones.
    answered = [replace(step, answer=answer) for step, (_, _, answer) in zip(known.answered, asked, strict=False)]
    state: JsonValue = known.state
    lacks: tuple[_Lack, ...] = known.lacks
    for at, player, answer in asked[len(answered) :]:
        ruling, met = world.step(state, player.action), tuple[Met, ...]()
        changes = ruling.state is not state
        if answer.transient:
            # The words of the outcome that did not occur stay: an observation must not report it.
            ruling = replace(world.transient_ruling(state, ruling), text=ruling.text)
        elif ruling.kind is not None:
            lacks = (*lacks, *_lack(world, at, state, ruling))[-_AWAITED:]
        elif changes:
            lacks = tuple(replace(lack, since=(*lack.since, player.action)[: _FOLLOWED + 1]) for lack in lacks)
            met = tuple(Met(lack.at, lack.needed(world)) for lack in lacks if lack.holds(ruling.state))
            lacks = tuple(lack for lack in lacks if lack.at not in {one.at for one in met})
        state = ruling.state
        answered.append(Answered(at, player.action, answer, replace(ruling, state=None, changed=()), changes, met))
    return _Replay(state, tuple(answered), lacks)


def _lack(world: World, at: int, state: JsonValue, ruling: Ruling) -> Iterator[_Lack]:
    """Yield the requirement that refused an action; none if it is no action of the world or was refused for another
    reason.
    """
    taken = next((taken for taken in world.actions if taken.spec.name == ruling.action), None)
    unmet = None if taken is None else taken.first_unmet(state, ruling.values)
    if unmet is not None:
        yield _Lack(at, unmet.requirement.condition, ruling.values, ruling.state)


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
        played = world_played(draft)
        if played is None:
            message = f"The script's world cannot be executed: {world_or_problem(draft.script)}"
            yield self.violation(0, "not_grounded", message, keeps_prefix=False)
            return
        if played.done:
            message = "The goal is reached before the first action. Write a script whose goal takes something to reach."
            yield self.violation(0, "done_at_start", message, keeps_prefix=False)
            return
        yield from self._opening(draft, played)
        for answered in played.answered:
            yield from self._answer(answered)
            if answered.ruling.done:
                break  # turns after the goal are reported as `goes_on`
        yield from self._ending(draft, played)

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
        turn, ruling, at, number = step.answer, step.ruling, step.at + 1, step.at + 2
        allowed = [] if ruling.kind is None else [f"{ruling.kind}_error"]
        flagged = [name for kind in MistakeKind if getattr(turn, name := f"{kind}_error")]
        if flagged != allowed:
            right = f"{allowed[0]}: {ruling.text}" if allowed else "none: the action is carried out"
            flags = f"Turn {number} flags {' and '.join(flagged) or 'no error'} for {quoted(step.action)}"
            yield self.violation(at, "wrong_flags", f"{flags}; by the rulebook it is {right}")
        if turn.transient and (allowed or not step.changes):
            why = "is a mistake" if allowed else "changes nothing"
            message = (
                f"Turn {number} is a transient failure, but {quoted(step.action)} {why}; only what works fails so."
            )
            yield self.violation(at, "wrong_transient", message)
        if turn.progress != ruling.progress:
            yield self.violation(at, "wrong_progress", _progress(number, turn.progress, ruling.progress))
        if ruling.done != turn.observation.rstrip().endswith(SUCCESS) or turn.observation.count(SUCCESS) > ruling.done:
            reached = f"reached, so it ends with {quoted(SUCCESS)}" if ruling.done else "not reached"
            message = f"After turn {number} the goal is {reached}; the observation says something else."
            yield self.violation(at, "wrong_success", message)

    def _ending(self, draft: Draft, played: ReplayedDraft) -> Iterator[Violation]:
        reached = next((step.at for step in played.answered if step.ruling.done), None)
        if reached is not None and reached + 2 < len(draft.turns):
            message = f"After turn {reached + 2} the goal is reached, and the play goes on. End it there."
            yield self.violation(reached + 2, "goes_on", message)
        if played.end < len(draft.turns):
            message = f"Turn {played.end + 1} is no answer to an action and no action that is answered; nothing after it can be replayed."
            yield self.violation(played.end, "cannot_replay", message)
        elif is_complete(draft) and reached is None:
            message = "By the rulebook the goal is not reached at the end. Go on until every condition holds."
            yield self.violation(max(len(draft.turns) - 1, 0), "wrong_success", message)


def _progress(number: int, stated: float | None, right: float) -> str:
    return f"Turn {number} says that the progress is {stated}; by the rulebook it is {right}."
