"""Ground actions: actions with all parameters filled in, and the places of the state that they read and write."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from math import prod

from pydantic import JsonValue

from refinesynth.trajectory import EffectOp
from refinesynth.world.compiled_action import CompiledAction
from refinesynth.world.effects import ANY, EACH, CompiledEffect, relax_effects
from refinesynth.world.executor import World
from refinesynth.world.expression import Expression, json_bytes
from refinesynth.world.rulebook_errors import Inapplicable
from refinesynth.world.text_template import Pointer, Slot, Template
from refinesynth.world.visibility import CompiledSight, Visibility

MAX_GROUND_ACTIONS = 4_000
"""Maximum number of ground actions in a search without candidates."""


@dataclass(frozen=True, slots=True)
class Item:
    """Last step of a place: membership of this text in a list, or of this key in an object, and nothing else of it."""

    name: str


Place = tuple[str | Item | None, ...]
"""Keys of a place in the state; None for a key that is known only at execution."""


def ground_actions(world: World) -> Iterator[str]:
    """Yield every action with every combination of its allowed values, in the rulebook's order.

    Actions with a parameter that has no list of values are omitted. The number can be huge; take as many as you need.
    """
    return (action.spec.fill(values) for action in world.actions for values in fillings(action))


def some_ground_actions(world: World, most: int) -> tuple[tuple[str, ...], bool]:
    """Return at most `most` ground actions, and whether these are all.

    They are in the rulebook's order; if there are too many, each action gets a share.
    """
    counts = [prod(len(action.spec.choices(name)) for name in action.spec.placeholders) for action in world.actions]
    share, left = most, most
    if sum(counts) > most:
        for at, count in enumerate(sorted(counts)):
            share = left // (len(counts) - at)
            if count > share:
                break
            left -= count
    listed = all(action.spec.choices(name) for action in world.actions for name in action.spec.placeholders)
    taken = (action.spec.fill(values) for action in world.actions for values in islice(fillings(action), share))
    return tuple(taken), sum(counts) <= most and listed


def fillings(action: CompiledAction, known: Collection[str] | None = None) -> Iterator[dict[str, str]]:
    """Yield the combinations of an action's allowed values, only typed ones and those that are `known`, if given."""
    spec = action.spec
    choices = [
        [value for value in spec.choices(name) if known is None or value in known or name in spec.types]
        for name in spec.placeholders
    ]
    return (dict(zip(spec.placeholders, values, strict=True)) for values in product(*choices))


@dataclass(frozen=True, eq=False)
class Fact:
    """A condition with the values of its parameters."""

    condition: Expression
    values: Mapping[str, str]
    visibility: Visibility | None = None
    """Visibility of names, if the condition uses it."""

    def answer(self, state: JsonValue) -> bool | str:
        """Return true, false, or the reason why there is no answer."""
        return self.condition.answer(state, self.values)

    def holds(self, state: JsonValue) -> bool:
        """Return whether the condition holds; without an answer it does not."""
        return self.answer(state) is True

    def question(self, state: JsonValue) -> bytes | None:
        """Return all values that the answer depends on in this state."""
        return self.condition.question(state, self.values)

    @property
    def sought(self) -> str | None:
        """The name in a test for visibility, if the condition is nothing else."""
        sought = self.condition.analysis.sought
        return self.values.get(sought.name, "") if isinstance(sought, Slot) else sought

    @cached_property
    def reads(self) -> tuple[Place, ...]:
        """Places that the answer depends on."""
        own = _read(self.condition, self.values)
        return own if self.visibility is None else (*own, *visibility_reads(self.visibility))


