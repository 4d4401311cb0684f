"""Ground actions: actions with all parameters filled in, and the places of the state that they read and write."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from math import prod

from pydantic import JsonValue

from refinesynth.errors import Inapplicable
from refinesynth.trajectory import EffectOp
from refinesynth.world.compiled_action import CompiledAction
from refinesynth.world.effects import ANY, EACH, CompiledEffect, relax_effects
from refinesynth.world.executor import World
from refinesynth.world.expression import Expression, json_bytes
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


def some_ground_actions(world: World, limit: int) -> tuple[tuple[str, ...], bool]:
    """Return at most `limit` ground actions, and whether these are all.

    They are in the rulebook's order; if there are too many, each action gets a share.
    """
    counts = [prod(len(action.spec.choices(name)) for name in action.spec.placeholders) for action in world.actions]
    share, remaining = limit, limit
    if sum(counts) > limit:
        for index, count in enumerate(sorted(counts)):
            share = remaining // (len(counts) - index)
            if count > share:
                break
            remaining -= count
    enumerable = all(action.spec.choices(name) for action in world.actions for name in action.spec.placeholders)
    texts = (action.spec.fill(values) for action in world.actions for values in islice(fillings(action), share))
    return tuple(texts), sum(counts) <= limit and enumerable


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

    def inputs(self, state: JsonValue) -> bytes | None:
        """Return all values that the answer depends on in this state."""
        return self.condition.inputs(state, self.values)

    @property
    def visible_name(self) -> str | None:
        """The name in a test for visibility, if the condition is nothing else."""
        name = self.condition.analysis.visible_name
        return self.values.get(name.name, "") if isinstance(name, Slot) else name

    @cached_property
    def reads(self) -> tuple[Place, ...]:
        """Places that the answer depends on."""
        places = _reads(self.condition, self.values)
        return places if self.visibility is None else (*places, *visibility_reads(self.visibility))


@dataclass(frozen=True, eq=False)
class ShownFact:
    """The fact that a sight's path shows a name, regardless of the sight's condition."""

    sight: CompiledSight
    values: dict[str, str]
    name: str

    def holds(self, state: JsonValue) -> bool:
        """Return whether the path shows the name."""
        return self.sight.holds(state, self.values, self.name)

    def inputs(self, state: JsonValue) -> bytes | None:
        """Return all relevant values in this state: the path's target, and whether it shows the name."""
        return json_bytes((self.sight.keys(state, self.values), self.holds(state)))

    @cached_property
    def reads(self) -> tuple[Place, ...]:
        """Places that the fact depends on."""
        return (*_pointer_places(self.sight.path, self.values, Item(self.name)), *_pointer_places(self.sight.each, {}))


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
    refusal_writes: tuple[Place, ...]
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
        self._facts: dict[tuple[int, tuple[str | None, ...]], Fact] = {}
        self._shown: dict[tuple[int, str | None, str], ShownFact] = {}

    def fact(self, condition: Expression, values: Mapping[str, str]) -> Fact:
        """Return the fact that a condition holds for these values."""
        key = (id(condition), tuple(values.get(name) for name in condition.analysis.parameters))
        fact = self._facts.get(key)
        if fact is None:
            visibility = None if condition.visible is None else self._visibility
            fact = self._facts[key] = Fact(condition, values, visibility)
        return fact

    def shown(self, index: int, sight: CompiledSight, values: dict[str, str], name: str) -> ShownFact:
        """Return the fact that the sight with this index shows a name."""
        key = (index, values.get(EACH), name)
        fact = self._shown.get(key)
        if fact is None:
            fact = self._shown[key] = ShownFact(sight, values, name)
        return fact


