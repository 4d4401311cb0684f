"""Visibility (partial observability): the names that the player can perceive in a state, from the rulebook's sights."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b

from pydantic import JsonValue

from refinesynth.errors import Inapplicable, RulebookError, error_prefix
from refinesynth.trajectory import Sight
from refinesynth.world.effects import EACH
from refinesynth.world.expression import (
    MAX_COST,
    MAX_STATE_BYTES,
    MAX_WORK,
    Expression,
    WorkLimit,
    compile_expression,
    current_limit,
    json_bytes,
)
from refinesynth.world.text_template import Pointer, VisibleNames, parse_pointer

_EACH = f"{{{EACH}}}"

MAX_BINDINGS = 512
"""Maximum number of evaluations of all sights in one state: one per sight, or one per text of `each`."""

MAX_VISIBLE = 1_000
"""Maximum number of visible names in a state, with sights."""

_MAX_CACHED = 256
"""Maximum number of states with cached visible names."""

_FREE_WORK = 10_000_000
"""Work of all sights in one state, about 10 ms, up to which no search pays for them."""

_NOTHING_VISIBLE = VisibleNames(())


@dataclass(frozen=True, slots=True)
class CompiledSight:
    """A compiled sight."""

    path: Pointer | None
    """Path to the names; None if the sight shows `name` itself."""
    name: str
    """The name or `{each}`; used only if there is no path."""
    each: Pointer | None
    when: Expression | None

    @property
    def named_by_each(self) -> bool:
        """True if it shows the texts of its own `each`."""
        return self.path is None and self.name == _EACH

    def bindings(self, state: JsonValue) -> tuple[dict[str, str], ...]:
        """Return the variables of each evaluation in this state."""
        if self.each is None:
            return ({},)
        return tuple({EACH: name} for name in names_at(_value_at(self.each, state, {}), allow_text=False))

    def keys(self, state: JsonValue, values: dict[str, str]) -> tuple[str, ...] | None:
        """Return the current keys of `path`; None without a path, or if a lookup in it fails."""
        with suppress(Inapplicable):
            return None if self.path is None else self.path.keys(state, values)
        return None

    def holds(self, state: JsonValue, values: dict[str, str], name: str) -> bool:
        """Return whether an evaluation yields this name, regardless of `when`."""
        limit = current_limit()
        limit.charge(limit.state_bytes)
        if self.named_by_each:
            return {EACH: name} in self.bindings(state)
        return name in self.names(state, values)

    def names(self, state: JsonValue, values: dict[str, str]) -> tuple[str, ...]:
        """Return the names of one evaluation, regardless of `when`."""
        if self.path is None:
            return (values[EACH] if self.name == _EACH else self.name,)
        return names_at(_value_at(self.path, state, values))


@dataclass(frozen=True, eq=False)
class Visibility:
    """All sights of a rulebook. Visible names depend on the state's content only and are cached by it."""

    sights: tuple[CompiledSight, ...]
    default_names: VisibleNames
    """Names that are always visible if there are no sights."""
    _cache: dict[bytes, tuple[VisibleNames, int]] = field(
        default_factory=dict[bytes, tuple[VisibleNames, int]], repr=False
    )
    """Digest of a state to its visible names and the work of their computation."""

    def names_in(self, state: JsonValue) -> VisibleNames:
        """Return the visible names; with sights, none in an invalid state. Never raises."""
        if not self.sights:
            return self.default_names
        encoded = json_bytes(state)
        if encoded is None or len(encoded) > MAX_STATE_BYTES:
            return _NOTHING_VISIBLE
        limit = current_limit()
        limit.charge(len(encoded))
        # By content: a caller may modify a state in place between two calls.
        key = blake2b(encoded, digest_size=16).digest()
        if key not in self._cache:
            own_limit = WorkLimit()
            own_limit.state_bytes = len(encoded)
            with own_limit.applied():
                visible = self._names_in(state)
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[key] = visible, int(MAX_WORK - own_limit.remaining)
        visible, work = self._cache[key]
        if work > _FREE_WORK:
            limit.charge_once(key, work)
        return visible

    def _names_in(self, state: JsonValue) -> VisibleNames:
        names: dict[str, None] = {}
        problem: str | None = None
        remaining = MAX_BINDINGS
        for number, sight in enumerate(self.sights, 1):
            readings = sight.bindings(state)
            if len(readings) > remaining:
                problem = problem or f"sight {number}: the sights are read more than {MAX_BINDINGS} times in one state"
            for values in readings[:remaining]:
                answer = True if sight.when is None else sight.when.answer(state, values)
                if isinstance(answer, str):
                    suffix = f" for {EACH} = {values[EACH]!r}" if values else ""
                    problem = problem or f"the condition of sight {number} has no answer{suffix}: {answer}"
                elif answer:
                    names.update(dict.fromkeys(sight.names(state, values)))
            remaining = max(remaining - len(readings), 0)
        if len(names) > MAX_VISIBLE:
            problem = problem or f"the sights show {len(names)} names at once; only the first {MAX_VISIBLE} are seen"
        return VisibleNames(tuple(names)[:MAX_VISIBLE], problem)


def compile_visibility(sights: Iterable[Sight], default_names: Iterable[str]) -> Visibility:
    """Compile a rulebook's sights; `default_names` are visible if there are none.

    Raises:
        RulebookError: A bad path or condition; the message names the sight.
    """
    names = tuple(dict.fromkeys(default_names))
    compiled: list[CompiledSight] = []
    for number, sight in enumerate(sights, 1):
        with error_prefix(f"sight {number}"):
            compiled.append(_compile(sight, frozenset(names)))
    return Visibility(tuple(compiled), VisibleNames(names))


def _compile(sight: Sight, known_names: frozenset[str]) -> CompiledSight:
    if sight.each is None and _EACH in sight.path:
        raise RulebookError(f"{sight.path[:80]!r} uses {{each}}; say in `each` where the texts or keys stand")
    names = frozenset(() if sight.each is None else (EACH,))
    is_name = not sight.path.startswith("/")
    if is_name and sight.path not in known_names and sight.path != _EACH:
        raise RulebookError(
            f"{sight.path[:80]!r} is no path, which begins with a slash, and no name that an action can be given"
        )
    # A condition for each of many items has a lower cost limit.
    max_cost = MAX_COST if sight.each is None else MAX_COST // 16
    return CompiledSight(
        path=None if is_name else parse_pointer(sight.path, names),
        name=sight.path,
        each=None if sight.each is None else parse_pointer(sight.each, frozenset()),
        when=None if sight.when is None else compile_expression(sight.when, names, max_cost=max_cost),
    )


def _value_at(pointer: Pointer, state: JsonValue, values: dict[str, str]) -> JsonValue:
    with suppress(Inapplicable):
        return pointer.read(state, values)
    return None


def names_at(value: JsonValue, *, allow_text: bool = True) -> tuple[str, ...]:
    """Return the texts of a list, the sorted keys of an object, or with `allow_text` one text; without blank ones."""
    if isinstance(value, dict):
        return tuple(sorted(filter(str.strip, value)))
    if isinstance(value, list):
        return tuple(dict.fromkeys(item for item in value if isinstance(item, str) and item.strip()))
    return (value,) if allow_text and isinstance(value, str) and value.strip() else ()
