"""Ground actions: actions with all parameters filled in, and the places of the state that they read and write."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from math import prod

from pydantic import JsonValue

from refinesynth.trajectory import EffectOp
from refinesynth.world.compiled_action import CompiledAction
from refinesynth.world.condition import BEFORE, Chain
from refinesynth.world.effects import ANY, EACH, CompiledEffect, apply_effects, relax_effects
from refinesynth.world.executor import World
from refinesynth.world.expression import Expression, json_bytes
from refinesynth.world.rulebook_errors import Inapplicable
from refinesynth.world.text_template import Pointer, Slot, Template, Values
from refinesynth.world.visibility import CompiledSight, Visibility

MAX_WORK = 20_000_000_000
"""Default work limit of a search: some tens of seconds, reached only by rulebooks that are slow on purpose."""

BASE = 1_000
"""Base cost of an evaluation or a change, in the unit of a condition's cost: bytes of touched state."""


class WorkLimitExceeded(Exception):
    """The work limit is reached. Caught where the limit was created."""


@dataclass
class WorkLimit:
    """Deterministic counter of work, estimated from above."""

    left: int = MAX_WORK
    size: int = 0
    """Size of the current state in bytes."""

    def charge(self, work: int) -> None:
        """Count work.

        Raises:
            WorkLimitExceeded: The limit is reached.
        """
        self.left -= work
        if self.left < 0:
            raise WorkLimitExceeded


MAX_GROUND_ACTIONS = 4_000
"""Maximum number of ground actions in a search without candidates."""


@dataclass(frozen=True, slots=True)
class Item:
    """Last step of a place: membership of this text in a list, or of this key in an object, and nothing else of it."""

    name: str


MakeEffects = Callable[[Sequence[CompiledEffect], JsonValue, Values], JsonValue]
"""Function that applies effects in order; raises `Inapplicable` if one cannot be applied."""

Place = tuple[str | Item | None, ...]
"""Keys of a place in the state; None for a key that is known only at execution."""


def ground_actions(world: World) -> Iterator[str]:
    """Yield every action with every combination of its allowed values, in the rulebook's order.

    Actions with a parameter that has no list of values are omitted. The number can be huge; take as many as you need.
    """
    for action in world.actions:
        yield from _fillings(action)


def some_ground_actions(world: World, most: int) -> tuple[tuple[str, ...], bool]:
    """Return at most `most` ground actions, and whether these are all.

    They are in the rulebook's order; if there are too many, each action gets a share.
    """
    counts = [_count(action) for action in world.actions]
    share, left = most, most
    if sum(counts) > most:
        for at, count in enumerate(sorted(counts)):
            share = left // (len(counts) - at)
            if count > share:
                break
            left -= count
    taken = [[text for text, _ in zip(_fillings(action), range(share), strict=False)] for action in world.actions]
    listed = all(action.spec.choices(name) for action in world.actions for name in action.spec.placeholders)
    return tuple(chain.from_iterable(taken)), sum(counts) <= most and listed


def _count(action: CompiledAction) -> int:
    return prod(len(action.spec.choices(name)) for name in action.spec.placeholders)


def _fillings(action: CompiledAction) -> Iterator[str]:
    names = action.spec.placeholders
    for values in product(*(action.spec.choices(name) for name in names)):
        yield action.spec.fill(dict(zip(names, values, strict=True)))


