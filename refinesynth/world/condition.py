"""Compiler of conditions. One walk over the tree refuses unsupported syntax, collects reads and cost bounds, and builds
the evaluation function.

`&&` and `||` have an answer if one operand decides it, even if the other has none.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, cast

from pydantic import JsonValue

from refinesynth.errors import RulebookError
from refinesynth.trajectory.parameter import ParameterType, json_value
from refinesynth.world.condition_operators import (
    FUNCTIONS,
    OPERATORS,
    NoAnswer,
    as_bool,
    item_at,
    kind_of,
    negate,
    no_overload,
    total,
)
from refinesynth.world.condition_syntax import MAX_INT, name_of, parse, path_of
from refinesynth.world.text_template import MAX_CACHED, VISIBLE, Slot

MAX_MACROS = 3
"""Deepest nesting of `all`, `exists`, `exists_one`, `filter` and `sum`."""

_SORT_COST = 10
"""Cost of sorting a macro's range, in mentions of variables."""

Chain = tuple[str | Slot, ...]
"""Keys from the state to the value that an expression reads, as far as they are constant or parameters."""

Evaluate = Callable[[JsonValue, Mapping[str, Any]], Any]
"""Evaluation function of the state and variables by name: parameters, macro variables, `before`, and `visible`, a
function of the state. Raises `NoAnswer` if there is no value."""

_MACROS: Mapping[str, Callable[[Iterator[tuple[Any, Any]]], Any]] = {
    "all": lambda walk: all(as_bool(held) for _, held in walk),
    "exists": lambda walk: any(as_bool(held) for _, held in walk),
    "exists_one": lambda walk: sum(as_bool(held) for _, held in walk) == 1,
    "filter": lambda walk: [item for item, held in walk if as_bool(held)],
    "sum": lambda walk: total(number for _, number in walk),
}
"""Results of macros from pairs of an item and the value of the second argument for it. `sum` is an extension of CEL."""
_KEYWORDS = "as break const continue else false for function if import in let loop namespace null package return true var void while"
RESERVED = frozenset({"state", VISIBLE, "each", *_KEYWORDS.split()})
"""Names that no parameter may have: CEL's keywords, `state`, `visible`, and `each`."""

BEFORE = "before"
"""Variable for the state before the action in expressions of effects and observations, unless a parameter has this
name."""

_ADVICE = {
    "map": "write exists, all, filter or sum instead of map",
    "matches": "write ==, in, contains, startsWith or endsWith; the form of a parameter is checked by the action's own pattern",
    "size": "write size(x) or x.size()",
    "has": "write has(state.key)",
}


@dataclass(frozen=True, slots=True)
class Analysis:
    """Static facts about an expression.

    Example: `state.l.all(x, x in [1, 2] + state.m)` has the work (12, 3), growth 4 and maximum list length 4. With 5
    items in `l` and 30 bytes of state, the cost is 30 * 4 * (12 + 3 * 20) = 8,640.
    """

    reads: Mapping[Chain, AbstractSet[str | Slot | None]]
    """All reads of the state; an empty chain is the whole state. For a chain that occurs only as in `x in state.list`,
    the searched values, because the rest of the list or object does not affect the result; else None among them."""
    parameters: tuple[str, ...]
    """Parameters that the expression mentions."""
    work: tuple[int, ...]
    """Number of reads at macro depth 0, 1, ...: mentions of variables, and the ranges of macros, which cost more."""
    growth: int
    """Factor by which a value can exceed its inputs inside macros."""
    max_list_length: int
    """Bound of the length of a list that the expression builds, in items: the longest list literal, doubled for each `+`;
    0 without a list literal."""
    conjuncts: tuple[str, ...]
    """Expressions joined by `&&` at the top; the expression itself if there is only one."""
    reads_visible: bool
    """True if it mentions `visible`."""
    reads_before: bool
    """True if it mentions the state before the action."""
    visible_name: str | Slot | None
    """Name or parameter in `x in visible`, if the expression consists of nothing else."""

    def cost(self, size: int, length: int) -> int:
        """Return a bound of the cost of an evaluation that reads values of this size, in bytes, with lists and objects of
        at most this length.
        """
        rounds = max(length, 1) * self.max_list_length if self.max_list_length else length
        return size * self.growth * sum(mentions * rounds**depth for depth, mentions in enumerate(self.work))


