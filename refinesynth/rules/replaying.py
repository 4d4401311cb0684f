"""A grounded draft played again: its actions, and nothing else of it, carried out in its script's world."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from refinesynth.lifetime import while_it_lives
from refinesynth.rules.rule import BaseRule, Violation
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn
from refinesynth.world import Ruling, World
from refinesynth.world.expression import Expression
from refinesynth.world.replaying import world_or_problem

_AWAITED = 32
"""Mistakes, the last ones, of which it is watched whether what they lacked comes about: a play costs time in proportion to its length."""


class ReplayRule(BaseRule):
    """A rule that plays a draft again. What it finds at a turn depends on that turn and those before it."""

    def since(self, draft: Draft, start: int, /) -> Iterator[Violation]:
        """What is wrong at or after the turn `start`."""
        raise TypeError(f"{type(self).__name__} defines no since to read {type(draft).__name__} from turn {start} with")


@dataclass(frozen=True, slots=True)
class Answered:
    """One exchange, with what the world says of it."""

    at: int
    """Index of the player turn."""
    action: str
    answer: DungeonMasterTurn
    ruling: Ruling
    """What the action gives in the state that it met; without the state."""
    changes: bool
    """Whether it would change the state."""
    done: bool
    """Whether the goal is reached after this exchange; after a transient failure, as it was before."""
    progress: float
    """The same for the progress."""
    visible: tuple[str, ...]
    """Names that can be seen after this exchange."""
    meets: tuple[int, ...]
    """Indices of the player turns before it that were refused and whose unmet requirement holds since this exchange."""


@dataclass(frozen=True, slots=True)
class Played:
    """A draft played again, as far as player and DungeonMaster take turns."""

    world: World
    visible: tuple[str, ...]
    """Names that can be seen at the beginning."""
    done: bool
    """Whether the goal is reached before anybody does anything."""
    progress: float
    answered: tuple[Answered, ...]
    end: int
    """Index of the first turn that could not be played: an action without an answer, an answer to nothing, a malformed turn; the
    number of turns if there is none."""


def world_of_draft(draft: Draft) -> World | str:
    """The world of a draft's script, or why there is none."""
    return world_or_problem(draft.script)


def world_played(draft: Draft) -> Played | None:
    """The draft played again; None if its script has no world. Never raises.

    The last play in a world is remembered with it, without its states but the last, so that a draft that grows by an exchange
    costs one step.
    """
    world = world_of_draft(draft)
    if isinstance(world, str):
        return None
    exchanged, end = _exchanged(draft.turns)
    course = _course(world)
    answered = course.follow(world, [(at, player.action, answer) for at, player, answer in exchanged])
    return Played(world, course.visible, course.done, course.progress, answered, end)


def _exchanged(
    turns: Sequence[object],
) -> tuple[list[tuple[int, PlayerTurn, DungeonMasterTurn]], int]:
    """Actions with their answers, up to where the voices do not take turns; an answer may come first."""
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
class _Step:
    """What the world says of an action; independent of what a draft says of it."""

    action: str
    transient: bool
    ruling: Ruling
    changes: bool
    done: bool
    progress: float
    visible: tuple[str, ...]
    meets: tuple[int, ...] = ()
    """Which of the steps before it, from 0."""


@dataclass(frozen=True, slots=True)
class _Lack:
    """The requirement that refused an action, and did not come to hold yet."""

    step: int
    """Which step was refused, from 0."""
    condition: Expression
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Known:
    """How far a play is known."""

    steps: tuple[_Step, ...]
    state: JsonValue
    lacks: tuple[_Lack, ...] = ()


class _Course:
    """The last play in one world: a function of the world and the actions, remembered. It goes with its world, so it does not hold it."""

    def __init__(self, world: World) -> None:
        self._start: JsonValue = world.script.environment
        self.visible = world.visible(self._start)
        self.done = world.done(self._start)
        self.progress = world.progress(self._start)
        self._known = _Known((), self._start)
        """Replaced as a whole, so that several threads may ask."""

    def follow(self, world: World, asked: Sequence[tuple[int, str, DungeonMasterTurn]]) -> tuple[Answered, ...]:
        known = self._known
        if len(known.steps) > len(asked) or any(
            step.action != action or step.transient != answer.transient
            for step, (_, action, answer) in zip(known.steps, asked, strict=False)
        ):
            known = _Known((), self._start)
        steps, state, lacks = list(known.steps), known.state, known.lacks
        for _, action, answer in asked[len(steps) :]:
            step, state, lacks = self._step(world, steps, state, lacks, action, transient=answer.transient)
            steps.append(step)
        self._known = _Known(tuple(steps), state, lacks)
        turns = [at for at, _, _ in asked]
        return tuple(
            Answered(
                at=at,
                action=action,
                answer=answer,
                ruling=step.ruling,
                changes=step.changes,
                done=step.done,
                progress=step.progress,
                visible=step.visible,
                meets=tuple(turns[number] for number in step.meets),
            )
            for step, (at, action, answer) in zip(steps, asked, strict=True)
        )

    def _step(
        self,
        world: World,
        before: Sequence[_Step],
        state: JsonValue,
        lacks: tuple[_Lack, ...],
        action: str,
        *,
        transient: bool,
    ) -> tuple[_Step, JsonValue, tuple[_Lack, ...]]:
        ruling = world.step(state, action)
        changes = ruling.state is not state
        bare = replace(ruling, state=None, changed=())
        if transient:
            same = before[-1] if before else self
            step = _Step(action, transient, bare, changes, same.done, same.progress, same.visible)
            return step, state, lacks
        met: tuple[int, ...] = ()
        if changes:
            met = tuple(lack.step for lack in lacks if lack.condition.answer(ruling.state, lack.values) is True)
            lacks = tuple(lack for lack in lacks if lack.step not in met)
        elif ruling.kind is not None and (lack := _lack(world, len(before), state, ruling)) is not None:
            lacks = (*lacks, lack)[-_AWAITED:]
        step = _Step(action, transient, bare, changes, ruling.done, ruling.progress, ruling.visible, met)
        return step, ruling.state, lacks


def _lack(world: World, step: int, state: JsonValue, ruling: Ruling) -> _Lack | None:
    """The requirement that refused an action; None if it is no action of the world, or was refused for something else."""
    taken = next((taken for taken in world.actions if taken.spec.name == ruling.action), None)
    unmet = None if taken is None else taken.unmet(state, ruling.values)
    return None if unmet is None else _Lack(step, unmet.requirement.condition, ruling.values)


@while_it_lives
def _course(world: World) -> _Course:
    return _Course(world)