@dataclass(frozen=True, eq=False)
class ShownFact:
    """The fact that a sight's path shows a name, regardless of the sight's condition."""

    sight: CompiledSight
    values: dict[str, str]
    name: str

    def holds(self, state: JsonValue) -> bool:
        """Return whether the path shows the name."""
        return self.sight.holds(state, self.values, self.name)

    def question(self, state: JsonValue) -> bytes | None:
        """Return all relevant values in this state: the path's target, and whether it shows the name."""
        return json_bytes((self.sight.at(state, self.values), self.holds(state)))

    @cached_property
    def reads(self) -> tuple[Place, ...]:
        """Places that the fact depends on."""
        return (*_pointed(self.sight.path, self.values, Item(self.name)), *_pointed(self.sight.each, {}))


@dataclass(frozen=True, slots=True, eq=False)
class GroundAction:
    """An action text with its compiled action."""

    text: str
    world: World
    action: CompiledAction
    values: Mapping[str, str]
    requires: tuple[Fact, ...]
    """All requirements, split at `&&`."""
    writes: tuple[Place, ...]
    """Places that its effects, and the update of the knowledge record, change."""
    lookups: tuple[Place, ...]
    """Places that determine the target or value of a write."""
    costs: tuple[Place, ...]
    """Places that a refusal changes."""

    def relaxed(self, state: JsonValue) -> JsonValue:
        """Return the state after relaxed effects, whose conditions are assumed to hold."""
        after = relax_effects(self.action.effects, state, self.values)
        with suppress(Inapplicable):
            return self.world.learned(state, after, self.action, self.values)
        return after


class Facts:
    """Facts by condition and values, each created once."""

    def __init__(self, visibility: Visibility) -> None:
        self._visibility = visibility
        self._known: dict[tuple[int, tuple[str | None, ...]], Fact] = {}
        self._shown: dict[tuple[int, str | None, str], ShownFact] = {}

    def fact(self, condition: Expression, values: Mapping[str, str]) -> Fact:
        """Return the fact that a condition holds for these values."""
        key = (id(condition), tuple(values.get(name) for name in condition.analysis.parameters))
        found = self._known.get(key)
        if found is None:
            visibility = None if condition.visible is None else self._visibility
            found = self._known[key] = Fact(condition, values, visibility)
        return found

    def shown(self, at: int, sight: CompiledSight, values: dict[str, str], name: str) -> ShownFact:
        """Return the fact that the sight with this index shows a name."""
        key = (at, values.get(EACH), name)
        found = self._shown.get(key)
        if found is None:
            found = self._shown[key] = ShownFact(sight, values, name)
        return found


def ground(world: World, texts: Iterable[str], facts: Facts) -> tuple[GroundAction, ...]:
    """Return the ground actions of these texts; repeated texts and texts that are no action are omitted."""
    found: dict[str, GroundAction] = {}
    sees = visibility_reads(world.visibility)
    known = () if world.knowledge is None else _pointed(world.knowledge.path, {})
    for text in texts:
        read = world.read(text)
        if read is None or text in found:
            continue
        action, values = read
        calculations = [one for effect in action.effects for one in effect.expressions]
        # With an `else` effect, conditions determine the written value.
        if any(effect.otherwise for effect in action.effects):
            calculations += [effect.when for effect in action.effects if effect.when is not None]
        paths = (at for effect in action.effects for at in (effect.path, effect.from_path, effect.each))
        pointers = [at for at in paths if at is not None]
        walked = (effect.each for effect in action.effects if effect.each is not None)
        templates = [step for at in pointers for step in at.steps]
        templates += [template for effect in action.effects for template in effect.templates]
        if known:
            # The observation determines the recorded knowledge.
            templates += [text for _, text in action.reveals]
            calculations += [when for when, _ in action.reveals if when is not None]
        found[text] = GroundAction(
            text=text,
            world=world,
            action=action,
            values=values,
            requires=tuple(
                facts.fact(part, values) for requirement in action.requires for part in requirement.condition.conjuncts
            ),
            writes=(*(place for effect in action.effects for place in _written(effect, values)), *known[:1]),
            lookups=(
                *(_place(at, values) for template in templates for at in _lookups(template)),
                *(_place(at, values) for at in walked),
                *(place for one in calculations for place in _read(one, values)),
                *(sees if known or any(one.visible is not None for one in calculations) else ()),
                *known[1:],
            ),
            costs=tuple(
                place
                for requirement in action.requires
                for effect in requirement.effects
                for place in _written(effect, values)
            ),
        )
    return tuple(found.values())


