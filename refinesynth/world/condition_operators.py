"""Operators and functions of conditions, by the CEL specification.

Numbers have 64 bits, and whole numbers overflow with an error. There are no implicit conversions: `1 + 1.5` has no
answer, although `1 == 1.0` holds.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from math import copysign, inf, isfinite, isnan, nan
from typing import Any

from refinesynth.world.condition_syntax import MAX_INT

NOT_JSON = "the state is no JSON that a condition could read"
_NO_OVERLOAD = "No such overload: the operation is not defined for the given operand types"
_JSON_TYPES = frozenset({str, int, float, bool, type(None), list, dict})
_NUMBER_TYPES = frozenset({int, float})
_ORDERED_TYPES = frozenset({int, str, bool})
_MIN_INT = -MAX_INT - 1
_INT = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(?:inf|infinity|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)", re.IGNORECASE)

_Binary = Callable[[Any, Any], Any]
kind_of: Callable[[Any], type[Any]] = type


class NoAnswer(Exception):
    """An expression has no value in this state; the message states the reason."""


def as_bool(value: Any) -> bool:
    """Return a value that must be true or false."""
    if type(value) is not bool:
        raise no_overload(value)
    return value


def no_overload(*values: Any) -> NoAnswer:
    """Return the error for operands of unsupported types."""
    return NoAnswer(_NO_OVERLOAD if all(type(value) in _JSON_TYPES for value in values) else NOT_JSON)


def item_at(container: Any, key: Any) -> Any:
    """Return an item of an object or a list."""
    kind = kind_of(container)
    if kind is dict and type(key) in _ORDERED_TYPES:
        if type(key) is str and key in container:
            return container[key]
        raise NoAnswer(f"there is no key {key!r}")
    if kind is not list or type(key) is not int:
        raise no_overload(container, key)
    if not 0 <= key < len(container):
        raise NoAnswer(f"index out of bounds: {key}")
    return container[key]


def negate(value: Any) -> Any:
    """Return the negative of a number."""
    if type(value) not in _NUMBER_TYPES:
        raise no_overload(value)
    if value == _MIN_INT and type(value) is int:
        raise NoAnswer(f"-({value}) is beyond 64 bits")
    return -value


def _equal(left: Any, right: Any) -> bool:
    kind = kind_of(left)
    if kind is type(right):
        if kind is list:
            return len(left) == len(right) and _all_equal(left, right)
        if kind is dict:
            return left.keys() == right.keys() and _all_equal(left.values(), map(right.__getitem__, left))
        if kind in _JSON_TYPES:
            return left == right
    elif kind in _NUMBER_TYPES and type(right) in _NUMBER_TYPES:
        return float(left) == float(right)
    elif kind in _JSON_TYPES and type(right) in _JSON_TYPES:
        return False
    raise NoAnswer(NOT_JSON)


def _all_equal(left: Any, right: Any) -> bool:
    # A loop, because all() of an expression uses more stack per level of a value.
    for left_item, right_item in zip(left, right, strict=True):  # noqa: SIM110
        if not _equal(left_item, right_item):
            return False
    return True


def _is_in(left: Any, right: Any) -> bool:
    kind = kind_of(right)
    if kind is dict:
        if type(left) not in _ORDERED_TYPES:
            raise no_overload(left)
        return type(left) is str and left in right
    if kind is not list:
        raise no_overload(right)
    return left in right if type(left) is str else any(_equal(left, item) for item in right)


def _ordered(test: _Binary) -> _Binary:
    def ordered(left: Any, right: Any) -> bool:
        if type(left) is type(right) and type(left) in _ORDERED_TYPES:
            return test(left, right)
        if type(left) in _NUMBER_TYPES and type(right) in _NUMBER_TYPES:
            left, right = float(left), float(right)
            if not isnan(left) and not isnan(right):
                return test(left, right)
        raise no_overload(left, right)

    return ordered


def _calculation(sign: str, integral: _Binary, real: _Binary | None) -> _Binary:
    def calculate(left: Any, right: Any) -> Any:
        kind = kind_of(left) if type(left) is type(right) else None
        if kind is int:
            if max(left, right) > MAX_INT:
                raise NoAnswer(f"whole numbers beyond {MAX_INT} can be compared only")
            result = integral(left, right)
            if not _MIN_INT <= result <= MAX_INT or (sign == "%" and left == _MIN_INT and right == -1):
                raise NoAnswer(f"{left} {sign} {right} is beyond 64 bits")
            return result
        if kind is float and real is not None:
            return real(left, right)
        if sign == "+" and kind in {str, list}:
            return left + right
        raise no_overload(left, right)

    return calculate


def _quotient(left: int, right: int) -> int:
    if not right:
        raise NoAnswer("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _ratio(left: float, right: float) -> float:
    if right:
        return left / right
    return nan if not left or isnan(left) or isnan(right) else copysign(inf, left) * copysign(1, right)


OPERATORS: Mapping[type[ast.AST], _Binary] = {
    ast.Eq: _equal,
    ast.NotEq: lambda left, right: not _equal(left, right),
    ast.In: _is_in,
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.Add: _calculation("+", operator.add, operator.add),
    ast.Sub: _calculation("-", operator.sub, operator.sub),
    ast.Mult: _calculation("*", operator.mul, operator.mul),
    ast.Div: _calculation("/", _quotient, _ratio),
    ast.Mod: _calculation("%", lambda left, right: left - right * _quotient(left, right), None),
}


def total(numbers: Iterable[Any]) -> Any:
    """Return the sum of numbers of one kind; 0 for none."""
    add, result = OPERATORS[ast.Add], None
    for number in numbers:
        if type(number) not in _NUMBER_TYPES:
            raise no_overload(number)
        result = number if result is None else add(result, number)
    return 0 if result is None else result


def _size(value: Any) -> int:
    """Return the number of items of a list or object, or of characters of a text."""
    if type(value) not in {str, list, dict}:
        raise no_overload(value)
    return len(value)


def _int(value: Any) -> int:
    if type(value) is str and _INT.fullmatch(value):
        # Python refuses to parse numbers with thousands of digits; twenty digits exceed the range already.
        digits = value.lstrip("+-").lstrip("0")[:20] or "0"
        value = -int(digits) if value.startswith("-") else int(digits)
        if _MIN_INT <= value <= MAX_INT:
            return value
    elif type(value) is float and isfinite(value) and _MIN_INT < value < MAX_INT:
        return int(value)
    elif type(value) is int and value <= MAX_INT:
        return value
    raise NoAnswer("int() takes a number of 64 bits, or a text of one")


def _double(value: Any) -> float:
    if type(value) in _NUMBER_TYPES or (type(value) is str and _DOUBLE.fullmatch(value)):
        return float(value)
    raise NoAnswer("double() takes a number, or a text of one")


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    if type(value) is not float:
        raise no_overload(value)
    if not isfinite(value):
        return "NaN" if isnan(value) else str(value)
    digits = f"{Decimal(repr(value)):f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _text_test(test: _Binary) -> _Binary:
    def test_texts(argument: Any, target: Any) -> bool:
        if type(target) is not str or type(argument) is not str:
            raise no_overload(target, argument)
        return test(target, argument)

    return test_texts


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "size": _size,
    "int": _int,
    "double": _double,
    "string": _string,
    "contains": _text_test(str.__contains__),
    "startsWith": _text_test(str.startswith),
    "endsWith": _text_test(str.endswith),
}
