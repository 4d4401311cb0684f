"""History of a scene, replayed through the executor.

Caching does not affect answers. Scenes of a known episode are cached for its lifetime.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any, NamedTuple, TypeAlias
from weakref import ref

from refinesynth.rehearsal.scene import Scene, draw_scene
from refinesynth.trajectory import MistakeKind
from refinesynth.world import Ruling, plan

CACHED_SCENES = 1_024
"""Number of cached scenes for requests of unknown episodes, each with its positions."""

_EPISODES_SCENES = 16
"""Number of cached scenes of one episode, which has another one for each refused script."""

_MOST_POSITIONS = 256

_MOST_RULINGS = 32

_LONGEST_REMEMBERED = 200
"""Longest action with a cached ruling, in characters."""

_MOST_SEARCHED = 300
"""Number of states of the second search, over all actions."""


class Position:
    """A state of a scene's world, the actions that led there, and the plan from there."""

    def __init__(self, scene: Scene, state: Any, *, before: "tuple[Position, str] | None", kept: "_Kept") -> None:
        self.scene = scene
        self.state = state
        self.before = before
        # A position refers to the one before; a reference back would keep both alive beyond their scene.
        self._kept = ref(kept)
        self.planned: tuple[str, ...] | None = None
        self._rulings: dict[str, Ruling] = {}

    def ruling(self, action: str) -> Ruling:
        known = self._rulings.get(action)
        if known is None:
            known = self.scene.world.step(self.state, action)
            if len(action) <= _LONGEST_REMEMBERED and len(self._rulings) < _MOST_RULINGS:
                self._rulings[action] = known
        return known

    def judged(self, action: str) -> MistakeKind | None:
        """Return the kind of mistake that an action would be here; not cached, as many candidates are tried once."""
        return self.scene.world.step(self.state, action).kind

    def after(self, action: str) -> "Position":
        """Return the position after an action; this one if the action has no effect."""
        kept = self._kept() or _Kept()
        known = kept.reached.get((self, action))
        if known is not None:
            return known
        ruling = self.ruling(action)
        if ruling.state is self.state:
            return self
        reached = Position(self.scene, ruling.state, before=(self, action), kept=kept)
        if len(kept.reached) < _MOST_POSITIONS and len(action) <= _LONGEST_REMEMBERED:
            kept.reached[self, action] = reached
        return reached

    @property
    def plan(self) -> tuple[str, ...]:
        """Actions from here to the goal; empty if it is reached or no plan is found.

        A player that follows the plan keeps it; otherwise a new one is searched. It depends only on the actions from
        the start.
        """
        unplanned: list[Position] = []
        at: Position | None = self
        while at is not None and at.planned is None:
            unplanned.append(at)
            at = at.before[0] if at.before else None
        for position in reversed(unplanned):
            position.planned = _planned(position)
        return self.planned or ()


def _planned(position: Position) -> tuple[str, ...]:
    """Return the rest of the earlier plan if its next action or an equivalent one was taken; else a new plan."""
    world, state = position.scene.world, position.state
    rulebook = position.scene.executed.rulebook
    if position.before is None and rulebook is not None and rulebook.solution:
        return rulebook.solution
    if position.before is not None:
        earlier, action = position.before
        followed = earlier.planned
        if followed and (followed[0] == action or earlier.ruling(followed[0]).state == state):
            return followed[1:]
    found = plan(world, state, candidates=position.scene.likely)
    if found is None:
        found = plan(world, state, candidates=tuple(position.scene.everything()), max_states=_MOST_SEARCHED)
    return found or ()


@dataclass(eq=False)
class _Kept:
    reached: dict[tuple[Position, str], Position] = field(default_factory=dict[tuple[Position, str], Position])


def opening(label: str) -> Position:
    return (_scenes.get() or _everybodys)(label)[0]


def forget() -> None:
    """Clear the scenes cached without an episode."""
    _everybodys.cache_clear()


Scenes: TypeAlias = Callable[[str], tuple[Position, _Kept]]
"""Initial positions of scenes by label, with their caches."""


def scenes(most: int = _EPISODES_SCENES) -> Scenes:
    return lru_cache(maxsize=most)(_opened)


def _opened(label: str) -> tuple[Position, _Kept]:
    scene, kept = draw_scene(label), _Kept()
    return Position(scene, scene.plot.state, before=None, kept=kept), kept


_everybodys = lru_cache(maxsize=CACHED_SCENES)(_opened)
_scenes: ContextVar[Scenes | None] = ContextVar("scenes", default=None)


@contextmanager
def among(own: Scenes) -> Generator[None]:
    """Context with this cache of scenes."""
    token = _scenes.set(own)
    try:
        yield
    finally:
        _scenes.reset(token)


class Exchange(NamedTuple):
    action: str
    observation: str
    refused: bool
    """True if it was flagged as a mistake and not carried out."""
    failed: bool = False
    """True if it was right and failed by chance."""


@dataclass(frozen=True)
class Past:
    """All exchanges so far, with the position that they lead to."""

    position: Position
    exchanges: tuple[Exchange, ...] = ()
    wrong: frozenset[str] = frozenset()
    """Actions flagged since the last accepted one."""
    observed: frozenset[str] = field(default=frozenset(), repr=False)

    @staticmethod
    def of(start: Position, exchanges: Iterable[Exchange]) -> "Past":
        return reduce(Past.and_then, exchanges, Past(start))

    def and_then(self, exchange: Exchange) -> "Past":
        position, wrong = self.position, self.wrong
        if exchange.refused:
            wrong |= {exchange.action}
        elif not exchange.failed:
            position, wrong = position.after(exchange.action), frozenset[str]()
        return Past(position, (*self.exchanges, exchange), wrong, self.observed | {exchange.observation})

    @property
    def stumbled(self) -> Ruling | None:
        """Ruling on the last action if it was flagged; else None."""
        if not self.exchanges or not self.exchanges[-1].refused:
            return None
        return self.position.ruling(self.exchanges[-1].action)

    @property
    def failed(self) -> bool:
        """True if the last action was right and failed by chance."""
        return bool(self.exchanges) and self.exchanges[-1].failed

    @property
    def arrived(self) -> bool:
        """True if the goal is reached."""
        return self.position.scene.world.done(self.position.state)
