"""Initial places of hidden things, derived from the rulebook's sights.

A sight shows the names at its path. Evaluated for every key of a variable step and without its condition, it yields all
names that can become visible there; the names on the path are the places. Names in no sight are never visible and are
not included.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from pydantic import JsonValue

from refinesynth.trajectory.weak_cache import weakly_cached
from refinesynth.world.executor import World
from refinesynth.world.json_pointer import resolve
from refinesynth.world.rulebook_errors import Inapplicable
from refinesynth.world.text_template import Pointer, Slot, Template
from refinesynth.world.visibility import names_at

MAX_READ = 4_000
"""Maximum number of values that are read at each step of a path."""

MAX_BESIDE = 32
"""Maximum number of fields of an object that may state its own place; larger objects are not examined for it."""


@dataclass(frozen=True, slots=True)
class HiddenNames:
    """Initially hidden names and their places; only names in `World.names`."""

    where: Mapping[str, frozenset[str]]
    """Hidden name to its places; names without a named place are omitted."""
    places: frozenset[str]
    """Every name on a path to names that a sight could show."""


@weakly_cached
def hidden_names(world: World) -> HiddenNames:
    """Return the initially hidden names of a world; none without sights."""
    state: JsonValue = world.script.environment
    seen = frozenset(world.visible(state))
    where: dict[str, set[str]] = {}
    places: set[str] = set()
    for sight in world.visibility.sights:
        for value, way in _ends(sight.path, state)[0] if sight.path is not None else ():
            names = names_at(value)
            along = (way & world.names).difference(names)
            places.update(along)
            for name in names:
                if name in world.names and name not in seen and along:
                    where.setdefault(name, set()).update(along)
    return HiddenNames(where={name: frozenset(at) for name, at in where.items()}, places=frozenset(places))


@weakly_cached
def shown_anywhere(world: World) -> frozenset[str]:
    """Return every name that a sight could show in the initial state, for all keys of variable steps and regardless of
    its condition. The result includes all of `World.names` if a sight shows its own `each` or has too many values.
    """
    shown = set[str]()
    for sight in world.visibility.sights:
        if sight.path is None:
            shown.update(world.names if sight.named_by_each else (sight.name,))
            continue
        ends, complete = _ends(sight.path, world.script.environment)
        if not complete:
            shown.update(world.names)
        for value, _ in ends:
            shown.update(names_at(value))
    return frozenset(shown)


def only_lists(world: World, place: tuple[object, ...]) -> bool:
    """Return whether all values that initially exist at a place are lists; a step that is no text stands for any key.

    False if there are too many values to check.
    """
    anywhere = Template((Slot("any"),))
    path = Pointer(tuple(Template((step,)) if isinstance(step, str) else anywhere for step in place))
    ends, complete = _ends(path, world.script.environment)
    return complete and all(isinstance(value, list) for value, _ in ends)


def _ends(path: Pointer, state: JsonValue) -> tuple[list[tuple[JsonValue, frozenset[str]]], bool]:
    """Return the values at all ends of a path with their ways, and whether the result is complete."""
    found: list[tuple[JsonValue, frozenset[str]]] = [(state, frozenset())]
    complete = True
    for step in path.steps:
        below = (item for value, way in found for item in _below(value, way, step))
        found = list(islice(below, MAX_READ + 1))
        complete = complete and len(found) <= MAX_READ
        found = found[:MAX_READ]
    return found, complete


def _below(value: JsonValue, way: frozenset[str], step: Template) -> Iterator[tuple[JsonValue, frozenset[str]]]:
    """Yield the values of a step: one for a constant step, else all."""
    fixed = step.constant
    if isinstance(value, list):
        # An index is no name of a place.
        with suppress(Inapplicable):
            yield from ((item, way) for item in (value if fixed is None else [resolve(value, (fixed,))]))
    if not isinstance(value, dict):
        return
    keys = value if fixed is None else [fixed] if fixed in value else []
    # If an object states its own place (`"key": {"at": "drawer"}`), the place is no key but a text beside the name.
    each = any(isinstance(part, Slot) for part in step.parts)
    for key in keys:
        below = value[key]
        values = [*below.values()] if isinstance(below, dict) and each and len(below) <= MAX_BESIDE else []
        yield below, way | {key, *(text for text in values if isinstance(text, str))}
