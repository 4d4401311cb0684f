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

_MAX_EPISODE_SCENES = 16
"""Number of cached scenes of one episode, which has another one for each refused script."""

_MAX_POSITIONS = 256

_MAX_RULINGS = 32

_MAX_CACHED_CHARACTERS = 200
"""Longest action with a cached ruling, in characters."""

_MAX_SEARCHED_STATES = 300
"""Number of states of the second search, over all actions."""


class Position:
    """A state of a scene's world, the actions that led there, and the plan from there."""

    def __init__(self, scene: Scene, state: Any, *, previous: "tuple[Position, str] | None", cache: "_Cache") -> None:
        self.scene = scene
        self.state = state
        self.previous = previous
        # A position refers to the one before; a reference back would keep both alive beyond their scene.
        self._cache = ref(cache)
        self.planned: tuple[str, ...] | None = None
        self._rulings: dict[str, Ruling] = {}

    def ruling(self, action: str) -> Ruling:
        known = self._rulings.get(action)
        if known is None:
            known = self.scene.world.step(self.state, action)
            if len(action) <= _MAX_CACHED_CHARACTERS and len(self._rulings) < _MAX_RULINGS:
                self._rulings[action] = known
        return known

    def mistake_kind(self, action: str) -> MistakeKind | None:
        """Return the kind of mistake that an action would be here; not cached, as many candidates are tried once."""
        return self.scene.world.step(self.state, action).kind

    def after(self, action: str) -> "Position":
        """Return the position after an action; this one if the action has no effect."""
        cache = self._cache() or _Cache()
        cached = cache.reached.get((self, action))
        if cached is not None:
            return cached
        ruling = self.ruling(action)
        if ruling.state is self.state:
            return self
        reached = Position(self.scene, ruling.state, previous=(self, action), cache=cache)
        if len(cache.reached) < _MAX_POSITIONS and len(action) <= _MAX_CACHED_CHARACTERS:
            cache.reached[self, action] = reached
        return reached

    @property
    def plan(self) -> tuple[str, ...]:
        """Actions from here to the goal; empty if it is reached or no plan is found.

        A player that follows the plan keeps it; otherwise a new one is searched. It depends only on the actions from
        the start.
        """
        unplanned: list[Position] = []
        current: Position | None = self
        while current is not None and current.planned is None:
            unplanned.append(current)
            current = current.previous[0] if current.previous else None
        for position in reversed(unplanned):
            position.planned = _planned(position)
        return self.planned or ()


def _planned(position: Position) -> tuple[str, ...]:
    """Return the rest of the earlier plan if its next action or an equivalent one was taken; else a new plan."""
    scene, world, state = position.scene, position.scene.world, position.state
    rulebook = scene.executed.rulebook
    if position.previous is None and rulebook is not None and rulebook.solution:
        return rulebook.solution
    if position.previous is not None:
        earlier, action = position.previous
        earlier_plan = earlier.planned
        if earlier_plan and (earlier_plan[0] == action or earlier.ruling(earlier_plan[0]).state == state):
            return earlier_plan[1:]
    new_plan = plan(world, state, candidates=(*scene.useful, *(scene.revealing_actions if scene.hidden else ())))
    if new_plan is None:
        new_plan = plan(world, state, candidates=scene.all_actions(), most=_MAX_SEARCHED_STATES)
    return new_plan or ()


@dataclass(eq=False)
class _Cache:
    reached: dict[tuple[Position, str], Position] = field(default_factory=dict[tuple[Position, str], Position])


def initial_position(label: str) -> Position:
    return (_scenes.get() or _default_scenes)(label)[0]


def clear_scenes() -> None:
    """Clear the scenes cached without an episode."""
    _default_scenes.cache_clear()


Scenes: TypeAlias = Callable[[str], tuple[Position, _Cache]]
"""Initial positions of scenes by label, with their caches."""


def scene_cache(max_scenes: int = _MAX_EPISODE_SCENES) -> Scenes:
    return lru_cache(maxsize=max_scenes)(_open_scene)


def _open_scene(label: str) -> tuple[Position, _Cache]:
    scene, cache = draw_scene(label), _Cache()
    return Position(scene, scene.plot.state, previous=None, cache=cache), cache


_default_scenes = lru_cache(maxsize=CACHED_SCENES)(_open_scene)
_scenes: ContextVar[Scenes | None] = ContextVar("scenes", default=None)


@contextmanager
def using_scenes(scenes: Scenes) -> Generator[None]:
    """Context with this cache of scenes."""
    token = _scenes.set(scenes)
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
class History:
    """All exchanges so far, with the position that they lead to."""

    position: Position
    exchanges: tuple[Exchange, ...] = ()
    refused_actions: frozenset[str] = frozenset()
    """Actions flagged since the last accepted one."""
    observations: frozenset[str] = field(default=frozenset(), repr=False)

    @staticmethod
    def of(start: Position, exchanges: Iterable[Exchange]) -> "History":
        return reduce(History.with_exchange, exchanges, History(start))

    def with_exchange(self, exchange: Exchange) -> "History":
        position, refused = self.position, self.refused_actions
        if exchange.refused:
            refused |= {exchange.action}
        elif not exchange.failed:
            position, refused = position.after(exchange.action), frozenset[str]()
        return History(position, (*self.exchanges, exchange), refused, self.observations | {exchange.observation})

    @property
    def last_refusal(self) -> Ruling | None:
        """Ruling on the last action if it was flagged; else None."""
        if not self.exchanges or not self.exchanges[-1].refused:
            return None
        return self.position.ruling(self.exchanges[-1].action)

    @property
    def last_failed(self) -> bool:
        """True if the last action was right and failed by chance."""
        return bool(self.exchanges) and self.exchanges[-1].failed

    @property
    def is_done(self) -> bool:
        """True if the goal is reached."""
        return self.position.scene.world.done(self.position.state)
