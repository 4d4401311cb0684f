"""Replay of a grounded draft: its actions, and nothing else of it, are executed in its script's world."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pydantic import JsonValue

from refinesynth.rules.actions import SUCCESS
from refinesynth.rules.rule import BuiltInRule, Violation, is_complete
from refinesynth.text.formatting import quoted
from refinesynth.trajectory import Draft, DungeonMasterTurn, MistakeKind, PlayerTurn
from refinesynth.trajectory.value import weakly_cached
from refinesynth.world import Ruling, World
from refinesynth.world.executor import world_or_problem
from refinesynth.world.expression import Expression

_MAX_PENDING = 32
"""Maximum number of mistakes, the latest ones, that are tracked until they are answered; a replay takes linear time."""

_MAX_TESTED = 12
"""Maximum number of actions after a mistake that are tested for necessity; the time grows with its square."""


@dataclass(frozen=True, slots=True)
class RuledStep:
    """One exchange with the world's ruling."""

    turn: int
    """Index of the player turn."""
    action: str
    answer: DungeonMasterTurn
    ruling: Ruling
    """Outcome of the action, without the new state and the list of changes; after a transient failure, progress and
    visible names are those before it."""
    changes_state: bool
    """True if the action would change the state."""
    resolved: tuple["Resolved", ...]
    """Refusals whose unmet requirement holds since this exchange."""


class Resolved(NamedTuple):
    """A refusal whose unmet requirement came to hold."""

    turn: int
    """Index of the refused player turn."""
    needed: int | None
    """Number of actions that this takes: those since the refusal except unnecessary ones; None for more than
    `_MAX_TESTED`."""


@dataclass(frozen=True, slots=True)
class ReplayedDraft:
    """A replayed draft, up to the first turn out of order."""

    world: World
    visible: tuple[str, ...]
    """Names that are visible at the beginning."""
    done_at_start: bool
    """True if the goal is reached before the first action."""
    progress: float
    exchanges: tuple[RuledStep, ...]
    end: int
    """Index of the first turn that could not be replayed: an action without an answer, an answer without an action, or
    a malformed turn; the number of turns if there is none."""


def replay_draft(draft: Draft) -> ReplayedDraft | None:
    """Return the replay of a draft; None if its script's world cannot be executed. Never raises.

    The last replay of a world is cached with its final state, so a draft that grows by an exchange costs one step.
    """
    world = world_or_problem(draft.script)
    if isinstance(world, str):
        return None
    exchanges, end = _paired_turns(draft.turns)
    cached = _last_replay(world)
    # Replaced as a whole, so several threads may use it.
    cached[0] = replay = _extend(world, cached[0], exchanges)
    return ReplayedDraft(world, *_start(world), replay.exchanges, end)


_Exchanges = Sequence[tuple[int, PlayerTurn, DungeonMasterTurn]]


def _paired_turns(turns: Sequence[object]) -> tuple[_Exchanges, int]:
    """Return actions with their answers up to the first turn out of order, and its index; an answer may come first."""
    index = 1 if turns and isinstance(turns[0], DungeonMasterTurn) else 0
    pairs: list[tuple[int, PlayerTurn, DungeonMasterTurn]] = []
    for player, answer in zip(turns[index::2], turns[index + 1 :: 2], strict=False):
        if not (isinstance(player, PlayerTurn) and isinstance(answer, DungeonMasterTurn)):
            break
        pairs.append((index, player, answer))
        index += 2
    return pairs, index + (index < len(turns) and isinstance(turns[index], PlayerTurn))


@dataclass(frozen=True, slots=True)
class _PendingRefusal:
    """The requirement that refused an action and does not hold yet."""

    turn: int
    """Index of the refused player turn."""
    condition: Expression
    values: Mapping[str, str]
    state: JsonValue
    """State after the refusal."""
    since: tuple[str, ...] = ()
    """Accepted actions with an effect since then; at most `_MAX_TESTED` + 1."""

    def holds(self, state: JsonValue) -> bool:
        """Return whether the requirement holds now."""
        return self.condition.answer(state, self.values) is True

    def needed(self, world: World) -> int | None:
        """Return the number of necessary actions, see `Resolved`."""
        if len(self.since) > _MAX_TESTED:
            return None
        actions, index = self.since, 0
        while index < len(actions) - 1:
            shorter = actions[:index] + actions[index + 1 :]
            if self._holds_after(world, shorter):
                actions = shorter
            else:
                index += 1
        return len(actions)

    def _holds_after(self, world: World, actions: tuple[str, ...]) -> bool:
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
    exchanges: tuple[RuledStep, ...] = ()
    pending: tuple[_PendingRefusal, ...] = ()


@weakly_cached
def _last_replay(world: World) -> list[_Replay]:
    """Return the only holder of the last replay of a world."""
    return [_Replay(world.script.environment)]


@weakly_cached
def _start(world: World) -> tuple[tuple[str, ...], bool, float]:
    """Return visible names, success and progress before the first action."""
    start = world.script.environment
    return world.visible(start), world.done(start), world.progress(start)


