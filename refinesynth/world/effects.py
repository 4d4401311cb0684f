"""Compiled effects."""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, cast

from pydantic import JsonValue

from refinesynth.errors import Inapplicable, RulebookError
from refinesynth.text.json_reader import depth
from refinesynth.trajectory import Effect, EffectOp
from refinesynth.trajectory.parameter import json_value
from refinesynth.world.condition import BEFORE
from refinesynth.world.condition_operators import NoAnswer
from refinesynth.world.expression import (
    MAX_COST,
    MAX_STATE_BYTES,
    NO_TYPES,
    Expression,
    Types,
    compile_expression,
    current_limit,
    is_valid_state,
    json_bytes,
)
from refinesynth.world.json_pointer import change, drop, json_equal, pointer_text, put, resolve
from refinesynth.world.text_template import Pointer, Slot, Template, Values, Visible, parse_pointer, parse_template

MAX_VALUE_DEPTH = 16
"""Deepest nesting of an effect's value."""

MAX_VALUE_BYTES = 16_384
"""Largest value of an effect, in bytes of JSON."""

MAX_VALUE_TEXTS = 32
"""Maximum number of texts in an effect's value, each of which may copy a part of the state."""

MAX_NUMBER = 2**53
"""Largest absolute value of a sum or a calculation; every JSON reader represents smaller whole numbers exactly."""

ANY = "any"
"""Path step that stands for every key, see `Effect.path`."""

CEL = "cel"
"""Key of a calculated value, see `Effect.value`."""

MAX_CALCULATIONS = 4
"""Maximum number of calculations in an effect's value."""

EACH = "each"
"""Variable for the current text of `each` in an effect or a sight, see `Effect.each`."""

ELSE = "else"
"""Condition of an effect that is applied if the last effect with a `when` before it was skipped, see `Effect.when`."""

MAX_EACH = 64
"""Maximum number of texts for which an effect is applied, see `Effect.each`."""

Trace = Callable[[str, bool | str], None]
"""Callback with the name of an effect or observation and the answer of its condition, or the reason why it has none;
true without a condition."""

ValueFunction = Callable[[JsonValue, Values], JsonValue]
"""Function from a state and parameters to a value."""


