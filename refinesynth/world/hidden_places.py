"""Places of hidden things at the beginning, as the rulebook's sights would show them.

A sight shows what is at its path. Read for every key at which a step of the path is not fixed, and without its
condition, it shows everything that can become visible there; the names on the way are the places. What a sight never
reads is not hidden but never visible, and is left out.
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
from refinesynth.world.visibility import CompiledSight, names_at

MAX_READ = 4_000
"""Values of the state that are read at most for one sight."""

MAX_BESIDE = 32
"""Most fields of something that may say itself where it is."""


@dataclass(frozen=True, slots=True)
class HiddenNames:
    """Names that a world hides at the beginning, and their places; only names that an action can be given."""

    where: Mapping[str, frozenset[str]]
    """Name that cannot be seen to the places where it is."""
    places: frozenset[str]
    """Every name on the way to what a sight could show."""


@weakly_cached
def hidden_names(world: World) -> HiddenNames:
    """Return what a world hides at the beginning; nothing where its rulebook has no sights."""
    state: JsonValue = world.script.environment
    seen = frozenset(world.visible(state))
    where: dict[str, set[str]] = {}
    places: set[str] = set()
    for sight in world.visibility.sights:
        for names, way in _shown(sight, state):
            along = (way & world.names).difference(names)
            places.update(along)
            for name in names:
                if name in world.names and name not in seen and along:
                    where.setdefault(name, set()).update(along)
    return HiddenNames(where={name: frozenset(at) for name, at in where.items()}, places=frozenset(places))


@weakly_cached
def shown_anywhere(world: World) -> frozenset[str]:
    """Return every name that a sight would show at the beginning, wherever it looked and whatever its conditions; all
    names that an action can be given where a sight shows what it is read for, or could look at too many places.
    """
    shown = set[str]()
    for sight in world.visibility.sights:
        if sight.path is None:
            shown.update(world.names if sight.named_by_each else (sight.name,))
            continue
        ends, whole = _ends(sight.path, world.script.environment)
        if not whole:
            shown.update(world.names)
        for value, _ in ends:
            shown.update(names_at(value))
    return frozenset(shown)


def only_lists(state: JsonValue, place: tuple[object, ...]) -> bool:
    """Return whether everything at a place is a list, as far as anything is there; a step that is no text stands for any.

    False too where that is too much to look at.
    """
    anywhere = Template((Slot("any"),))
    path = Pointer(tuple(Template((step,)) if isinstance(step, str) else anywhere for step in place))
    ends, whole = _ends(path, state)
    return whole and all(isinstance(value, list) for value, _ in ends)


def _shown(sight: CompiledSight, state: JsonValue) -> Iterator[tuple[tuple[str, ...], frozenset[str]]]:
    """Return what a sight shows at each end of its path, with the keys on the way and the texts beside them."""
    if sight.path is None:
        return  # it is nowhere
    for value, way in _ends(sight.path, state)[0]:
        yield names_at(value), way


def _ends(path: Pointer, state: JsonValue) -> tuple[list[tuple[JsonValue, frozenset[str]]], bool]:
    """Return what is at each end of a path, with its way there, and whether these are all."""
    found: list[tuple[JsonValue, frozenset[str]]] = [(state, frozenset())]
    whole = True
    for step in path.steps:
        below = (item for value, way in found for item in _below(value, way, step))
        found = list(islice(below, MAX_READ + 1))
        whole = whole and len(found) <= MAX_READ
        found = found[:MAX_READ]
    return found, whole


def _below(value: JsonValue, way: frozenset[str], step: Template) -> Iterator[tuple[JsonValue, frozenset[str]]]:
    """Return what a step leads to: one thing if it is fixed, else each."""
    fixed = step.constant
    if isinstance(value, list):
        # An index is no name of a place.
        with suppress(Inapplicable):
            yield from ((item, way) for item in (value if fixed is None else [resolve(value, (fixed,))]))
    if not isinstance(value, dict):
        return
    keys = value if fixed is None else [fixed] if fixed in value else []
    # Where a thing says itself where it is (`"key": {"at": "drawer"}`), the place is no key but a text beside what is
    # shown.
    each = any(isinstance(part, Slot) for part in step.parts)
    for key in keys:
        below = value[key]
        beside = [*below.values()] if isinstance(below, dict) and each and len(below) <= MAX_BESIDE else []
        yield below, way | {key, *(text for text in beside if isinstance(text, str))}
