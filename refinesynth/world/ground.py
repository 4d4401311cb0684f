"""Ground actions: an action with all its parameters filled in, and what of the state it writes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from pydantic import JsonValue

from refinesynth.world.executor import CompiledAction, World
from refinesynth.world.expression import Expression
from refinesynth.world.template import Pointer, Slot, Template

Place = tuple[str | None, ...]
"""Keys of a place in the state; None where a key is only known when the action runs."""


def ground_actions(world: World) -> Iterator[str]:
    """Every action filled with every combination of its allowed values, in the rulebook's order.

    An action with a parameter that takes any value is left out, since nobody can list it.
    """
    for action in world.actions:
        names = action.spec.placeholders
        for values in product(*(action.spec.parameters.get(name, ()) for name in names)):
            yield action.spec.fill(dict(zip(names, values, strict=True)))


@dataclass(frozen=True, eq=False)
class Fact:
    """A condition with its parameters: something that holds in a state or does not."""

    condition: Expression
    values: Mapping[str, str]

    def holds(self, state: JsonValue) -> bool:
        """Whether it holds; without an answer it does not."""
        return self.condition.answer(state, self.values) is True

    def question(self, state: JsonValue) -> bytes | None:
        """All that the answer depends on in this state."""
        return self.condition.question(state, self.values)

    @cached_property
    def reads(self) -> tuple[Place, ...]:
        """Places that the answer depends on."""
        return tuple(
            tuple(self.values.get(step.name) if isinstance(step, Slot) else step for step in chain)
            for chain in self.condition.analysis.chains
        )


@dataclass(frozen=True, slots=True, eq=False)
class GroundAction:
    """An action text, read."""

    text: str
    action: CompiledAction
    values: Mapping[str, str]
    requires: tuple[Fact, ...]
    """All that must hold, taken apart at `&&`."""
    writes: tuple[Place, ...]
    """Places that its effects change."""
    lookups: tuple[Place, ...]
    """Places that decide where and what it writes."""

    def relaxed(self, state: JsonValue) -> JsonValue:
        """The state after its effects as if all that they need were so."""
        for effect in self.action.effects:
            state = effect.relaxed(state, self.values)
        return state


def ground(world: World, texts: Iterable[str]) -> tuple[GroundAction, ...]:
    """Read action texts; those that are no action, and repetitions, are left out."""
    facts: dict[tuple[int, tuple[str | None, ...]], Fact] = {}

    def fact(condition: Expression, values: Mapping[str, str]) -> Fact:
        key = (id(condition), tuple(values.get(name) for name in condition.analysis.parameters))
        return facts.setdefault(key, Fact(condition, values))

    found: dict[str, GroundAction] = {}
    for text in texts:
        read = world.read(text)
        if read is None or text in found:
            continue
        action, values = read
        pointers = [at for effect in action.effects for at in (effect.path, effect.from_path) if at is not None]
        templates = [step for at in pointers for step in at.steps]
        templates += [template for effect in action.effects for template in effect.templates]
        found[text] = GroundAction(
            text=text,
            action=action,
            values=values,
            requires=tuple(
                fact(part, values) for requirement in action.requires for part in requirement.condition.conjuncts
            ),
            writes=tuple(_place(at, values) for at in pointers),
            lookups=tuple(_place(at, values) for template in templates for at in _lookups(template)),
        )
    return tuple(found.values())


def overlap(one: Place, other: Place) -> bool:
    """Whether what is at one place may be part of what is at the other."""
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=False))


def _place(pointer: Pointer, values: Mapping[str, str]) -> Place:
    return tuple(_known(step, values) for step in pointer.steps)


def _known(step: Template, values: Mapping[str, str]) -> str | None:
    """The key that a step names, if no state is needed to know it."""
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