@dataclass(frozen=True, slots=True)
class CompiledEffect:
    """A compiled effect."""

    op: EffectOp
    path: Pointer
    value: ValueFunction | None
    from_path: Pointer | None
    when: Expression | None
    name: str
    """Name in messages, such as `effect 2 of 'go to {place}'`."""
    templates: tuple[Template, ...] = ()
    """All templates in the value."""
    text: Template | None = None
    """Template of the value if it is a text."""
    expressions: tuple[Expression, ...] = ()
    """All expressions in the value."""
    has_lookup: bool = False
    """True if the value contains a lookup, which may be large."""
    any_index: int | None = None
    """Index of the step `{any}` in the path from which a value is removed."""
    each: Pointer | None = None
    is_else: bool = False
    """True if the effect is applied when the last effect with a `when` before it was skipped, see `Effect.when`."""

    @property
    def reads_before(self) -> bool:
        """True if it reads the state before the action."""
        expressions = self.expressions if self.when is None else (*self.expressions, self.when)
        return any(expression.analysis.reads_before for expression in expressions)

    def bindings(self, state: JsonValue, values: Values) -> tuple[Values, ...]:
        """Return the variables of each application, in order.

        Raises:
            Inapplicable: `each` refers to no list or object, or to one that is too large.
        """
        if self.each is None:
            return (values,)
        keys = self.each.keys(state, values)
        target = resolve(state, keys)
        if not isinstance(target, dict | list):
            raise Inapplicable(f"what is at {pointer_text(keys)} is neither a list nor an object")
        if len(target) > MAX_EACH:
            raise Inapplicable(f"{pointer_text(keys)} holds more than {MAX_EACH}, for each of which it would be made")
        texts = sorted(target) if isinstance(target, dict) else target
        names = texts if all(isinstance(text, str) for text in texts) else map(str, range(len(texts)))
        return tuple({**values, EACH: name} for name in names)

    def apply(
        self, state: JsonValue, values: Values, answers: list[bool | str] | None = None, *, relaxed: bool = False
    ) -> JsonValue:
        """Return the state after this effect; the same object if nothing changed. The old state is never modified.

        A `when` without an answer counts as false. All of its answers, one per text of `each`, are added to `answers`.
        The relaxed form is for search only: `when` counts as true, moved values need not exist, and what cannot be
        applied changes nothing.

        Raises:
            Inapplicable: The effect cannot be applied in this state, or makes it too large.
        """
        for binding in self.bindings(state, values):
            answer = True if self.when is None or relaxed else self.when.answer(state, binding)
            if answers is not None:
                answers.append(answer)
            if answer is not True:
                continue
            limit = current_limit()
            limit.charge(limit.state_bytes // 8)
            new = self._apply_relaxed(state, binding) if relaxed else self._apply_once(state, binding)
            # After each change, because repeated copies could grow exponentially within one action.
            if new is state or (relaxed and not self.has_lookup) or is_valid_state(new, finite=True):
                state = new
            elif not relaxed:
                raise Inapplicable(f"it makes the state too deep or larger than {MAX_STATE_BYTES:,} bytes")
        return state

    def _apply_relaxed(self, state: JsonValue, values: Values) -> JsonValue:
        with suppress(Inapplicable):
            return self._apply_once(state, values)
        if self.op is EffectOp.MOVE:
            with suppress(Inapplicable):
                keys = self.path.keys(state, values)
                return put(state, keys, None) if self.value is None else _append(state, keys, self.value(state, values))
        return state

    def _apply_once(self, state: JsonValue, values: Values) -> JsonValue:
        if self.any_index is not None:
            return self._remove_from_any(state, values, self.any_index)
        keys = self.path.keys(state, values)
        value = None if self.value is None else self.value(state, values)
        if self.op is EffectOp.SET:
            return put(state, keys, value)
        if self.op is EffectOp.ADD:
            return change(state, keys, lambda old: _add(old, value, keys))
        if self.op is EffectOp.REMOVE:
            return drop(state, keys) if self.value is None else _remove(state, keys, value)
        source = cast("Pointer", self.from_path).keys(state, values)
        if self.value is not None:
            return _append(_remove(state, source, value), keys, value)
        moved = resolve(state, source)
        return state if keys == source else put(drop(state, source), keys, moved)

    def _remove_from_any(self, state: JsonValue, values: Values, any_index: int) -> JsonValue:
        """Return the state after a removal from all lists that hold the value, or a move from the first one;
        `any_index` is the index of the step `{any}`.
        """
        value = cast("ValueFunction", self.value)(state, values)
        paths = [*_lists_with(value, self.from_path or self.path, any_index, state, values)]
        if self.from_path is None:
            return _remove_from_all(state, paths, any_index, value)
        if not paths:
            raise Inapplicable("what is to be moved is in none of the lists at from_path")
        return _append(_remove(state, paths[0], value), self.path.keys(state, values), value)


def apply_effects(
    effects: Sequence[CompiledEffect], state: JsonValue, values: Values, trace: Trace | None = None
) -> JsonValue:
    """Return the state after these effects, in order; the same object if nothing changed. `trace` receives the answers
    of their conditions.

    Raises:
        Inapplicable: An effect cannot be applied in its state.
    """
    values, condition_held = {BEFORE: state, **values}, True
    for effect in effects:
        if effect.is_else and condition_held:
            continue
        answers: list[bool | str] = []
        try:
            state = effect.apply(state, values, answers)
        except Inapplicable as error:
            raise Inapplicable(f"{effect.name} cannot be applied: {error}") from None
        if trace is not None:
            for answer in answers:
                trace(effect.name, answer)
        condition_held = condition_held if effect.is_else else answers == [True]
    return state


def relax_effects(effects: Sequence[CompiledEffect], state: JsonValue, values: Values) -> JsonValue:
    """Return the state after these effects in relaxed form, for search only: their conditions are assumed to hold.

    A `when` is evaluated only if the next effect has `else`, because that effect would undo this one.
    """
    values, condition_held = {BEFORE: state, **values}, True
    for next_index, effect in enumerate(effects, 1):
        applies = not (effect.is_else and condition_held)
        if effect.when is not None and next_index < len(effects) and effects[next_index].is_else:
            applies = condition_held = effect.when.answer(state, values) is True
        if applies:
            with suppress(Inapplicable):
                state = effect.apply(state, values, relaxed=True)
    return state


def _lists_with(
    value: JsonValue, pointer: Pointer, any_index: int, state: JsonValue, values: Values
) -> Iterator[tuple[str, ...]]:
    """Yield the keys of the lists that hold a value, on a path whose step `any_index` is any key; sorted, because
    states are equal in any order of keys.
    """
    parent = Pointer(pointer.steps[:any_index]).read(state, values)
    for key in sorted(parent) if isinstance(parent, dict) else range(len(parent)) if isinstance(parent, list) else ():
        with suppress(Inapplicable):
            keys = pointer.keys(state, {**values, ANY: str(key)})
            items = resolve(state, keys)
            if isinstance(items, list) and any(json_equal(item, value) for item in items):
                yield keys


def compile_effect(
    effect: Effect,
    parameters: AbstractSet[str],
    visible: Visible | None = None,
    name: str = "the effect",
    types: Types = NO_TYPES,
) -> CompiledEffect:
    """Compile an effect. Its `when` and calculations may use the visible names if `visible` is given; not with `each`.

    Raises:
        RulebookError: A bad path, template or condition, or parts that do not fit the operation.
    """
    if (effect.from_path is not None) != (effect.op is EffectOp.MOVE):
        raise RulebookError(f"from_path belongs to move, which needs it; the op is {effect.op.value}")
    if effect.op is EffectOp.ADD and effect.value is None:
        raise RulebookError("add needs a value: a list's new item, or a number or text to add")
    _check_value(effect.value)
    each = None if effect.each is None else parse_pointer(effect.each, parameters)
    max_cost = MAX_COST
    if each is not None:
        # An expression for each of many items has a lower cost limit and cannot use `visible`.
        parameters, max_cost, visible = parameters | {EACH}, MAX_COST // MAX_EACH, None
    is_else = effect.when == ELSE
    compiled = partial(compile_expression, parameters=parameters, visible=visible, before=True, types=types)
    when = None if effect.when is None or is_else else compiled(effect.when, max_cost=max_cost)
    # A calculation has a lower cost limit than a condition, because an action can have many.
    compiler = _ValueCompiler(parameters, types, partial(compiled, max_cost=max_cost // (16 if each is None else 4)))
    filled = compiler.compile_value(effect.value)
    for noun, parts, limit in (
        ("texts", compiler.templates, MAX_VALUE_TEXTS),
        ("calculations", compiler.expressions, MAX_CALCULATIONS),
    ):
        if len(parts) > limit:
            raise RulebookError(f"the value holds {len(parts)} {noun}; at most {limit} can be made at once")
    path, from_path, any_index = _paths(effect, parameters)
    return CompiledEffect(
        op=effect.op,
        path=path,
        value=filled if effect.op is EffectOp.SET or effect.value is not None else None,
        from_path=from_path,
        when=when,
        name=name,
        templates=tuple(compiler.templates),
        text=compiler.templates[0] if isinstance(effect.value, str) else None,
        expressions=tuple(compiler.expressions),
        has_lookup=any(isinstance(part, Pointer) for template in compiler.templates for part in template.parts),
        any_index=any_index,
        each=each,
        is_else=is_else,
    )


def _paths(effect: Effect, parameters: AbstractSet[str]) -> tuple[Pointer, Pointer | None, int | None]:
    """Return path, from_path and the index of `{any}` in the path from which a value is removed."""
    removes_item = effect.value is not None and ANY not in parameters
    names = parameters | {ANY} if removes_item else parameters
    path = parse_pointer(effect.path, names if effect.op is EffectOp.REMOVE else parameters)
    from_path = None if effect.from_path is None else parse_pointer(effect.from_path, names)
    source = from_path or path
    if not removes_item or f"{{{ANY}}}" not in (effect.from_path or effect.path):
        return path, from_path, None
    wildcards = [index for index, step in enumerate(source.steps) if step.parts == (Slot(ANY),)]
    if len(wildcards) != 1 or (effect.from_path or effect.path).count(f"{{{ANY}}}") > 1:
        raise RulebookError(f"{{{ANY}}} stands for one whole step of a path, once")
    return path, from_path, wildcards[0]


def _check_value(value: JsonValue) -> None:
    if depth(value) > MAX_VALUE_DEPTH:
        raise RulebookError(f"an effect's value is nested deeper than {MAX_VALUE_DEPTH}")
    encoded = json_bytes(value)
    if encoded is None or len(encoded) > MAX_VALUE_BYTES:
        raise RulebookError(f"an effect's value is no JSON, or larger than {MAX_VALUE_BYTES:,} bytes")


def _expression_in(value: JsonValue) -> str | None:
    """Return the expression of a calculated value, if it is one."""
    if isinstance(value, dict) and value.keys() == {CEL} and isinstance(cel := value[CEL], str):
        return cel
    return None


def value_expressions(value: JsonValue) -> Iterator[str]:
    """Yield all expressions in a value."""
    if (cel := _expression_in(value)) is not None:
        yield cel
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from value_expressions(item)


@dataclass
class _ValueCompiler:
    """Compiles a value and collects its templates and expressions."""

    parameters: AbstractSet[str]
    types: Types
    calculation: Callable[[str], Expression]
    """Compiler of one calculation."""
    templates: list[Template] = field(default_factory=list[Template])
    expressions: list[Expression] = field(default_factory=list[Expression])

    def compile_value(self, value: JsonValue) -> ValueFunction:
        if (cel := _expression_in(value)) is not None:
            expression = self.calculation(cel)
            self.expressions.append(expression)
            return lambda state, values: _calculate(expression, state, values)
        if isinstance(value, str):
            template = parse_template(value, self.parameters)
            self.templates.append(template)
            constant = template.constant
            (part, *further) = template.parts or ("",)
            if isinstance(part, Slot) and not further and (kind := self.types.get(part.name)):
                return lambda state, values: json_value(kind, str(part.read(state, values)), any_spelling=True)
            return template.value if constant is None else lambda _state, _values: constant
        if isinstance(value, list):
            items = [self.compile_value(item) for item in value]
            return lambda state, values: [item(state, values) for item in items]
        if isinstance(value, dict):
            entries = {key: self.compile_value(item) for key, item in value.items()}
            return lambda state, values: {key: item(state, values) for key, item in entries.items()}
        if isinstance(value, float) and not isfinite(value):
            raise RulebookError("an effect's value is not a finite number")
        return lambda _state, _values: value


def _calculate(expression: Expression, state: JsonValue, values: Values) -> JsonValue:
    try:
        result = expression.value(state, values)
    except NoAnswer as error:
        raise Inapplicable(f"{expression.cel!r} has no value: {error}") from None
    encoded = json_bytes(result)
    if encoded is None or len(encoded) > MAX_VALUE_BYTES:
        raise Inapplicable(f"{expression.cel!r} comes to more than {MAX_VALUE_BYTES:,} bytes")
    if not _in_bounds(result):
        raise Inapplicable(f"{expression.cel!r} holds something that is no number up to {MAX_NUMBER:,}")
    return result


def _in_bounds(value: JsonValue) -> bool:
    if isinstance(value, dict | list):
        return all(map(_in_bounds, value.values() if isinstance(value, dict) else value))
    return not _is_number(value) or -MAX_NUMBER <= cast("float", value) <= MAX_NUMBER


def _add(old: JsonValue, value: JsonValue, keys: tuple[str, ...]) -> JsonValue:
    if isinstance(old, list):
        return [*old, value]
    if isinstance(old, str) and isinstance(value, str):
        return old + value if value else old
    if _is_number(old) and _is_number(value):
        total = cast("float", old) + cast("float", value)
        if not -MAX_NUMBER <= total <= MAX_NUMBER:
            raise Inapplicable(f"the number at {pointer_text(keys)} would grow beyond {MAX_NUMBER:,}")
        return old if json_equal(old, total) else total
    raise Inapplicable(
        f"what is at {pointer_text(keys)} is no list, or no number or text of the same kind as what is added"
    )


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _append(state: JsonValue, keys: tuple[str, ...], value: JsonValue) -> JsonValue:
    """Return the state with `value` appended to the list at `keys`."""

    def append(old: JsonValue) -> JsonValue:
        if not isinstance(old, list):
            raise Inapplicable(f"{pointer_text(keys)} is no list to put something into")
        return [*old, value]

    return change(state, keys, append)


def _remove_from_all(state: JsonValue, paths: list[tuple[str, ...]], any_index: int, value: JsonValue) -> JsonValue:
    """Return the state without the first such item in each of several lists. Their keys are equal before step
    `any_index`; the value above that step, which can have thousands of keys, is copied once.
    """

    def remove(parent: JsonValue) -> JsonValue:
        copied: Any = {**parent} if isinstance(parent, dict) else [*cast("list[JsonValue]", parent)]
        for keys in paths:
            key = keys[any_index] if isinstance(parent, dict) else int(keys[any_index])
            copied[key] = _remove(copied[key], keys[any_index + 1 :], value)
        return copied

    return change(state, paths[0][:any_index], remove) if paths else state


def _remove(state: JsonValue, keys: tuple[str, ...], value: JsonValue) -> JsonValue:
    """Return the state without the first item equal to `value` in the list at `keys`."""

    def remove(old: JsonValue) -> JsonValue:
        if not isinstance(old, list):
            raise Inapplicable(f"{pointer_text(keys)} is no list to take something out of")
        for index, item in enumerate(old):
            if json_equal(item, value):
                return [*old[:index], *old[index + 1 :]]
        raise Inapplicable(f"the list at {pointer_text(keys)} does not hold what is to be taken out of it")

    return change(state, keys, remove)
