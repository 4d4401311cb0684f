"""Analysis of a condition's text before it is compiled: which parts of the state it reads, and how much work it can be.

A small reader of CEL's tokens, stricter than CEL: what it does not know, it refuses with what to write instead. So
nothing that reaches the CEL library can build huge values, and all that an evaluation costs is known from sizes.
"""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from refinesynth.world.errors import RulebookError
from refinesynth.world.template import VISIBLE, Slot

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


MAX_MACROS = 3
"""Deepest nesting of `all`, `exists`, `exists_one` and `filter`."""

IN_ORDER = "_in_order"
"""Function that is put around what a macro walks over, so that an object's keys come sorted, not in hash order."""

_ORDERING = 10
"""What it costs to put a macro's range in order, in mentions of variables."""

Chain = tuple[str | Slot, ...]
"""Keys that lead from the state to what an expression reads, as far as they are known beforehand."""

_MACROS = frozenset({"all", "exists", "exists_one", "filter"})
_METHODS = frozenset({"size", "contains", "startsWith", "endsWith"})
_FUNCTIONS = frozenset({"has", "size", "int", "double", "string"})
_WORDS = frozenset({"true", "false", "null", "in"})
_KEYWORDS = "as break const continue else false for function if import in let loop namespace null package return true var void while"
RESERVED = frozenset({"state", VISIBLE, "each", *_KEYWORDS.split()})
"""Names that no parameter can have: CEL's own, and those of the state, of what is visible in it and of what a sight is
read for."""

_INSTEAD = {
    "map": "write exists, all or filter instead of map",
    "matches": "write ==, in, contains, startsWith or endsWith; the form of a parameter is checked by the action's own pattern",
    "size": "write size(x) or x.size()",
}


@dataclass(frozen=True, slots=True)
class Analysis:
    """Facts about an expression before it is compiled."""

    source: str
    """The expression with `IN_ORDER` around what macros walk over."""
    chains: tuple[Chain, ...]
    """All that it reads of the state; an empty chain is the whole state."""
    parameters: tuple[str, ...]
    """Parameters that it mentions."""
    work: tuple[int, ...]
    """How much is read inside 0, 1, ... macros: mentions of variables, and what macros walk over, which costs more."""
    growth: int
    """How many times larger than its inputs a value can become inside macros."""
    longest: int
    """Most items of a list that it writes out."""
    conjuncts: tuple[str, ...]
    """The expressions that `&&` joins at the top; the expression itself if there is one only."""
    members: tuple[tuple[Chain, str | Slot], ...] = ()
    """For chains that occur only as in `x in state.list`: what is looked for there. Nothing else of the list or object
    matters."""
    sees: bool = False
    """Whether it mentions what is visible."""
    sought: str | Slot | None = None
    """The name or parameter of which it asks whether it is visible, if it asks nothing else."""


def analyse(source: str, parameters: AbstractSet[str], *, sees: bool = False) -> Analysis:
    """Read an expression over `state`, the parameters and, where it `sees`, what is visible.

    Raises:
        RulebookError: Something in it is not available; the message says what to write instead.
    """
    tokens = tokenize(source)
    partner = match_brackets(tokens)
    bound = {tokens[at + 2].text for at, _ in enumerate(tokens) if _is_macro(tokens, at)}
    _check_bound(bound, parameters)
    _check_calls(tokens)
    variables = tuple(_variables(tokens))
    known = parameters | {"state", VISIBLE} if sees else parameters | {"state"}
    for at in variables:
        _check_variable(tokens[at].text, bound, known)
    lists = [_items(tokens, at, partner[at]) for at, token in enumerate(tokens) if _opens_list(tokens, at, token)]
    work = _work(tokens, partner, set(variables))
    sums = sum(token.text == "+" for token in tokens)
    mentions = [at for at in variables if tokens[at].text == "state"]
    return Analysis(
        source=_ordered(source, tokens, partner),
        chains=tuple(dict.fromkeys(_chain(tokens, at, parameters)[0] for at in mentions)),
        parameters=tuple(sorted({tokens[at].text for at in variables} & parameters)),
        work=work,
        growth=prod(lists) * 2**sums if len(work) > 1 else 1,
        longest=max(lists, default=0) * 2**sums,
        conjuncts=_conjuncts(source, tokens, partner),
        members=_members(tokens, mentions, parameters),
        sees=any(tokens[at].text == VISIBLE for at in variables),
        sought=_sought(tokens, parameters),
    )


