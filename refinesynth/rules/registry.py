"""Rules by name: the built-in ones, and those of installed packages (entry points in the group `refinesynth.rules`)."""

import ast
import difflib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from pydantic import ValidationError, validate_call

from refinesynth.errors import InputError
from refinesynth.lazy_imports import Table
from refinesynth.rules.rule import (
    BUILT_IN,
    All,
    BaseRule,
    Either,
    Factory,
    FirstFailure,
    Not,
    Rule,
    all_of,
    first_failure,
    warn,
)
from refinesynth.text.formatting import quoted
from refinesynth.trajectory import explain

INSTALLED = Table("rule", "refinesynth.rules")
"""Entry points: `MyRule = "my_package.rules:MyRule"`, a class or a function that returns a rule."""


def available() -> dict[str, str]:
    """Return the name of every rule and chain with a one-line description; those of other packages are not loaded."""
    chains_first = sorted(BUILT_IN.items(), key=lambda item: isinstance(item[1], type))
    docs = {name: inspect.getdoc(factory) or "" for name, factory in chains_first}
    descriptions = {name: " ".join(doc.partition("\n\n")[0].split()) for name, doc in docs.items()}
    for name, entry in INSTALLED.entries().items():
        descriptions.setdefault(name, f"from {entry.value}")
    return descriptions


def find(name: str) -> Factory:
    """Return the factory of that name, loaded from its entry point if it is not built in.

    Raises:
        InputError: The name is unknown, the entry point cannot be loaded, or it has the name of a built-in rule and is
            therefore ambiguous.
    """
    installed = INSTALLED.entries()
    if name not in BUILT_IN:
        if name not in installed:
            raise InputError(_unknown(name, [*BUILT_IN, *installed]))
        return INSTALLED.load(name, callable, "a class or a function")
    if (shadow := installed.get(name)) is not None:
        package = "an installed package" if shadow.dist is None else f"the package {shadow.dist.name!r}"
        raise InputError(
            f"the rule {name!r} is built in, and {shadow.value!r} of {package} is registered under the same name; "
            "register it under another one, or uninstall that package"
        )
    return BUILT_IN[name]


def _unknown(name: str, names: list[str]) -> str:
    by_lower_case = {known.casefold(): known for known in names}
    similar = [by_lower_case[match] for match in difflib.get_close_matches(name.casefold(), by_lower_case, n=3)]
    suggestion = f" Did you mean {' or '.join(similar)}?" if similar else ""
    return f"there is no rule {quoted(name)}.{suggestion} Known rules: {', '.join(sorted(names, key=str.casefold))}."


_MINIMUM_SETTINGS = frozenset({"least", "minimum"})
"""Settings for which a larger number is stricter."""


def numbers(*rules: Rule) -> dict[str, dict[str, int]]:
    """Return rule name to setting to its number, for the built-in rules that every draft accepted by all `rules`
    satisfies; the strictest number counts.

    Rules that only warn, and alternatives, are not included.
    """
    strictest_numbers: dict[str, dict[str, int]] = {}
    for rule in _binding(rules):
        settings = strictest_numbers.setdefault(type(rule).__name__, {})
        for name, number in vars(rule).items():  # of a dataclass: its settings
            if isinstance(number, int) and not isinstance(number, bool):
                strictest = max if name in _MINIMUM_SETTINGS else min
                settings[name] = strictest(number, settings.get(name, number))
    return strictest_numbers


def _binding(rules: tuple[Rule, ...]) -> Iterator[BaseRule]:
    for rule in rules:
        if isinstance(rule, All | FirstFailure):
            yield from _binding(rule.rules)
        elif isinstance(rule, BaseRule) and BUILT_IN.get(type(rule).__name__) is type(rule):
            yield rule


MAX_TEXT_CHARACTERS = 20_000
"""Longest expression, in characters."""

MAX_RULE_DEPTH = 200
"""Deepest nesting of operators and calls."""

_COMPOSERS: Mapping[str, Callable[..., Rule]] = {"first_failure": first_failure, "all_of": all_of, "warn": warn}


def parse(text: str) -> Rule:
    """Return the rule for an expression; a name without brackets is called without arguments.

    Raises:
        InputError: The text is too long, too deeply nested or no such expression; or a name is unknown, its arguments
            do not fit, or the result is no rule. The message suggests similar names.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        raise InputError(f"the rules have {len(text):,} characters; at most {MAX_TEXT_CHARACTERS:,} are read")
    try:
        with warnings.catch_warnings(action="ignore"):  # An odd escape in a string is not the reader's affair.
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"the rules {quoted(text)} cannot be read: {error}. {_EXAMPLE}") from error
    return _rule(tree.body, MAX_RULE_DEPTH)


_EXAMPLE = "Write, for example: strict() & TurnLimit(most=40)"


def _rule(node: ast.expr, depth: int) -> Rule:
    if depth == 0:
        raise InputError(f"the rules are nested deeper than {MAX_RULE_DEPTH} levels")
    parse_part = partial(_rule, depth=depth - 1)
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return all_of(parse_part(left), parse_part(right))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Either(parse_part(left), parse_part(right))
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return Not(parse_part(operand))
        case ast.Name(id=name):
            return _make_rule(name, [], {})
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            parse_argument = parse_part if name in _COMPOSERS else _literal
            if any(keyword.arg is None for keyword in keywords):
                raise InputError(f"{_source(node)} takes no **; write its arguments by name")
            settings = {str(keyword.arg): _literal(keyword.value) for keyword in keywords}
            if len(settings) < len(keywords):
                raise InputError(f"{_source(node)} gives a setting twice; give each once")
            return _make_rule(name, [parse_argument(arg) for arg in args], settings)
        case _:
            raise InputError(f"{_source(node)} is not a rule, a call, or a combination by & | ~. {_EXAMPLE}")


def _make_rule(name: str, args: Sequence[object], settings: Mapping[str, object]) -> Rule:
    make = factory = _COMPOSERS.get(name) or find(name)
    try:
        # The fields of a built-in class are validated; the arguments of a chain, a function, are not.
        if not isinstance(factory, type) and BUILT_IN.get(name) is factory:
            make = validate_call(factory)
        rule = make(*args, **settings)
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
        raise InputError(f"{_source(node)} is not a literal; arguments of rules are literals only") from error


def _source(node: ast.expr) -> str:
    try:
        return quoted(ast.unparse(node))
    except RecursionError:
        return "a deeply nested expression"