@lru_cache(maxsize=MAX_CACHED)
def compile_tree(
    source: str, parameters: frozenset[str], types: tuple[tuple[str, ParameterType], ...], variables: frozenset[str]
) -> tuple[Analysis, Evaluate]:
    """Compile an expression over the parameters, some of them typed, and these of `state`, `visible` and `before`.

    Raises:
        RulebookError: It does not parse, uses an unknown variable or unsupported syntax, or is nested too deeply; the
            message suggests an alternative.
    """
    try:
        tree, conjuncts = parse(source)
        return _Compiler(source, parameters, dict(types), variables).analyze(tree, conjuncts)
    except RecursionError:
        raise RulebookError(f"{source[:80]!r} is nested too deep; split the condition") from None


class _Compiler:
    """Walks a tree in text order. The method for each node type returns its evaluation function."""

    def __init__(
        self, source: str, parameters: AbstractSet[str], types: Mapping[str, ParameterType], variables: AbstractSet[str]
    ) -> None:
        self._source, self._parameters, self._types = source, parameters, types
        self._known = parameters | variables
        self._mentioned, self._bound = set[str](), set[str]()
        """Names mentioned outside the macros that bind them, and those that macros bind."""
        self._scope: list[str] = []
        """Variables of the enclosing macros."""
        self._work, self._list_lengths, self._additions = [1], list[int](), 0
        self._reads: dict[Chain, set[str | Slot | None]] = {}

    def analyze(self, tree: ast.expr, conjuncts: tuple[str, ...]) -> tuple[Analysis, Evaluate]:
        evaluate = self._node(tree)
        for name in sorted(self._mentioned - self._known - self._bound):
            variables = ", ".join(sorted(self._known, key=lambda item: (item not in {"state", VISIBLE, BEFORE}, item)))
            raise RulebookError(f"{name!r} is not a variable here (there are: {variables}); a text needs quotes")
        visible_name = None
        if isinstance(tree, ast.Compare) and self._is_membership(tree) and name_of(tree.comparators[0]) == VISIBLE:
            visible_name = self._key(tree.left)
        return Analysis(
            reads=self._reads,
            parameters=tuple(sorted(self._mentioned & self._parameters)),
            work=tuple(self._work),
            growth=prod(self._list_lengths) * 2**self._additions if len(self._work) > 1 else 1,
            max_list_length=max(self._list_lengths, default=0) * 2**self._additions,
            conjuncts=conjuncts,
            reads_visible=VISIBLE in self._mentioned,
            reads_before=BEFORE in self._mentioned & self._known - self._parameters,
            visible_name=visible_name,
        ), evaluate

    def _node(self, node: ast.expr) -> Evaluate:  # noqa: C901, PLR0911 - a case for each kind of node
        match node:
            case ast.Constant():
                return self._constant(node.value)
            case ast.Name():
                return self._variable(node.id[1:])
            case ast.Attribute() | ast.Subscript():
                return self._path(node)
            case ast.List():
                self._list_lengths.append(max(len(node.elts), 1))
                items = [self._node(item) for item in node.elts]
                return lambda state, names: [item(state, names) for item in items]
            case ast.Call():
                return self._call(node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BoolOp():
                return _combine([self._node(value) for value in node.values], decisive=isinstance(node.op, ast.Or))
            case ast.IfExp():
                # `c ? a : b` was parsed as Python's `c if a else b`: `body` is CEL's condition, `test` its first value.
                condition, first, second = (self._node(part) for part in (node.body, node.test, node.orelse))
                return lambda state, names: (first if as_bool(condition(state, names)) else second)(state, names)
            case ast.Compare():
                return self._comparison(node)
            case ast.BinOp():
                return self._arithmetic(node)
            case _:
                raise self._unsupported()

    def _constant(self, value: Any) -> Evaluate:
        if type(value) is int and value > MAX_INT:
            raise self._unsupported()
        return lambda _state, _names: value

    def _variable(self, name: str, chain: Chain = (), member: str | Slot | None = None) -> Evaluate:
        """Compile a variable; record the chain of keys that is read from it, and the value searched there."""
        self._work[len(self._scope)] += 1
        if name not in self._scope:
            self._mentioned.add(name)
        # The state before the action is the state in which the action begins, so this is a read of the state too.
        if name == "state" or (name == BEFORE and name not in {*self._scope, *self._parameters}):
            self._reads.setdefault(chain, set()).add(member)
        if name == "state":
            return lambda state, _names: state
        if name == VISIBLE:
            return lambda state, names: list(names[VISIBLE](state).names)

        def look_up(_state: JsonValue, names: Mapping[str, Any]) -> Any:
            try:
                return names[name]
            except KeyError:
                raise NoAnswer(f"there is no value of {name!r}") from None

        if (kind := self._types.get(name)) is not None:
            return lambda state, names: json_value(kind, look_up(state, names), any_spelling=True)
        return look_up

    def _path(self, node: ast.expr, member: str | Slot | None = None, *, has: bool = False) -> Evaluate:
        """Compile a path in a variable; or with `has`, a test for its last key, which needs all keys before it."""
        base, parts = path_of(node)
        constants = [self._key(part) for part in parts]
        if None in constants:
            chain, member = constants[: constants.index(None)], None
        else:
            chain = constants
        name = name_of(base)
        evaluate_base = self._node(base) if name is None else self._variable(name, cast("Chain", tuple(chain)), member)
        keys = [key if isinstance(key, str) else self._node(part) for key, part in zip(constants, parts, strict=True)]
        last_key = keys.pop() if has else None

        def look_up(state: JsonValue, names: Mapping[str, Any]) -> Any:
            value = evaluate_base(state, names)
            for key in keys:
                kind = kind_of(value)
                if kind is dict and isinstance(key, str):
                    try:
                        value = value[key]
                    except KeyError:
                        raise NoAnswer(f"there is no key {key!r}") from None
                elif kind is dict or kind is list:
                    value = item_at(value, key if isinstance(key, str) else key(state, names))
                else:
                    raise no_overload(value)
            return value

        def has_key(state: JsonValue, names: Mapping[str, Any]) -> bool:
            value = look_up(state, names)
            kind = kind_of(value)
            return last_key in value if kind is dict else item_at(value, last_key)

        return look_up if last_key is None else has_key

    def _key(self, node: ast.expr) -> str | Slot | None:
        """Return the text or parameter of a node; None for anything else."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        name = name_of(node)
        return Slot(name) if name in self._parameters and name is not None else None

    def _call(self, node: ast.Call) -> Evaluate:
        match node:
            case ast.Call(ast.Attribute(target, name), arguments) if name[1:] in _MACROS:
                return self._macro(name[1:], target, arguments)
            case ast.Call(ast.Name("_has"), [ast.Attribute() as place]):
                return self._path(place, has=True)
            case ast.Call(ast.Name("_size" | "_int" | "_double" | "_string" as name), [value]):
                return self._conversion(FUNCTIONS[name[1:]], value)
            case ast.Call(ast.Attribute(target, "_size"), []):
                return self._conversion(FUNCTIONS["size"], target)
            case ast.Call(ast.Attribute(target, "_contains" | "_startsWith" | "_endsWith" as name), [value]):
                function, text, part = FUNCTIONS[name[1:]], self._node(target), self._node(value)
                # In the order of CEL's library: the searched value is evaluated first.
                return lambda state, names: function(part(state, names), text(state, names))
            case ast.Call(ast.Attribute(_, name) | ast.Name(name)):
                advice = _ADVICE.get(name[1:], f"available are: {', '.join(sorted({'has', *FUNCTIONS, *_MACROS}))}")
                raise RulebookError(f"the function {name[1:]!r} cannot be used like this; {advice}")
            case _:
                raise self._unsupported()

    def _conversion(self, function: Callable[[Any], Any], node: ast.expr) -> Evaluate:
        operand = self._node(node)
        return lambda state, names: function(operand(state, names))

    def _macro(self, name: str, target: ast.expr, arguments: list[ast.expr]) -> Evaluate:
        variable = name_of(arguments[0]) if len(arguments) == 2 else None  # noqa: PLR2004 - name and condition
        if variable is None:
            argument = "number" if name == "sum" else "condition"
            raise RulebookError(f"{name} is written x.{name}(name, {argument} with name)")
        if variable in self._parameters | (RESERVED - {"each"}):
            raise RulebookError(f"{variable!r} is a variable already; use another name inside {name}")
        self._bound.add(variable)
        evaluate_range = self._node(target)
        self._work[len(self._scope)] += _SORT_COST
        self._scope.append(variable)
        if len(self._scope) > MAX_MACROS:
            raise RulebookError(f"all, exists, filter and sum are nested deeper than {MAX_MACROS}; split the condition")
        if len(self._scope) == len(self._work):
            self._work.append(0)
        self._work[len(self._scope)] += 1
        body = self._node(arguments[1])
        self._scope.pop()

        def walk(state: JsonValue, names: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
            items = evaluate_range(state, names)
            kind = kind_of(items)
            if kind not in {list, dict}:
                raise no_overload(items)
            inner = dict(names)
            # Keys are sorted, so the first failing condition of a walk is deterministic.
            for item in sorted(items) if kind is dict else items:
                inner[variable] = item
                yield item, body(state, inner)

        collect = _MACROS[name]
        return lambda state, names: collect(walk(state, names))

    def _unary(self, node: ast.UnaryOp) -> Evaluate:
        number = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if isinstance(node.op, ast.USub) and type(number) is int:
            return self._constant(-number)
        if not isinstance(node.op, ast.Invert | ast.USub):
            raise self._unsupported()
        operand = self._node(node.operand)
        if isinstance(node.op, ast.USub):
            return lambda state, names: negate(operand(state, names))
        return lambda state, names: not as_bool(operand(state, names))

    def _comparison(self, node: ast.Compare) -> Evaluate:
        right = node.comparators[0]
        left = self._node(node.left)
        if not self._is_membership(node):
            return _chain(left, [(op, self._node(part)) for op, part in zip(node.ops, node.comparators, strict=True)])
        if name_of(right) == VISIBLE:
            self._variable(VISIBLE)

            def is_visible(state: JsonValue, names: Mapping[str, Any]) -> bool:
                name = left(state, names)
                return type(name) is str and name in names[VISIBLE](state).name_set

            return is_visible
        is_in = OPERATORS[ast.In]
        container = self._path(right, self._key(node.left))
        return lambda state, names: is_in(left(state, names), container(state, names))

    def _is_membership(self, node: ast.Compare) -> bool:
        """Return whether a node is `x in` a variable or a path in one."""
        return (
            len(node.ops) == 1
            and isinstance(node.ops[0], ast.In)
            and name_of(path_of(node.comparators[0])[0]) is not None
        )

    def _arithmetic(self, node: ast.BinOp) -> Evaluate:
        # A long left-associative sequence would nest functions too deeply.
        operations: list[tuple[ast.operator, ast.expr]] = []
        leftmost: ast.expr = node
        while isinstance(leftmost, ast.BinOp):
            self._additions += isinstance(leftmost.op, ast.Add)
            operations.append((leftmost.op, leftmost.right))
            leftmost = leftmost.left
        left = self._node(leftmost)
        return _chain(left, [(op, self._node(part)) for op, part in reversed(operations)])

    def _unsupported(self) -> RulebookError:
        return RulebookError(f"{self._source[:80]!r} does not parse: it is not made of what conditions can hold")


def _chain(first: Evaluate, operations: "list[tuple[ast.AST, Evaluate]]") -> Evaluate:
    """Return left-associative operators applied in sequence."""
    steps = [(OPERATORS[type(op)], operand) for op, operand in operations]
    if len(steps) == 1:
        operate, second = steps[0]
        return lambda state, names: operate(first(state, names), second(state, names))

    def chained(state: JsonValue, names: Mapping[str, Any]) -> Any:
        value = first(state, names)
        for operate, operand in steps:
            value = operate(value, operand(state, names))
        return value

    return chained


def _combine(parts: list[Evaluate], *, decisive: bool) -> Evaluate:
    """Return conditions joined by an operator whose answer is `decisive` if that of any part is."""
    default = not decisive

    def combined(state: JsonValue, names: Mapping[str, Any]) -> bool:
        # The words alone: a kept exception would refer to this frame, and the frame to the exception.
        problem = ""
        for part in parts:
            try:
                value = part(state, names)
            except NoAnswer as error:
                problem = problem or str(error)
                continue
            if value is decisive:
                return decisive
            if value is not default:
                problem = problem or str(no_overload(value))
        if problem:
            raise NoAnswer(problem)
        return default

    return combined