@dataclass(frozen=True, eq=False)
class Fact:
    """A condition with the values of its parameters."""

    condition: Expression
    values: Mapping[str, str]
    visibility: Visibility | None = None
    """Visibility of names, if the condition uses it."""
    work_limit: WorkLimit = field(default_factory=WorkLimit, repr=False)

    def answer(self, state: JsonValue) -> bool | str:
        """Return true, false, or the reason why there is no answer.

        Raises:
            WorkLimitExceeded: The work limit is reached.
        """
        self.work_limit.charge(self.condition.work(state, self.values, self.work_limit.size) + BASE)
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
    work_limit: WorkLimit = field(default_factory=WorkLimit, repr=False)

    def holds(self, state: JsonValue) -> bool:
        """Return whether the path shows the name."""
        self.work_limit.charge(self.work_limit.size + BASE)
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
    action: CompiledAction
    values: Mapping[str, str]
    requires: tuple[Fact, ...]
    """All requirements, split at `&&`."""
    writes: tuple[Place, ...]
    """Places that its effects, and the update of the knowledge record, change."""
    lookups: tuple[Place, ...]
    """Places that determine the target or value of a write."""
    learned: Callable[[JsonValue, JsonValue, CompiledAction, Mapping[str, str]], JsonValue] | None = None
    """See `World.learned`; None without a knowledge record."""
    costs: tuple[Place, ...] = ()
    """Places that a refusal changes."""
    work_limit: WorkLimit = field(default_factory=WorkLimit, repr=False)
    dependent: tuple[frozenset[int], ...] = ()
    """For the effects, then for those of each requirement: indices of effects whose cost depends on earlier writes. The
    index after the last effect is the observation's."""

    def relaxed(self, state: JsonValue) -> JsonValue:
        """Return the state after relaxed effects, whose conditions are assumed to hold."""
        self.charge_effects(state, relax_effects)
        after = relax_effects(self.action.effects, state, self.values)
        try:
            return after if self.learned is None else self.learned(state, after, self.action, self.values)
        except Inapplicable:
            return after

    def charge_effects(self, state: JsonValue, make: MakeEffects = apply_effects) -> None:
        """Charge the cost of its effects, applied by `make`, in this state, and of the knowledge record.

        Raises:
            WorkLimitExceeded: The work limit is reached.
        """
        if self.learned is not None:
            self.work_limit.charge(self.work_limit.size + BASE)
        self._charge(self.action.effects, self.dependent[0], state, make, told=self.learned is not None)

    def charge_watched(self, state: JsonValue) -> None:
        """Charge the cost of its effects and observation in this state if they are evaluated only to watch them."""
        self._charge(self.action.effects, self.dependent[0], state, apply_effects, told=True)

    def charge_price(self, at: int, state: JsonValue) -> None:
        """Charge the cost of the effects of the requirement with this index in this state."""
        self._charge(self.action.requires[at].effects, self.dependent[at + 1], state, apply_effects, told=False)

    def _charge(
        self,
        effects: tuple[CompiledEffect, ...],
        dependent: frozenset[int],
        state: JsonValue,
        make: MakeEffects,
        *,
        told: bool,
    ) -> None:
        size, charge = self.work_limit.size, self.work_limit.charge
        charge(len(effects) * (size // 8 + BASE))
        here, spent, values = state, 0, {BEFORE: state, **self.values}
        for at in range(len(effects) + told):
            if at in dependent:
                # The cost depends on the effects before, so they are applied here once more.
                charge(spent + at * (size // 8 + BASE))
                try:
                    here = make(effects[:at], state, self.values)
                except Inapplicable:
                    return
                size = max(size, len(json_bytes(here) or b""))
            if at < len(effects):
                work = _work_of(effects[at], here, values, size)
            else:
                work = sum(when.work(here, values, size) for when, _ in self.action.reveals if when is not None)
            charge(work)
            spent += work


def _work_of(effect: CompiledEffect, state: JsonValue, values: Values, size: int) -> int:
    """Return the cost of one effect in this state, in addition to the base cost."""
    asked = effect.expressions if effect.when is None else (*effect.expressions, effect.when)
    readings, work = (values,), 0
    if effect.each is not None:
        try:
            readings = effect.readings(state, values)
        except Inapplicable:
            return 0
        work = len(readings) * (size // 8 + BASE)
    return work + sum(one.work(state, reading, size) for reading in (readings if asked else ()) for one in asked)


class Facts:
    """Facts by condition and values, each created once."""

    def __init__(self, visibility: Visibility, work_limit: WorkLimit) -> None:
        self._visibility = visibility
        self._work_limit = work_limit
        self._known: dict[tuple[int, tuple[str | None, ...]], Fact] = {}
        self._shown: dict[tuple[int, str | None, str], ShownFact] = {}

    def fact(self, condition: Expression, values: Mapping[str, str]) -> Fact:
        """Return the fact that a condition holds for these values."""
        key = (id(condition), tuple(values.get(name) for name in condition.analysis.parameters))
        found = self._known.get(key)
        if found is None:
            visibility = None if condition.visible is None else self._visibility
            found = self._known[key] = Fact(condition, values, visibility, self._work_limit)
        return found

    def shown(self, at: int, sight: CompiledSight, values: dict[str, str], name: str) -> ShownFact:
        """Return the fact that the sight with this index shows a name."""
        key = (at, values.get(EACH), name)
        found = self._shown.get(key)
        if found is None:
            found = self._shown[key] = ShownFact(sight, values, name, self._work_limit)
        return found

    def goal(self, world: World) -> tuple[Fact, ...]:
        """Return all goal conditions, split at `&&`."""
        return tuple(self.fact(part, {}) for condition in world.goal for part in condition.conjuncts)


def ground(
    world: World, texts: Iterable[str], facts: Facts | None = None, work_limit: WorkLimit | None = None
) -> tuple[GroundAction, ...]:
    """Return the ground actions of these texts; repeated texts and texts that are no action are omitted."""
    work_limit = work_limit or WorkLimit()
    facts = facts or Facts(world.visibility, work_limit)
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
            learned=world.learned if known else None,
            costs=tuple(
                place
                for requirement in action.requires
                for effect in requirement.effects
                for place in _written(effect, values)
            ),
            work_limit=work_limit,
            dependent=(
                frozenset(_dependent(action.effects, values, sees, [when for when, _ in action.reveals])),
                *(frozenset(_dependent(requirement.effects, values, sees)) for requirement in action.requires),
            ),
        )
    return tuple(found.values())


def _dependent(
    effects: tuple[CompiledEffect, ...],
    values: Mapping[str, str],
    sees: tuple[Place, ...],
    told: Sequence[Expression | None] = (),
) -> Iterator[int]:
    """Yield the indices of effects, and of the observation, whose cost depends on earlier effects."""
    costly = [((*effect.expressions, effect.when), effect.each) for effect in effects]
    written: list[Place] = []
    grown = False
    for at, (asked, each) in enumerate([*costly, (told, None)]):
        # All other effects cost the same in all states of a size.
        walks = [one for one in asked if one is not None and len(one.analysis.work) > 1]
        if written and (walks or each is not None):
            reads = [*_pointed(each, values), *(place for one in walks for place in _read(one, values))]
            if any(one.visible is not None for one in walks):
                reads += sees
            if (grown and each is not None) or any(overlap(write, read) for write in written for read in reads):
                grown = False
                yield at
        if at < len(effects):
            written += _written(effects[at], values)
            grown = grown or _grows(effects[at])


def _grows(effect: CompiledEffect) -> bool:
    """Return whether an effect may enlarge the state considerably."""
    return effect.copies or sum(len(template.constant or "") for template in effect.templates) > BASE


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
    members = dict[Chain, list[str | Slot]]()
    for keys, sought in condition.analysis.members:
        members.setdefault(keys, []).append(sought)
    places: list[Place] = []
    for keys in condition.analysis.chains:
        place = tuple(_given(step, values) for step in keys)
        names = [_given(sought, values) for sought in members.get(keys, ())]
        places += [(*place, None if name is None else Item(name)) for name in names] or [place]
    return tuple(places)


def _given(step: str | Slot, values: Mapping[str, str]) -> str | None:
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
