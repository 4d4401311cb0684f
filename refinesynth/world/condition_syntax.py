"""Parser of conditions.

CEL expressions correspond to Python's with other tokens: `&&` is `and`, `!` is `~` (which has the same precedence), and
`c ? a : b` has the order of `c if a else b`. A condition is translated token by token and parsed by Python's parser.
Nothing is executed. `condition` refuses all other syntax that Python's parser accepts.
"""

import ast
import re
from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple

from refinesynth.errors import RulebookError
from refinesynth.world.text_template import require_text

MAX_TOKENS = 300
"""Maximum number of tokens in an expression."""

MAX_BRACKETS = 24
"""Deepest nesting of brackets."""

MAX_INT = 2**63 - 1
"""Largest whole number that a condition can contain or calculate with."""

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      |(?P<text>"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')
      |(?P<number>0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))")
_ESCAPED = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)) | {sign: sign for sign in "?\"'`\\"}
_PYTHON = {
    "&&": "and", "||": "or", "!": "~", "?": "if", ":": "else", "in": "in", "true": "True", "false": "False",
    "null": "None",
}  # fmt: skip


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def parse(source: str) -> tuple[ast.expr, tuple[str, ...]]:
    """Parse an expression. Return its tree, in which names and attributes begin with an underscore, so none is a keyword
    of Python (see `name_of`), and the texts that `&&` joins at the top, or the whole text.

    Raises:
        RulebookError: It does not parse, has more than `MAX_TOKENS` tokens or brackets deeper than `MAX_BRACKETS`.
    """
    require_text(source)
    tokens = tuple(_tokens(source))
    if len(tokens) > MAX_TOKENS:
        raise RulebookError(f"the condition has {len(tokens)} parts, more than {MAX_TOKENS}; split it")
    ands = _top_level_ands(tokens)
    words = [_python_token(source, token) for token in tokens]
    try:
        tree = ast.parse(" ".join(words), mode="eval").body
    except (SyntaxError, MemoryError, RecursionError) as error:
        index, length = 0, (getattr(error, "offset", None) or 1) - 1
        while index < len(words) and length > len(words[index]):
            length -= len(words[index]) + 1
            index += 1
        start = tokens[index].start if index < len(tokens) else len(source)
        raise _malformed(source, start, "an operand, operator or bracket is missing or does not belong there") from None
    if not ands or not (isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And)):
        return tree, (source,)
    starts, ends = [0, *(cut.end for cut in ands)], [*(cut.start for cut in ands), len(source)]
    return tree, tuple(source[start:end].strip() for start, end in zip(starts, ends, strict=True))


def name_of(node: ast.expr) -> str | None:
    """Return the variable of a node; None if it is no variable."""
    return node.id[1:] if isinstance(node, ast.Name) else None


def path_of(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """Return the beginning of a chain of fields and indices, and its keys; a field is a constant key."""
    keys: list[ast.expr] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        keys.append(ast.Constant(node.attr[1:]) if isinstance(node, ast.Attribute) else node.slice)
        node = node.value
    return node, keys[::-1]


def _tokens(source: str) -> Iterator[_Token]:
    start, last = 0, ""
    while start < len(source):
        match = _TOKEN.match(source, start)
        if match is None or match.lastgroup is None or source.startswith("//", start):
            raise RulebookError(f"{source[start : start + 12]!r} is not understood; {_advice_on(source[start])}")
        kind = match.lastgroup
        if kind != "space":
            if {last, kind} in ({"name", "text"}, {"text"}, {"number", "name"}) and source[start - 1] not in " \t\r\n":
                raise RulebookError(
                    f"{match[0][:20]!r} follows directly on something; use plain quoted text and plain numbers"
                )
            if last == kind == "text":
                raise RulebookError("two texts follow one another; write + between them")
            yield _Token(kind, match[0], start, match.end())
            last = kind
        start = match.end()


def _advice_on(sign: str) -> str:
    if sign in "{}":
        return "objects cannot be written out; compare their fields one by one"
    if sign in "&|=":
        return "write &&, || and =="
    if sign in "\"'":
        return "a text ends with the quote that it began with, on the same line"
    return "only CEL's names, numbers, quoted texts and signs can be used"


def _top_level_ands(tokens: tuple[_Token, ...]) -> list[_Token]:
    """Return each `&&` outside of brackets. Raises RulebookError: brackets are nested too deep."""
    depth, cuts = 0, list[_Token]()
    for token in tokens:
        depth += (token.text in {"(", "["}) - (token.text in {")", "]"})
        if depth > MAX_BRACKETS:
            raise RulebookError(f"brackets are nested deeper than {MAX_BRACKETS}; split the condition")
        if token.text == "&&" and not depth:
            cuts.append(token)
    return cuts


def _python_token(source: str, token: _Token) -> str:
    """Return a token in Python's syntax."""
    if token.kind == "text":
        return repr(_ESCAPE.sub(lambda match: _unescaped(source, token, match), token.text[1:-1]))
    if token.kind != "number":
        return _PYTHON.get(token.text) or (f"_{token.text}" if token.kind == "name" else token.text)
    if token.text.isdigit() or token.text[:2] in {"0x", "0X"}:
        digits = token.text if token.text[1:2] in {"x", "X"} else token.text.lstrip("0") or "0"
        # Allows the magnitude of the smallest negative number; without a minus, the compiler refuses it.
        if len(digits) < 20 and int(digits, 0) <= MAX_INT + 1:  # noqa: PLR2004 - digits of 2**63
            return digits
    elif isfinite(float(token.text)):
        return token.text
    raise _malformed(source, token.start, f"the number {token.text[:20]} is too large")


def _unescaped(source: str, token: _Token, match: re.Match[str]) -> str:
    *hexadecimal, octal, sign = match.groups()
    digits = next(filter(None, hexadecimal), None)
    code = int(digits, 16) if digits else int(octal, 8) if octal else None
    if code is None and sign in _ESCAPED:
        return _ESCAPED[sign]
    if code is None or code > 0x10FFFF or 0xD800 <= code < 0xE000:  # noqa: PLR2004 - no surrogates
        raise _malformed(source, token.start, f"{match[0]!r} stands for no character")
    return chr(code)


def _malformed(source: str, position: int, reason: str) -> RulebookError:
    line, column = source.count("\n", 0, position) + 1, position - source.rfind("\n", 0, position)
    return RulebookError(f"{source[:80]!r} does not parse at line:character {line}:{column}: {reason}")
