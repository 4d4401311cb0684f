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
