"""Plan of a player with partial knowledge: it searches hidden things from place to place.

The places follow from the rulebook's sights. A sight shows the names at its path. Evaluated for every key of a variable
step and without its condition, it yields all names that can become visible there; the names on the path are the places.
Names in no sight are never visible and are not included.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

import orjson
from pydantic import JsonValue

from refinesynth.errors import Inapplicable
from refinesynth.rehearsal.replayed_history import History, Position
from refinesynth.rehearsal.scene import Scene
from refinesynth.trajectory import ActionSpec
from refinesynth.trajectory.value import weakly_cached
from refinesynth.world import mentions
from refinesynth.world.executor import World
from refinesynth.world.json_pointer import resolve
from refinesynth.world.text_template import Pointer, Slot, Template
from refinesynth.world.visibility import names_at

_MAX_POSITIONS = 200


def plan_of(history: History) -> tuple[str, ...]:
    """Return the true plan up to the first hidden thing, as if that were at the next place to search."""
    position = history.position
    plan, scene = position.plan, position.scene
    unknown = _unknown(history)
    if unknown is None:
        return plan
    index, _, actual = unknown
    earlier = [number for number, step in enumerate(plan[:index]) if not _reveals_places(scene, step)]
    place = _next_place(history, actual)
    if place is None:
        return plan
    first_steps = plan[: earlier[-1] + 1] if earlier else _steps_to(position, place)
    return (*first_steps, _moved(scene, plan[index], actual, place), *plan[index + 1 :])


def hidden_target(history: History) -> str | None:
    """Return the hidden thing that the next step is about, if any."""
    position, unknown = history.position, _unknown(history)
    if unknown is None or not all(_reveals_places(position.scene, step) for step in position.plan[: unknown[0]]):
        return None
    return unknown[1]


def _unknown(history: History) -> tuple[int, str, frozenset[str]] | None:
    """Return the index of the first step about a hidden thing that was never seen or mentioned, its name and its
    places.
    """
    scene = history.position.scene
    if not scene.hidden:
        return None
    hidden = hidden_names(scene.world).places_of
    accepted = (exchange.observation for exchange in history.exchanges if not exchange.refused and not exchange.failed)
    texts = (scene.script.introduction, *accepted)
    for index, step in enumerate(history.position.plan):
        parsed = scene.world.read(step)
        for value in parsed[1].values() if parsed else ():
            if value not in hidden or any(mentions(text, value) for text in texts):
                continue
            if not hidden[value] & _searched_places(history.position):
                return index, value, hidden[value]
    return None


def _reveals_places(scene: Scene, step: str) -> bool:
    parsed = scene.world.read(step)
    return parsed is not None and scene.verbs[parsed[0].spec.name].seeks


def _next_place(history: History, actual: frozenset[str]) -> str | None:
    """Return the first unsearched place, in a fixed order per scene, so that two searches cannot alternate forever."""
    scene = history.position.scene
    # A place may be a container too; the longest list is that of all places.
    places = max((values for values in scene.plot.values.values() if actual & set(values)), key=len, default=())
    searched = _searched_places(history.position)

    def order(place: str) -> bytes:
        return blake2b(f"{scene.label} {place}".encode(), digest_size=8).digest()

    return min((place for place in places if place not in searched), key=order, default=None)


def _searched_places(position: Position) -> set[str]:
    places = _places_in_view(position)
    while position.previous:
        position = position.previous[0]
        places |= _places_in_view(position)
    return places


def _places_in_view(position: Position) -> set[str]:
    """Return the places whose content is visible here: those on the path of a sight."""
    world, state = position.scene.world, position.state
    names: set[str] = set()
    for sight in world.visibility.sights:
        for values in sight.bindings(state):
            if sight.when is None or sight.when.answer(state, values) is True:
                names.update(sight.keys(state, values) or ())
    return names


def _steps_to(position: Position, place: str) -> tuple[str, ...]:
    """Return the fewest steps to see into a place; empty if there is no way."""
    steps = sorted(position.scene.revealing_actions, key=lambda step: not mentions(step, place))
    queue, seen = deque([(position, tuple[str, ...]())]), {orjson.dumps(position.state)}
    while queue and len(seen) < _MAX_POSITIONS:
        current, path = queue.popleft()
        for step in steps:
            successor = current.after(step)
            if successor is current or (key := orjson.dumps(successor.state)) in seen:
                continue
            if place in _places_in_view(successor):
                return (*path, step)
            seen.add(key)
            queue.append((successor, (*path, step)))
    return ()


def _moved(scene: Scene, step: str, actual: frozenset[str], place: str) -> str:
    parsed = scene.world.read(step)
    if parsed is None:
        return step
    spec: ActionSpec = parsed[0].spec
    return spec.fill({name: place if value in actual else value for name, value in parsed[1].items()})


MAX_VALUES_READ = 4_000
"""Maximum number of values that are read at each step of a path."""

MAX_FIELDS = 32
"""Maximum number of fields of an object that may state its own place; larger objects are not examined for it."""


@dataclass(frozen=True, slots=True)
class HiddenNames:
    """Initially hidden names and their places; only names in `World.names`."""

    places_of: Mapping[str, frozenset[str]]
    """Hidden name to its places; names without a named place are omitted."""


@weakly_cached
def hidden_names(world: World) -> HiddenNames:
    """Return the initially hidden names of a world; none without sights."""
    state: JsonValue = world.script.environment
    visible = frozenset(world.visible(state))
    by_name: dict[str, set[str]] = {}
    for sight in world.visibility.sights:
        for value, on_path in _path_ends(sight.path, state) if sight.path is not None else ():
            names = names_at(value)
            path_places = (on_path & world.names).difference(names)
            for name in names:
                if name in world.names and name not in visible and path_places:
                    by_name.setdefault(name, set()).update(path_places)
    return HiddenNames(places_of={name: frozenset(found) for name, found in by_name.items()})


def _path_ends(path: Pointer, state: JsonValue) -> list[tuple[JsonValue, frozenset[str]]]:
    """Return the values at the ends of a path with their ways, at most `MAX_VALUES_READ`."""
    ends: list[tuple[JsonValue, frozenset[str]]] = [(state, frozenset())]
    for step in path.steps:
        values = (item for value, names in ends for item in _step_values(value, names, step))
        ends = list(islice(values, MAX_VALUES_READ))
    return ends


def _step_values(value: JsonValue, names: frozenset[str], step: Template) -> Iterator[tuple[JsonValue, frozenset[str]]]:
    """Yield the values of a step: one for a constant step, else all."""
    constant = step.constant
    if isinstance(value, list):
        # An index is no name of a place.
        with suppress(Inapplicable):
            yield from ((item, names) for item in (value if constant is None else [resolve(value, (constant,))]))
    if not isinstance(value, dict):
        return
    keys = value if constant is None else [constant] if constant in value else []
    # If an object states its own place (`"key": {"at": "drawer"}`), the place is no key but a text beside the name.
    variable = any(isinstance(part, Slot) for part in step.parts)
    for key in keys:
        child = value[key]
        values = [*child.values()] if isinstance(child, dict) and variable and len(child) <= MAX_FIELDS else []
        yield child, names | {key, *(text for text in values if isinstance(text, str))}
