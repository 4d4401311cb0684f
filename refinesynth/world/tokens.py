"""CEL's tokens, fewer than CEL has: what is not known is refused with what to write instead."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from refinesynth.world.errors import RulebookError

MAX_TOKENS = 300
"""Most tokens of one expression: the CEL library works recursively, and a thread's stack may be small."""

MAX_BRACKETS = 24
"""Deepest nesting of brackets."""

CLOSING = {"(": ")", "[": "]"}


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      |(?P<number>0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """One token and where it stands."""

    kind: str
    text: str
    start: int
    end: int


def tokenize(source: str) -> tuple[Token, ...]:
    """The tokens of an expression.

    Raises:
        RulebookError: Something in it is no token of ours, or there are more than `MAX_TOKENS`.
    """
    tokens = tuple(_tokens(source))
    if len(tokens) > MAX_TOKENS:
        raise RulebookError(f"the condition has {len(tokens)} parts, more than {MAX_TOKENS}; split it")
    return tokens


def _tokens(source: str) -> Iterator[Token]:
    at, last = 0, ""
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None or found.lastgroup is None or source.startswith("//", at):
            raise RulebookError(f"{source[at : at + 12]!r} is not understood; {_known_signs(source[at])}")
        kind = found.lastgroup
        if kind != "space":
            if {last, kind} in ({"name", "text"}, {"text"}, {"number", "name"}) and source[at - 1] not in " \t\r\n":
                raise RulebookError(
                    f"{found[0][:20]!r} follows directly on something; use plain quoted text and plain numbers"
                )
            if last == kind == "text":
                raise RulebookError("two texts follow one another; write + between them")
            yield Token(kind, found[0], at, found.end())
            last = kind
        at = found.end()


def _known_signs(sign: str) -> str:
    if sign in "{}":
        return "objects cannot be written out; compare their fields one by one"
    if sign in "&|=":
        return "write &&, || and =="
    if sign in "\"'":
        return "a text ends with the quote that it began with, on the same line"
    return "only CEL's names, numbers, quoted texts and signs can be used"


def match_brackets(tokens: tuple[Token, ...]) -> dict[int, int]:
    """Each bracket's partner, both ways.

    Raises:
        RulebookError: A bracket has none, or they are nested deeper than `MAX_BRACKETS`.
    """
    partner: dict[int, int] = {}
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        if token.text in CLOSING:
            opened.append(at)
            if len(opened) > MAX_BRACKETS:
                raise RulebookError(f"brackets are nested deeper than {MAX_BRACKETS}; split the condition")
        elif token.text in CLOSING.values():
            if not opened or CLOSING[tokens[opened[-1]].text] != token.text:
                raise RulebookError(f"the {token.text!r} at character {token.start + 1} closes nothing")
            begin = opened.pop()
            partner[begin], partner[at] = at, begin
    if opened:
        raise RulebookError(
            f"the {tokens[opened[-1]].text!r} at character {tokens[opened[-1]].start + 1} is never closed"
        )
    return partner


def text_at(tokens: tuple[Token, ...], at: int) -> str:
    """The sign or name at `at`; empty outside and for quoted text."""
    return tokens[at].text if 0 <= at < len(tokens) and tokens[at].kind != "text" else ""
