"""Conditions: a subset of CEL that is safe for untrusted input and fast on large states; work limits of searches.

Supported are comparisons, `in`, `&&`, `||`, `!`, `?:`, arithmetic, lists, field and index access, `has`, `size`, `int`,
`double`, `string`, `contains`, `startsWith`, `endsWith`, and on lists and objects `all`, `exists`, `exists_one`,
`filter` and, as an extension, `sum`. Other syntax is refused with an alternative, because it could build huge values or
is no JSON.

A work limit is a deterministic count of the evaluations and changes that a block of code performs. Work is counted
where it is done, before it is done: by expressions, effects, sights and digests of states.
"""

from collections.abc import Generator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from types import MappingProxyType
from typing import Any, cast

import orjson
from pydantic import JsonValue

from refinesynth.trajectory.parameter import ParameterType
from refinesynth.world.condition import BEFORE, Analysis, Evaluate, compile_tree
from refinesynth.world.condition_operators import NOT_JSON, NoAnswer
from refinesynth.world.text_template import VISIBLE, Slot, Values, Visible

MAX_WORK = 20_000_000_000
"""Default work limit of a search: some tens of seconds, reached only by rulebooks that are slow on purpose."""

_BASE_COST = 1_000
"""Base cost of an evaluation or a change, in the unit of a condition's cost: bytes of touched state."""


class WorkLimitExceeded(Exception):
    """The work limit is reached. Caught where the limit was created."""


class WorkLimit:
    """Work that is left, and the size of the largest state so far in bytes of JSON."""

    def __init__(self, remaining: float = MAX_WORK) -> None:
        self.remaining = remaining
        self.state_bytes = 0
        self._charged = set[bytes]()

    def charge(self, work: int) -> None:
        """Count work, in bytes of touched state.

        Raises:
            WorkLimitExceeded: The limit is reached.
        """
        self.remaining -= work + _BASE_COST
        if self.remaining < 0:
            raise WorkLimitExceeded

    def charge_once(self, key: bytes, work: int) -> None:
        """Charge the work of a result in a cache, once for each key, so the count does not depend on the cache."""
        if self.remaining < inf and key not in self._charged:
            self._charged.add(key)
            self.charge(work)

    @contextmanager
    def applied(self) -> "Generator[WorkLimit]":
        """Count the work of a block of code, in which functions that never raise otherwise raise `WorkLimitExceeded` at the
        limit. Threads and tasks that run meanwhile are not counted; a block in it counts alone.
        """
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)


_UNLIMITED = WorkLimit(inf)
_current: ContextVar[WorkLimit] = ContextVar("work limit")


def current_limit() -> WorkLimit:
    """Return the limit of the running block; outside of one, work is unlimited."""
    return _current.get(_UNLIMITED)


MAX_STATE_BYTES = 262_144
"""Largest state, in bytes of JSON."""

MAX_COST = 50_000_000
"""Maximum cost of an evaluation: an upper bound of the touched state in bytes; some tenths of a second."""

Types = Mapping[str, ParameterType]
"""Types of parameters by name."""

NO_TYPES: Types = MappingProxyType({})
"""Types if all parameters are texts."""

_PASSTHROUGH = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


def json_bytes(value: object, *, sort: bool = False) -> bytes | None:
    """Return a JSON value as bytes; None if it is no JSON value or nested too deeply."""
    try:
        return orjson.dumps(value, option=_PASSTHROUGH | (orjson.OPT_SORT_KEYS if sort else 0))
    except (TypeError, ValueError, RecursionError):
        return None


def is_valid_state(state: JsonValue, *, finite: bool = False) -> bool:
    """Return whether a state is JSON and small enough to be played.

    Not examined for NaN and infinity if it is known to be `finite`, as is all that effects make of a state that fits.
    """
    encoded = json_bytes(state)
    if encoded is None or len(encoded) > MAX_STATE_BYTES:
        return False
    limit = current_limit()
    limit.state_bytes = max(limit.state_bytes, len(encoded))
    # NaN and infinity are encoded as null.
    return finite or b"null" not in encoded or orjson.loads(encoded) == state


def state_digest(state: JsonValue) -> bytes | None:
    """Return a key of the state's content, independent of the order of keys in objects; None if it is no JSON."""
    encoded = json_bytes(state, sort=True)
    if encoded is None:
        return None
    limit = current_limit()
    limit.state_bytes = max(limit.state_bytes, len(encoded))
    limit.charge(len(encoded))
    return blake2b(encoded, digest_size=16).digest()