def ground(world: World, texts: Iterable[str], facts: Facts) -> tuple[GroundAction, ...]:
    """Return the ground actions of these texts; repeated texts and texts that are no action are omitted."""
    actions: dict[str, GroundAction] = {}
    visible = visibility_reads(world.visibility)
    knowledge = () if world.knowledge is None else _pointer_places(world.knowledge.path, {})
    for text in texts:
        parsed = world.read(text)
        if parsed is None or text in actions:
            continue
        action, values = parsed
        calculations = [expr for effect in action.effects for expr in effect.expressions]
        # With an `else` effect, conditions determine the written value.
        if any(effect.is_else for effect in action.effects):
            calculations += [effect.when for effect in action.effects if effect.when is not None]
        paths = (pointer for effect in action.effects for pointer in (effect.path, effect.from_path, effect.each))
        pointers = [pointer for pointer in paths if pointer is not None]
        each_pointers = (effect.each for effect in action.effects if effect.each is not None)
        templates = [step for pointer in pointers for step in pointer.steps]
        templates += [template for effect in action.effects for template in effect.templates]
        if knowledge:
            # The observation determines the recorded knowledge.
            templates += [text for _, text in action.reveals]
            calculations += [when for when, _ in action.reveals if when is not None]
        actions[text] = GroundAction(
            text=text,
            world=world,
            action=action,
            values=values,
            requires=tuple(
                facts.fact(part, values) for requirement in action.requires for part in requirement.condition.conjuncts
            ),
            writes=(*(place for effect in action.effects for place in _writes(effect, values)), *knowledge[:1]),
            lookups=(
                *(_place(pointer, values) for template in templates for pointer in _lookups(template)),
                *(_place(pointer, values) for pointer in each_pointers),
                *(place for expr in calculations for place in _reads(expr, values)),
                *(visible if knowledge or any(expr.visible is not None for expr in calculations) else ()),
                *knowledge[1:],
            ),
            refusal_writes=tuple(
                place
                for requirement in action.requires
                for effect in requirement.effects
                for place in _writes(effect, values)
            ),
        )
    return tuple(actions.values())


def overlap(left: Place, right: Place) -> bool:
    """Return whether one place may be part of the other."""
    return all(a == b or _may_match(a, b) for a, b in zip(left, right, strict=False))


def _may_match(left: str | Item | None, right: str | Item | None) -> bool:
    """Return whether two different keys may refer to the same value."""
    if left is None or right is None:
        return True
    if isinstance(left, str):
        # A digit may be an index of a list.
        return isinstance(right, Item) and (left == right.name or left.isdigit())
    return isinstance(right, str) and _may_match(right, left)


def visibility_reads(visibility: Visibility) -> tuple[Place, ...]:
    """Return the places that determine visibility."""
    places: list[Place] = []
    for sight in visibility.sights:
        places += (*_pointer_places(sight.path, {}), *_pointer_places(sight.each, {}))
        if sight.when is not None:
            places += _reads(sight.when, {})
    return tuple(dict.fromkeys(places))


def _reads(condition: Expression, values: Mapping[str, str]) -> tuple[Place, ...]:
    """Return the places of the state that a condition reads itself, without those that it reads through `visible`."""
    places: list[Place] = []
    for keys, searched in condition.analysis.reads.items():
        place = tuple(_value_of(step, values) for step in keys)
        names = () if None in searched else [_value_of(name, values) for name in searched if name is not None]
        places += [(*place, None if name is None else Item(name)) for name in names] or [place]
    return tuple(places)


def _value_of(step: str | Slot, values: Mapping[str, str]) -> str | None:
    return values.get(step.name) if isinstance(step, Slot) else step


def _pointer_places(pointer: Pointer | None, values: Mapping[str, str], *items: Item) -> tuple[Place, ...]:
    """Return the place of a pointer with further keys, and the places that determine it."""
    if pointer is None:
        return ()
    lookups = (_place(lookup, values) for step in pointer.steps for lookup in _lookups(step))
    return ((*_place(pointer, values), *items), *lookups)


def _writes(effect: CompiledEffect, values: Mapping[str, str]) -> Iterator[Place]:
    if effect.any_index is not None:
        values = {name: value for name, value in values.items() if name != ANY}  # it stands for every key
    is_item = effect.op is not EffectOp.SET and effect.text is not None
    name = _constant_key(effect.text, values) if is_item and effect.text is not None else None
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
    return tuple(_constant_key(step, values) for step in pointer.steps)


def _constant_key(step: Template, values: Mapping[str, str]) -> str | None:
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
