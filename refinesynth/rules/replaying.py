"""A grounded draft played again: its actions, and nothing else of it, carried out in its script's world."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn
from refinesynth.trajectory.weak_cache import weakly_cached
from refinesynth.world import Ruling, World
from refinesynth.world.expression import Expression
from refinesynth.world.replaying import world_or_problem

_AWAITED = 32
"""Mistakes, the last ones, of which it is watched whether what they lacked comes about: a play costs time in proportion
to its length."""


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
    """Whether the goal is reached before the first action."""
    progress: float
    answered: tuple[Answered, ...]
    end: int
    """Index of the first turn that could not be played: an action without an answer, an answer to nothing, a malformed
    turn; the number of turns if there is none."""


def world_played(draft: Draft) -> Played | None:
    """The draft played again; None if its script has no world. Never raises.

    The last play in a world is remembered with it, without its states but the last, so that a draft that grows by an
    exchange costs one step.
    """
    world = world_or_problem(draft.script)
    if isinstance(world, str):
        return None
    exchanged, end = _exchanged(draft.turns)
    course = _course(world)
    return Played(world, course.visible, course.done, course.progress, course.follow(world, exchanged), end)


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
class _Lack:
    """The requirement that refused an action, and did not come to hold yet."""

    at: int
    """Index of the player turn that was refused."""
    condition: Expression
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Known:
    """How far a play is known."""

    answered: tuple[Answered, ...]
    state: JsonValue
    lacks: tuple[_Lack, ...] = ()


class _Course:
    """The last play in one world: a function of the world and the actions, remembered. It goes with its world, so it
    does not hold it.
    """

    def __init__(self, world: World) -> None:
        self._start: JsonValue = world.script.environment
        self.visible = world.visible(self._start)
        self.done = world.done(self._start)
        self.progress = world.progress(self._start)
        self._known = _Known((), self._start)
        """Replaced as a whole, so that several threads may ask."""

    def follow(self, world: World, asked: Sequence[tuple[int, PlayerTurn, DungeonMasterTurn]]) -> tuple[Answered, ...]:
        known = self._known
        if len(known.answered) > len(asked) or any(
            (step.at, step.action, step.answer.transient) != (at, player.action, answer.transient)
            for step, (at, player, answer) in zip(known.answered, asked, strict=False)
        ):
            known = _Known((), self._start)
        # The words of an answer may be others than those that were known.
        answered = [replace(step, answer=answer) for step, (_, _, answer) in zip(known.answered, asked, strict=False)]
        state, lacks = known.state, known.lacks
        for at, player, answer in asked[len(answered) :]:
            ruling = world.step(state, player.action)
            changes, bare = ruling.state is not state, replace(ruling, state=None, changed=())
            same, met = ruling, tuple[int, ...]()
            if answer.transient:
                same = answered[-1] if answered else self
            elif changes:
                state = ruling.state
                met = tuple(lack.at for lack in lacks if lack.condition.answer(state, lack.values) is True)
                lacks = tuple(lack for lack in lacks if lack.at not in met)
            elif ruling.kind is not None and (lack := _lack(world, at, state, ruling)) is not None:
                lacks = (*lacks, lack)[-_AWAITED:]
            step = Answered(at, player.action, answer, bare, changes, same.done, same.progress, same.visible, met)
            answered.append(step)
        self._known = _Known(tuple(answered), state, lacks)
        return self._known.answered


def _lack(world: World, at: int, state: JsonValue, ruling: Ruling) -> _Lack | None:
    """The requirement that refused an action; None if it is no action of the world, or was refused for something
    else.
    """
    taken = next((taken for taken in world.actions if taken.spec.name == ruling.action), None)
    unmet = None if taken is None else taken.unmet(state, ruling.values)
    return None if unmet is None else _Lack(at, unmet.requirement.condition, ruling.values)


@weakly_cached
def _course(world: World) -> _Course:
    return _Course(world)
