"""Visibility (partial observability): the names that the player can perceive in a state, from the rulebook's sights."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf

from pydantic import JsonValue

from refinesynth.trajectory import Sight
from refinesynth.world.effects import EACH
from refinesynth.world.expression import MAX_COST, MAX_STATE_BYTES, Expression, compile_expression, json_bytes
from refinesynth.world.rulebook_errors import Inapplicable, RulebookError
from refinesynth.world.text_template import Pointer, VisibleNames, parse_pointer
from refinesynth.world.work_limit import WorkLimit, current_limit

_EACH = f"{{{EACH}}}"

MAX_READINGS = 512
"""Maximum number of evaluations of all sights in one state: one per sight, or one per text of `each`."""

MAX_SEEN = 1_000
"""Maximum number of visible names in a state, with sights."""

_REMEMBERED = 256
"""Maximum number of states with cached visible names."""

_BLIND = VisibleNames(())


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

    def readings(self, state: JsonValue) -> tuple[dict[str, str], ...]:
        """Return the variables of each evaluation in this state."""
        if self.each is None:
            return ({},)
        return tuple({EACH: name} for name in names_at(_found(self.each, state, {}), alone=False))

    def asks(self) -> tuple[Expression, ...]:
        """Return the conditions of `when`, split at `&&`."""
        return () if self.when is None else self.when.conjuncts

    def at(self, state: JsonValue, values: dict[str, str]) -> tuple[str, ...] | None:
        """Return the current keys of `path`; None without a path, or if a lookup in it fails."""
        if self.path is None:
            return None
        try:
            return self.path.keys(state, values)
        except Inapplicable:
            return None

    def holds(self, state: JsonValue, values: dict[str, str], name: str) -> bool:
        """Return whether an evaluation yields this name, regardless of `when`."""
        limit = current_limit()
        limit.charge(limit.size)
        if self.named_by_each:
            return {EACH: name} in self.readings(state)
        return name in self._names(state, values)

    def shows(self, state: JsonValue, values: dict[str, str]) -> tuple[str, ...] | str:
        """Return the names of one evaluation, none if `when` is false, or the reason why `when` has no answer."""
        if self.when is not None:
            answer = self.when.answer(state, values)
            if answer is not True:
                return answer or ()
        return self._names(state, values)

    def _names(self, state: JsonValue, values: dict[str, str]) -> tuple[str, ...]:
        if self.path is None:
            return (values[EACH] if self.name == _EACH else self.name,)
        return names_at(_found(self.path, state, values))


@dataclass(frozen=True, eq=False)
class Visibility:
    """All sights of a rulebook. Visible names depend on the state's content only and are cached by it."""

    sights: tuple[CompiledSight, ...]
    everything: VisibleNames
    """Names that are always visible if there are no sights."""
    _known: dict[bytes, VisibleNames] = field(default_factory=dict[bytes, VisibleNames], repr=False)

    def names_in(self, state: JsonValue) -> VisibleNames:
        """Return the visible names; with sights, none in an invalid state. Never raises."""
        if not self.sights:
            return self.everything
        encoded = json_bytes(state)
        if encoded is None or len(encoded) > MAX_STATE_BYTES:
            return _BLIND
        current_limit().charge(len(encoded))
        # By content: a caller may modify a state in place between two calls.
        key = blake2b(encoded, digest_size=16).digest()
        seen = self._known.get(key)
        if seen is None:
            # The result is cached for all searches, so none of them pays for it.
            with WorkLimit(inf).applied():
                seen = self._names_in(state)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = seen
        return seen

    def _names_in(self, state: JsonValue) -> VisibleNames:
        names: dict[str, None] = {}
        problem: str | None = None
        left = MAX_READINGS
        for number, sight in enumerate(self.sights, 1):
            readings = sight.readings(state)
            if len(readings) > left:
                problem = problem or f"sight {number}: the sights are read more than {MAX_READINGS} times in one state"
            for values in readings[:left]:
                shown = sight.shows(state, values)
                if isinstance(shown, str):
                    of = f" for {EACH} = {values[EACH]!r}" if values else ""
                    problem = problem or f"the condition of sight {number} has no answer{of}: {shown}"
                else:
                    names.update(dict.fromkeys(shown))
            left = max(left - len(readings), 0)
        if len(names) > MAX_SEEN:
            problem = problem or f"the sights show {len(names)} names at once; only the first {MAX_SEEN} are seen"
        return VisibleNames(tuple(names)[:MAX_SEEN], problem)


def compile_visibility(sights: Iterable[Sight], everything: Iterable[str]) -> Visibility:
    """Compile a rulebook's sights; `everything` is visible if there are none.

    Raises:
        RulebookError: A bad path or condition; the message names the sight.
    """
    names = tuple(dict.fromkeys(everything))
    return Visibility(tuple(_compiled(sights, frozenset(names))), VisibleNames(names))


def _compiled(sights: Iterable[Sight], known: frozenset[str]) -> Iterator[CompiledSight]:
    for number, sight in enumerate(sights, 1):
        try:
            yield _compile(sight, known)
        except RulebookError as error:
            raise RulebookError(f"sight {number}: {error}") from None


def _compile(sight: Sight, known: frozenset[str]) -> CompiledSight:
    if sight.each is None and f"{{{EACH}}}" in sight.path:
        raise RulebookError(f"{sight.path[:80]!r} uses {{each}}; say in `each` where the texts or keys stand")
    names = frozenset(() if sight.each is None else (EACH,))
    named = not sight.path.startswith("/")
    if named and sight.path not in known and sight.path != _EACH:
        raise RulebookError(
            f"{sight.path[:80]!r} is no path, which begins with a slash, and no name that an action can be given"
        )
    # A condition for each of many items has a lower cost limit.
    most = MAX_COST if sight.each is None else MAX_COST // 16
    return CompiledSight(
        path=None if named else parse_pointer(sight.path, names),
        name=sight.path,
        each=None if sight.each is None else parse_pointer(sight.each, frozenset()),
        when=None if sight.when is None else compile_expression(sight.when, names, most=most),
    )


def _found(pointer: Pointer, state: JsonValue, values: dict[str, str]) -> JsonValue:
    try:
        return pointer.read(state, values)
    except Inapplicable:
        return None


def names_at(value: JsonValue, *, alone: bool = True) -> tuple[str, ...]:
    """Return the texts of a list, the sorted keys of an object, or with `alone` a single text; without blank ones."""
    if isinstance(value, dict):
        return tuple(sorted(filter(str.strip, value)))
    if isinstance(value, list):
        return tuple(dict.fromkeys(item for item in value if isinstance(item, str) and item.strip()))
    return (value,) if alone and isinstance(value, str) and value.strip() else ()
