"""Rule chains written as text: `strict(min_refinements=3) & ~TurnLimit(most=8)`, as on the command line and in config.

The text is Python's expression syntax, read by `ast` and interpreted here; nothing is evaluated. Names are those of
`available()`; their arguments are literals; `&`, `|`, `~`, `first_failure(...)`, `all_of(...)` and `warn(...)` compose.
The `repr` of every built-in rule and chain reads back as an equal one.
"""

import ast
import warnings
from collections.abc import Callable, Mapping

from pydantic import ValidationError

from refinesynth.actions.wording import quoted
from refinesynth.errors import InputError
from refinesynth.rules.registry import find
from refinesynth.rules.rule import Either, Not, Rule, all_of, first_failure, warn
from refinesynth.trajectory import explain

MAX_TEXT_CHARACTERS = 20_000
"""Longest text that is read, in characters."""

MAX_RULE_DEPTH = 200
"""Deepest nesting of operators and calls."""

_COMPOSERS: Mapping[str, Callable[..., Rule]] = {"first_failure": first_failure, "all_of": all_of, "warn": warn}


def parse(text: str) -> Rule:
    """The rule that `text` describes; a name without brackets is called without arguments.

    Raises:
        InputError: The text is too long, too deep or not such an expression; a name is unknown, its arguments do not
            fit, or it makes no rule. The message says which, and names what comes near.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        raise InputError(f"the rules have {len(text):,} characters; at most {MAX_TEXT_CHARACTERS:,} are read")
    try:
        with warnings.catch_warnings(action="ignore"):  # An odd escape in a string is not the reader's affair.
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"the rules {quoted(text)} cannot be read: {error}. {_HOW}") from error
    return _rule(tree.body, MAX_RULE_DEPTH)


_HOW = "Write, for example: strict() & TurnLimit(most=40)"


def _rule(node: ast.expr, depth: int) -> Rule:
    if depth == 0:
        raise InputError(f"the rules are nested deeper than {MAX_RULE_DEPTH} levels")
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return all_of(_rule(left, depth - 1), _rule(right, depth - 1))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Either(_rule(left, depth - 1), _rule(right, depth - 1))
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return Not(_rule(operand, depth - 1))
        case ast.Name(id=name):
            return _composed(name, node, (), depth) if name in _COMPOSERS else _made(name, (), {})
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name not in _COMPOSERS:
            given = {_keyword(keyword): _literal(keyword.value) for keyword in keywords}
            return _made(name, tuple(map(_literal, args)), given)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return _composed(name, node, tuple(_rule(arg, depth - 1) for arg in args), depth)
        case _:
            raise InputError(f"{quoted(_source(node))} is not a rule, a call, or a combination by & | ~. {_HOW}")


def _composed(name: str, node: ast.expr, rules: tuple[Rule, ...], depth: int) -> Rule:
    del depth
    try:
        return _COMPOSERS[name](*rules)
    except TypeError as error:
        raise InputError(f"{quoted(_source(node))} does not fit: {error}") from error


def _made(name: str, args: tuple[object, ...], given: Mapping[str, object]) -> Rule:
    factory = find(name)
    try:
        rule = factory(*args, **given)
    except ValidationError as error:
        raise InputError(f"the arguments of {name} do not fit: {explain(error)}") from error
    except InputError:
        raise
    except Exception as error:  # Another package's rule may raise anything.
        raise InputError(f"{name} cannot be made with these arguments: {error!r}") from error
    if not callable(rule):
        raise InputError(f"{name} makes {rule!r}, which is not a rule: it cannot be called with a draft")
    return rule


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise InputError(f"{quoted(_source(node))} is not a literal; arguments of rules are literals only") from error


def _keyword(keyword: ast.keyword) -> str:
    if keyword.arg is None:
        raise InputError("a call of a rule takes no **; write its arguments by name")
    return keyword.arg


def _source(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except RecursionError:
        return "a deeply nested expression"
