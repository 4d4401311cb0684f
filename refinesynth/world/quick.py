"""Plain conditions answered without the CEL library, where the answer is beyond doubt.

Most conditions compare a field with a parameter, or ask whether something is in a list. These are answered here in a
fraction of the time. All that is not plain, or would have no answer, is left to the library, so that both always say
the same.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial

from pydantic import JsonValue

from refinesynth.world.syntax import Token, match_brackets, tokenize
from refinesynth.world.template import VISIBLE
from refinesynth.world.visible_names import Visible

Quick = Callable[[JsonValue, Mapping[str, str]], bool | None]
"""An answer, given a state and the parameters; None if the library is to be asked."""


class _Unsure(Enum):
    """In place of a value that is not there or not plain."""

    UNSURE = 0


_UNSURE = _Unsure.UNSURE
_Value = JsonValue | frozenset[str] | _Unsure
_Operand = Callable[[JsonValue, Mapping[str, str]], _Value]
_Test = Callable[[_Value, _Value], bool | None]

_MOST_DIGITS = 15


def quick(conjuncts: Sequence[str], visible: Visible | None) -> Quick | None:
    """A way to answer the condition whose parts, joined by `&&`, these are; None if none of them is plain."""
    parts = [_read(source, visible) for source in conjuncts]
    if not any(parts):
        return None
    return parts[0] if len(parts) == 1 else partial(_all, [part or _unsure for part in parts])


def _read(source: str, visible: Visible | None) -> Quick | None:
    tokens = tokenize(source)
    reader = _Reader(tokens, match_brackets(tokens), visible)
    try:
        found = reader.any_of()
    except _NotPlain:
        return None
    return found if reader.at == len(tokens) else None


def _unsure(_state: JsonValue, _values: Mapping[str, str]) -> bool | None:
    return None


def _all(parts: Sequence[Quick], state: JsonValue, values: Mapping[str, str]) -> bool | None:
    for part in parts:
        answer = part(state, values)
        if answer is not True:
            return answer
    return True


def _any(parts: Sequence[Quick], state: JsonValue, values: Mapping[str, str]) -> bool | None:
    for part in parts:
        answer = part(state, values)
        if answer is not False:
            return answer
    return False


def _not(part: Quick, state: JsonValue, values: Mapping[str, str]) -> bool | None:
    answer = part(state, values)
    return None if answer is None else not answer


def _is_true(operand: _Operand, state: JsonValue, values: Mapping[str, str]) -> bool | None:
    value = operand(state, values)
    return value if type(value) is bool else None


def _compared(test: _Test, left: _Operand, right: _Operand, state: JsonValue, values: Mapping[str, str]) -> bool | None:
    return test(left(state, values), right(state, values))


def _equal(left: _Value, right: _Value) -> bool | None:
    if type(left) is str or type(left) is bool or left is None or type(left) is int:
        if type(right) is type(left):
            return left == right
        if type(right) is str or type(right) is bool or right is None or type(right) is int:
            return False
    return None


def _differs(left: _Value, right: _Value) -> bool | None:
    answer = _equal(left, right)
    return None if answer is None else not answer


def _within(left: _Value, right: _Value) -> bool | None:
    if type(left) is not str:
        return None
    if type(right) is dict or type(right) is frozenset:
        return left in right
    if type(right) is list and all(type(item) is str for item in right):
        return left in right
    return None


def _less(left: _Value, right: _Value) -> bool | None:
    return left < right if type(left) is int and type(right) is int else None


def _at_most(left: _Value, right: _Value) -> bool | None:
    return left <= right if type(left) is int and type(right) is int else None


def _more(left: _Value, right: _Value) -> bool | None:
    return _less(right, left)


def _at_least(left: _Value, right: _Value) -> bool | None:
    return _at_most(right, left)


_TESTS: Mapping[str, _Test] = {
    "==": _equal, "!=": _differs, "in": _within, "<": _less, "<=": _at_most, ">": _more, ">=": _at_least,
}  # fmt: skip


def _constant(value: _Value, _state: JsonValue, _values: Mapping[str, str]) -> _Value:
    return value


def _parameter(name: str, _state: JsonValue, values: Mapping[str, str]) -> _Value:
    return values.get(name, _UNSURE)


def _sighted(visible: Visible, state: JsonValue, _values: Mapping[str, str]) -> _Value:
    return visible(state).known


def _field(keys: Sequence[str | _Operand], state: JsonValue, values: Mapping[str, str]) -> _Value:
    here: JsonValue = state
    for each in keys:
        key = each if isinstance(each, str) else each(state, values)
        if not isinstance(key, str) or type(here) is not dict or key not in here:
            return _UNSURE
        here = here[key]
    return here


def _has(parent: _Operand, key: str, state: JsonValue, values: Mapping[str, str]) -> bool | None:
    here = parent(state, values)
    return key in here if type(here) is dict else None


def _size(operand: _Operand, state: JsonValue, values: Mapping[str, str]) -> _Value:
    value = operand(state, values)
    return len(value) if type(value) is list or type(value) is dict else _UNSURE


class _NotPlain(Exception):
    """Something that is left to the library."""


class _Reader:
    """Reads an expression's tokens from left to right; every method raises `_NotPlain` where the library is needed."""

    def __init__(self, tokens: Sequence[Token], partner: Mapping[int, int], visible: Visible | None) -> None:
        self.at = 0
        self._tokens = tokens
        self._partner = partner
        self._visible = visible

    def any_of(self) -> Quick:
        """Conditions joined by `||`."""
        parts = [self._all_of()]
        while self._next("||"):
            parts.append(self._all_of())
        return parts[0] if len(parts) == 1 else partial(_any, parts)

    def _all_of(self) -> Quick:
        parts = [self._one()]
        while self._next("&&"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else partial(_all, parts)

    def _one(self) -> Quick:
        """A comparison, or something that is true or false by itself."""
        found = self._alone()
        if found is None:
            left = self._operand()
            test = _TESTS.get(self._sign())
            if test is None:
                found = partial(_is_true, left)
            else:
                self.at += 1
                found = partial(_compared, test, left, self._operand())
        if self.at < len(self._tokens) and self._sign() not in {"&&", "||", ")"}:
            raise _NotPlain
        return found

    def _alone(self) -> Quick | None:
        """Return what is negated or stands in brackets, or asks whether there is a field."""
        if self._next("!"):
            negated = self._alone()
            return partial(_not, partial(_is_true, self._operand()) if negated is None else negated)
        if self._sign() == "(":
            self.at += 1
            found = self.any_of()
            self._expect(")")
            return found
        if self._sign() == "has" and self._sign(1) == "(":
            self.at += 2
            keys = self._keys()
            self._expect(")")
            last = keys[-1] if keys else None
            if not isinstance(last, str) or self._tokens[self.at - 2].kind != "name":
                raise _NotPlain
            return partial(_has, partial(_field, keys[:-1]), last)
        return None

    def _operand(self) -> _Operand:
        if self._sign() == "size" and self._sign(1) == "(":
            self.at += 2
            found = partial(_size, partial(_field, self._keys()))
            self._expect(")")
            return found
        if self._sign() == "state":
            found = partial(_field, self._keys())
            if self._sign() == "." and self._sign(1) == "size":
                self.at += 2
                self._expect("(")
                self._expect(")")
                return partial(_size, found)
            return found
        if self._sign() == "[":
            return self._list()
        return self._plain()

    def _plain(self) -> _Operand:
        if self.at >= len(self._tokens):
            raise _NotPlain
        token = self._tokens[self.at]
        self.at += 1
        if token.kind == "text":
            return partial(_constant, _literal(token))
        if token.kind == "number" and token.text.isdigit() and len(token.text) <= _MOST_DIGITS:
            return partial(_constant, int(token.text))
        if token.kind != "name" or self._sign() in {".", "[", "("}:
            raise _NotPlain
        if token.text in {"true", "false", "null"}:
            return partial(_constant, {"true": True, "false": False, "null": None}[token.text])
        if token.text == VISIBLE and self._visible is not None:
            return partial(_sighted, self._visible)
        return partial(_parameter, token.text)

    def _list(self) -> _Operand:
        end = self._partner[self.at]
        items: list[JsonValue] = []
        while self.at < end:
            self.at += 1
            token = self._tokens[self.at]
            if token.kind != "text" or self._sign(1) not in {",", "]"}:
                raise _NotPlain
            items.append(_literal(token))
            self.at += 1
        self.at = end + 1
        return partial(_constant, items)

    def _keys(self) -> list[str | _Operand]:
        self._expect("state")
        keys: list[str | _Operand] = []
        while True:
            if self._sign() == "." and self._tokens[self.at + 1].kind == "name" and self._sign(2) != "(":
                keys.append(self._tokens[self.at + 1].text)
                self.at += 2
            elif self._sign() == "[":
                self.at += 1
                keys.append(self._key())
                self._expect("]")
            else:
                return keys

    def _key(self) -> str | _Operand:
        """A key in brackets: a literal, a parameter or a field that holds it."""
        token = self._tokens[self.at]
        if token.kind == "text":
            self.at += 1
            return _literal(token)
        if self._sign() == "state":
            return partial(_field, self._keys())
        if token.kind != "name" or token.text in {"true", "false", "null", VISIBLE} or self._sign(1) != "]":
            raise _NotPlain
        self.at += 1
        return partial(_parameter, token.text)

    def _sign(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self._tokens[at].text if at < len(self._tokens) and self._tokens[at].kind != "text" else ""

    def _next(self, sign: str) -> bool:
        """Return whether this sign comes next; if so, it is passed over."""
        if self._sign() != sign:
            return False
        self.at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._next(sign):
            raise _NotPlain


def _literal(token: Token) -> str:
    if "\\" in token.text:
        raise _NotPlain
    return token.text[1:-1]