def overlap(one: Place, other: Place) -> bool:
    """Return whether one place may be part of the other."""
    return all(a == b or _may_meet(a, b) for a, b in zip(one, other, strict=False))


def _may_meet(one: str | Item | None, other: str | Item | None) -> bool:
    """Return whether two different keys may refer to the same value."""
    if one is None or other is None:
        return True
    if isinstance(one, str):
        # A digit may be an index of a list.
        return isinstance(other, Item) and (one == other.name or one.isdigit())
    return isinstance(other, str) and _may_meet(other, one)


def visibility_reads(visibility: Visibility) -> tuple[Place, ...]:
    """Return the places that determine visibility."""
    places: list[Place] = []
    for sight in visibility.sights:
        places += (*_pointed(sight.path, {}), *_pointed(sight.each, {}))
        if sight.when is not None:
            places += _read(sight.when, {})
    return tuple(dict.fromkeys(places))


def _read(condition: Expression, values: Mapping[str, str]) -> tuple[Place, ...]:
    """Return the places of the state that a condition reads itself, without those that it reads through `visible`."""
    places: list[Place] = []
    for keys, sought in condition.analysis.reads.items():
        place = tuple(_value_of(step, values) for step in keys)
        names = () if None in sought else [_value_of(name, values) for name in sought if name is not None]
        places += [(*place, None if name is None else Item(name)) for name in names] or [place]
    return tuple(places)


def _value_of(step: str | Slot, values: Mapping[str, str]) -> str | None:
    return values.get(step.name) if isinstance(step, Slot) else step


def _pointed(pointer: Pointer | None, values: Mapping[str, str], *below: Item) -> tuple[Place, ...]:
    """Return the place of a pointer with further keys, and the places that determine it."""
    if pointer is None:
        return ()
    deciding = (_place(at, values) for step in pointer.steps for at in _lookups(step))
    return ((*_place(pointer, values), *below), *deciding)


def _written(effect: CompiledEffect, values: Mapping[str, str]) -> Iterator[Place]:
    if effect.any_at is not None:
        values = {name: value for name, value in values.items() if name != ANY}  # it stands for every key
    listed = effect.op is not EffectOp.SET and effect.text is not None
    name = _known(effect.text, values) if listed and effect.text is not None else None
    for pointer in (effect.path, effect.from_path):
        if pointer is not None:
            place = _place(pointer, values)
            # An added or removed item. A changed number or text is at the place itself, a prefix of this one.
            yield place if name is None else (*place, Item(name))
    source = effect.from_path or effect.path
    if effect.op in {EffectOp.REMOVE, EffectOp.MOVE} and effect.value is None:
        place = _place(source, values)
        if isinstance(last := place[-1], str) and last.isdecimal():
            # A removal changes the index of all later items.
            yield (*place[:-1], None)


def _place(pointer: Pointer, values: Mapping[str, str]) -> Place:
    return tuple(_known(step, values) for step in pointer.steps)


def _known(step: Template, values: Mapping[str, str]) -> str | None:
    """Return the key of a step if it does not depend on the state."""
    texts = [
        part if isinstance(part, str) else values.get(part.name) if isinstance(part, Slot) else None
        for part in step.parts
    ]
    known = [text for text in texts if text is not None]
    return "".join(known) if len(known) == len(texts) else None


def _lookups(template: Template) -> Iterator[Pointer]:
    for part in template.parts:
        if isinstance(part, Pointer):
            yield part
            for step in part.steps:
                yield from _lookups(step)