def _is_macro(tokens: tuple[Token, ...], at: int) -> bool:
    """Return whether `name(variable,` begins at `at`, after a dot."""
    if tokens[at].kind != "name" or tokens[at].text not in _MACROS:
        return False
    if text_at(tokens, at - 1) != "." or text_at(tokens, at + 1) != "(":
        return False
    if at + 3 >= len(tokens) or tokens[at + 2].kind != "name" or text_at(tokens, at + 3) != ",":
        raise RulebookError(f"{tokens[at].text} is written x.{tokens[at].text}(name, condition with name)")
    return True


def _variables(tokens: tuple[Token, ...]) -> Iterator[int]:
    for at, token in enumerate(tokens):
        if (
            token.kind == "name"
            and token.text not in _WORDS
            and text_at(tokens, at - 1) != "."
            and text_at(tokens, at + 1) != "("
        ):
            yield at


def _check_bound(bound: AbstractSet[str], parameters: AbstractSet[str]) -> None:
    if taken := bound & (parameters | {"state", VISIBLE} | _WORDS):
        raise RulebookError(f"{min(taken)!r} is a variable already; use another name inside all, exists or filter")


def _check_variable(name: str, bound: AbstractSet[str], known: AbstractSet[str]) -> None:
    if name not in known and name not in bound:
        there = ", ".join(sorted(known, key=lambda each: (each not in {"state", VISIBLE}, each)))
        raise RulebookError(f"{name!r} is not a variable here (there are: {there}); a text needs quotes")


def _check_calls(tokens: tuple[Token, ...]) -> None:
    for at, token in enumerate(tokens):
        if token.text == "." and token.kind == "sign":
            if not (
                text_at(tokens, at - 1) in {")", "]"} or (at and tokens[at - 1].kind in {"name", "text", "number"})
            ):
                raise RulebookError(f"the dot at character {token.start + 1} follows nothing")
            continue
        if token.kind != "name" or token.text == "in" or text_at(tokens, at + 1) != "(":
            continue
        known = _METHODS | _MACROS if text_at(tokens, at - 1) == "." else _FUNCTIONS
        if token.text not in known:
            available = ", ".join(sorted(_FUNCTIONS | _METHODS | _MACROS))
            instead = _INSTEAD.get(token.text, f"available are: {available}")
            raise RulebookError(f"the function {token.text!r} cannot be used like this; {instead}")


def _opens_list(tokens: tuple[Token, ...], at: int, token: Token) -> bool:
    """Return whether this bracket begins a list and not an index."""
    if token.kind != "sign" or token.text != "[":
        return False
    return (
        not at
        or text_at(tokens, at - 1) == "in"
        or not (tokens[at - 1].kind in {"name", "text", "number"} or text_at(tokens, at - 1) in {")", "]"})
    )


def _items(tokens: tuple[Token, ...], begin: int, end: int) -> int:
    level, commas = 0, 0
    for at in range(begin + 1, end):
        sign = text_at(tokens, at)
        level += (sign in CLOSING) - (sign in {")", "]"})
        commas += sign == "," and level == 0
    return commas + 1


def _work(tokens: tuple[Token, ...], partner: dict[int, int], variables: AbstractSet[int]) -> tuple[int, ...]:
    """Work at each depth of nested macros, in mentions of variables."""
    work, ends = [1], list[int]()
    for at in range(len(tokens)):
        while ends and ends[-1] <= at:
            ends.pop()
        if at in variables:
            work[len(ends)] += 1
        if _is_macro(tokens, at):
            work[len(ends)] += _ORDERING
            ends.append(partner[at + 1])
            if len(ends) > MAX_MACROS:
                raise RulebookError(f"all, exists and filter are nested deeper than {MAX_MACROS}; split the condition")
            if len(ends) == len(work):
                work.append(0)
    return tuple(work)