def _extend(world: World, replay: _Replay, exchanges: _Exchanges) -> _Replay:
    """Return the replay of these exchanges, continued from a known one if they begin with its exchanges."""
    if len(replay.exchanges) > len(exchanges) or any(
        (step.turn, step.action, step.answer.transient) != (turn, player.action, answer.transient)
        for step, (turn, player, answer) in zip(replay.exchanges, exchanges, strict=False)
    ):
        replay = _Replay(world.script.environment)
    # The answers' words may differ from the cached ones.
    steps = [replace(step, answer=answer) for step, (_, _, answer) in zip(replay.exchanges, exchanges, strict=False)]
    state: JsonValue = replay.state
    pending: tuple[_PendingRefusal, ...] = replay.pending
    for turn, player, answer in exchanges[len(steps) :]:
        ruling, resolved = world.step(state, player.action), tuple[Resolved, ...]()
        changes = ruling.state is not state
        if answer.transient:
            # The words of the outcome that did not occur stay: an observation must not report it.
            ruling = replace(world.transient_ruling(state, ruling), text=ruling.text)
        elif ruling.kind is not None:
            pending = (*pending, *_pending_refusal(world, turn, state, ruling))[-_MAX_PENDING:]
        elif changes:
            pending = tuple(replace(item, since=(*item.since, player.action)[: _MAX_TESTED + 1]) for item in pending)
            resolved = tuple(Resolved(item.turn, item.needed(world)) for item in pending if item.holds(ruling.state))
            pending = tuple(item for item in pending if item.turn not in {done.turn for done in resolved})
        state = ruling.state
        steps.append(RuledStep(turn, player.action, answer, replace(ruling, state=None, changed=()), changes, resolved))
    return _Replay(state, tuple(steps), pending)


def _pending_refusal(world: World, turn: int, state: JsonValue, ruling: Ruling) -> Iterator[_PendingRefusal]:
    """Yield the requirement that refused an action; none if it is no action of the world or was refused for another
    reason.
    """
    action = next((action for action in world.actions if action.spec.name == ruling.action), None)
    unmet = None if action is None else action.first_unmet(state, ruling.values)
    if unmet is not None:
        yield _PendingRefusal(turn, unmet.requirement.condition, ruling.values, ruling.state)


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
        replayed = replay_draft(draft)
        if replayed is None:
            message = f"The script's world cannot be executed: {world_or_problem(draft.script)}"
            yield self.violation(0, "not_grounded", message, keeps_prefix=False)
            return
        if replayed.done_at_start:
            message = "The goal is reached before the first action. Write a script whose goal takes something to reach."
            yield self.violation(0, "done_at_start", message, keeps_prefix=False)
            return
        yield from self._opening(draft, replayed)
        for step in replayed.exchanges:
            yield from self._answer(step)
            if step.ruling.done:
                break  # turns after the goal are reported as `goes_on`
        yield from self._ending(draft, replayed)

    def _opening(self, draft: Draft, replayed: ReplayedDraft) -> Iterator[Violation]:
        turn = draft.turns[0] if draft.turns else None
        if not isinstance(turn, DungeonMasterTurn):
            return
        if turn.flagged or turn.transient:
            message = (
                "Turn 1 judges an action before the player has done anything. An opening observation flags nothing."
            )
            yield self.violation(0, "wrong_flags", message)
        if turn.progress not in {None, replayed.progress}:
            yield self.violation(0, "wrong_progress", _progress(1, turn.progress, replayed.progress))
        if SUCCESS in turn.observation:
            message = f"Turn 1 says {quoted(SUCCESS)}, but nothing has been done yet."
            yield self.violation(0, "wrong_success", message)

    def _answer(self, step: RuledStep) -> Iterator[Violation]:
        """Yield at most one violation per recorded value of an answer."""
        turn, ruling, index, number = step.answer, step.ruling, step.turn + 1, step.turn + 2
        expected = [] if ruling.kind is None else [f"{ruling.kind}_error"]
        flagged = [name for kind in MistakeKind if getattr(turn, name := f"{kind}_error")]
        if flagged != expected:
            correction = f"{expected[0]}: {ruling.text}" if expected else "none: the action is carried out"
            flags = f"Turn {number} flags {' and '.join(flagged) or 'no error'} for {quoted(step.action)}"
            yield self.violation(index, "wrong_flags", f"{flags}; by the rulebook it is {correction}")
        if turn.transient and (expected or not step.changes_state):
            reason = "is a mistake" if expected else "changes nothing"
            message = (
                f"Turn {number} is a transient failure, but {quoted(step.action)} {reason}; only what works fails so."
            )
            yield self.violation(index, "wrong_transient", message)
        if turn.progress != ruling.progress:
            yield self.violation(index, "wrong_progress", _progress(number, turn.progress, ruling.progress))
        if ruling.done != turn.observation.rstrip().endswith(SUCCESS) or turn.observation.count(SUCCESS) > ruling.done:
            reached = f"reached, so it ends with {quoted(SUCCESS)}" if ruling.done else "not reached"
            message = f"After turn {number} the goal is {reached}; the observation says something else."
            yield self.violation(index, "wrong_success", message)

    def _ending(self, draft: Draft, replayed: ReplayedDraft) -> Iterator[Violation]:
        reached = next((step.turn for step in replayed.exchanges if step.ruling.done), None)
        if reached is not None and reached + 2 < len(draft.turns):
            message = f"After turn {reached + 2} the goal is reached, and the play goes on. End it there."
            yield self.violation(reached + 2, "goes_on", message)
        if replayed.end < len(draft.turns):
            message = f"Turn {replayed.end + 1} is no answer to an action and no action that is answered; nothing after it can be replayed."
            yield self.violation(replayed.end, "cannot_replay", message)
        elif is_complete(draft) and reached is None:
            message = "By the rulebook the goal is not reached at the end. Go on until every condition holds."
            yield self.violation(max(len(draft.turns) - 1, 0), "wrong_success", message)


def _progress(number: int, stated: float | None, expected: float) -> str:
    return f"Turn {number} says that the progress is {stated}; by the rulebook it is {expected}."