@dataclass(frozen=True)
class Expression:
    """A compiled condition. Its answer depends on the state and the parameters only.

    Visible names are computed from the state on demand.
    """

    cel: str
    """Source text."""
    analysis: Analysis
    evaluate: Evaluate = field(compare=False, repr=False)
    visible: Visible | None = field(default=None, compare=False, repr=False)
    """Function for the visible names in a state; None if they are not available or not used."""
    max_cost: int = MAX_COST
    """Maximum cost of an evaluation."""
    parts: "tuple[Expression, ...]" = field(default=(), compare=False, repr=False)
    """Conditions that `&&` joins; none without it."""

    def answer(self, state: JsonValue, values: Values) -> bool | str:
        """Return true, false, or the reason why there is no answer. Never raises."""
        try:
            result = self.value(state, values)
        except NoAnswer as error:
            return str(error)
        return result if type(result) is bool else "this is neither true nor false"

    def value(self, state: JsonValue, values: Values) -> JsonValue:
        """Evaluate the expression to a JSON value.

        Raises:
            NoAnswer: It has no value; the message states the reason.
        """
        analysis, limit = self.analysis, current_limit()
        # Only macros, or a low limit, need a check of the cost; other expressions cost about one read of the state.
        if len(analysis.work) == 1 and self.max_cost == MAX_COST:
            limit.charge(analysis.work[0] * limit.state_bytes)
        else:
            read = self._values_read(state, values)
            encoded = json_bytes(read)
            if encoded is None:
                raise NoAnswer(NOT_JSON)
            cost = analysis.cost(len(encoded), max(map(_max_length, read)))
            if cost > self.max_cost:
                raise NoAnswer("this takes too long on a state of this size")
            limit.charge(cost)
        names: Mapping[str, Any] = values if self.visible is None else {**values, VISIBLE: self.visible}
        try:
            return self.evaluate(state, names)
        except (OverflowError, RecursionError, ValueError):  # the last: a number of thousands of digits as text
            raise NoAnswer(NOT_JSON) from None

    def inputs(self, state: JsonValue, values: Values) -> bytes | None:
        """Return all values that the answer depends on; None if the state is no JSON."""
        return json_bytes(self._values_read(state, values))

    @property
    def conjuncts(self) -> "tuple[Expression, ...]":
        """Conditions that `&&` joins in this one, which holds if all of them hold; without `&&`, this one itself."""
        return self.parts or (self,)

    def _values_read(self, state: JsonValue, values: Values) -> list[JsonValue]:
        """Return all values that the answer depends on: the part of the state that is read, and those of variables."""
        read = [self._read_state(state, values)]
        read += (values.get(name) for name in self.analysis.parameters)
        if self.visible is not None:
            read.append(list(self.visible(state).names))
        if self.analysis.reads_before and BEFORE in values:
            read.append(self._read_state(values[BEFORE], values))
        return read

    def _read_state(self, state: JsonValue, values: Values) -> JsonValue:
        """Return the part of the state that the expression reads, in the state's structure; missing values stay
        missing.
        """
        if type(state) is not dict or () in self.analysis.reads:
            return state
        part: dict[str, JsonValue] = {}
        for chain in self.analysis.reads:
            source, target = state, part
            last_index = len(chain) - 1
            for index, step in enumerate(chain):
                key = cast("str", values.get(step.name, "") if type(step) is Slot else step)
                if key not in source:
                    break
                child = source[key]
                if index == last_index or type(child) is not dict:
                    target[key] = child
                    break
                existing = target.get(key)
                if existing is child:
                    break
                if existing is None:
                    existing = target[key] = {}
                source, target = child, cast("dict[str, JsonValue]", existing)
        return part


def compile_expression(
    source: str,
    parameters: AbstractSet[str],
    *,
    visible: Visible | None = None,
    before: bool = False,
    max_cost: int = MAX_COST,
    types: Types = NO_TYPES,
) -> Expression:
    """Compile a condition over `state`, these parameters, the visible names if `visible` is given, and with
    `before` the state before the action. In it, values of parameters with a type in `types` are JSON.

    Raises:
        RulebookError: It does not parse, uses an unknown variable or unsupported syntax.
    """
    names = frozenset(parameters)
    parameter_types = tuple(item for item in types.items() if item[0] in names)
    variables = frozenset(("state", *([VISIBLE] if visible else ()), *([BEFORE] if before else ())))
    analysis, evaluate = compile_tree(source, names, parameter_types, variables)
    parts = tuple(
        compile_expression(part, names, visible=visible, before=before, max_cost=max_cost, types=types)
        for part in (analysis.conjuncts if len(analysis.conjuncts) > 1 else ())
    )
    return Expression(source, analysis, evaluate, visible if analysis.reads_visible else None, max_cost, parts)


def _max_length(value: JsonValue) -> int:
    """Return the size of the largest object or list in a value, in items."""
    max_length, pending = 0, [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            item = list(item.values())
        if isinstance(item, list):
            max_length = max(max_length, len(item))
            pending.extend(item)
    return max_length