def _chain(tokens: tuple[Token, ...], at: int, parameters: AbstractSet[str]) -> tuple[Chain, int]:
    """The keys after `state` at `at`, as far as they are constants or parameters, and where they end."""
    chain: list[str | Slot] = []
    at += 1
    while True:
        name = tokens[at + 1] if at + 1 < len(tokens) else None
        if text_at(tokens, at) == "." and name and name.kind == "name" and text_at(tokens, at + 2) != "(":
            chain.append(name.text)
            at += 2
        elif text_at(tokens, at) == "[" and name and text_at(tokens, at + 2) == "]":
            if name.kind == "text" and "\\" not in name.text:
                chain.append(name.text[1:-1])
            elif name.kind == "name" and name.text in parameters:
                chain.append(Slot(name.text))
            else:
                break
            at += 3
        else:
            break
    return tuple(chain), at


def _members(
    tokens: tuple[Token, ...], mentions: list[int], parameters: AbstractSet[str]
) -> tuple[tuple[Chain, str | Slot], ...]:
    """Return what is looked for at chains that stand only on the right of `in`, a name or parameter alone on its left."""
    sought: dict[Chain, set[str | Slot | None]] = {}
    for at in mentions:
        chain, end = _chain(tokens, at, parameters)
        alone = text_at(tokens, at - 1) == "in" and text_at(tokens, at - 3) in {"", "(", "&&", "||", "?", ":"}
        # Quoted text has no sign, but never stands before another operand.
        ended = end == len(tokens) or text_at(tokens, end) in {")", "&&", "||", "?", ":"}
        key = _name_at(tokens, at - 2, parameters) if alone and ended else None
        sought.setdefault(chain, set()).add(key)
    return tuple((chain, key) for chain, keys in sought.items() if None not in keys for key in keys if key is not None)


def _name_at(tokens: tuple[Token, ...], at: int, parameters: AbstractSet[str]) -> str | Slot | None:
    if at < 0:
        return None
    token = tokens[at]
    if token.kind == "text":
        return None if "\\" in token.text else token.text[1:-1]
    return Slot(token.text) if token.kind == "name" and token.text in parameters else None


def _sought(tokens: tuple[Token, ...], parameters: AbstractSet[str]) -> str | Slot | None:
    """Return what stands before `in visible`, if it is one name and that is all."""
    if len(tokens) != 3 or text_at(tokens, 1) != "in" or text_at(tokens, 2) != VISIBLE:  # noqa: PLR2004 - x in visible
        return None
    return _name_at(tokens, 0, parameters)


def _ordered(source: str, tokens: tuple[Token, ...], partner: dict[int, int]) -> str:
    """The expression with `IN_ORDER(...)` around what each macro walks over."""
    inserts: list[tuple[int, str]] = []
    for at in range(len(tokens)):
        if _is_macro(tokens, at):
            inserts.append((tokens[_operand(tokens, at - 2, partner)].start, f"{IN_ORDER}("))
            inserts.append((tokens[at - 2].end, ")"))
    for position, text in sorted(inserts, key=lambda item: item[0], reverse=True):
        source = source[:position] + text + source[position:]
    return source


def _operand(tokens: tuple[Token, ...], at: int, partner: dict[int, int]) -> int:
    """Return where the operand begins whose last token is at `at`: a name or bracket with all fields, indices and calls after
    it.
    """
    while True:
        if at in partner:
            at = partner[at]
            before = tokens[at - 1] if at else None
            if before and before.kind == "name" and before.text != "in":
                at -= 1
            elif tokens[at].text == "[" and before and (before.kind == "text" or before.text in {")", "]"}):
                at -= 1
                continue
        if text_at(tokens, at - 1) != ".":
            return at
        at -= 2


def _conjuncts(source: str, tokens: tuple[Token, ...], partner: dict[int, int]) -> tuple[str, ...]:
    """The parts that `&&` joins, if nothing at the top binds weaker."""
    cuts: list[Token] = []
    at = 0
    while at < len(tokens):
        sign = text_at(tokens, at)
        if sign in {"||", "?"}:
            return (source,)
        if sign == "&&":
            cuts.append(tokens[at])
        at = partner.get(at, at) + 1 if sign in CLOSING else at + 1
    begins, ends = [0, *(cut.end for cut in cuts)], [*(cut.start for cut in cuts), len(source)]
    return tuple(source[begin:end].strip() for begin, end in zip(begins, ends, strict=True))
