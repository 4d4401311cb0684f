"""Rules, their findings, and the composition of rules.

A rule looks at a draft and yields violations; none means that it passes. Rules are sync and pure: no I/O, no
randomness, and they never raise, for any content of a draft. A composition of rules is itself a rule.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from refinesynth.rules.rule_errors import blame, timed
from refinesynth.text.json_reader import scrub
from refinesynth.text.markup import html_table
from refinesynth.trajectory import Draft, Trajectory

FIELDS = ConfigDict(extra="forbid")
"""Configuration of the rules that are pydantic dataclasses: their fields are validated, and there are no others."""


class Severity(StrEnum):
    """Effect of a violation on a draft."""

    REJECT = "reject"
    """The draft is refused."""
    WARN = "warn"
    """The draft is kept; the violation is reported and counted."""


class Violation(BaseModel, frozen=True, extra="forbid"):
    """One thing that a rule found wrong with a draft."""

    rule: str
    """Name of the rule's class, the key of its statistics."""
    turn: int = Field(ge=0)
    """Index of the turn at which the draft stops being right; everything before it stands."""
    code: str
    """Machine-readable kind of the fault, in snake_case."""
    message: str
    """Description of the fault and its repair, addressed to the LLM that must repair it."""
    keeps_prefix: bool = True
    """True if the turns before `turn` may be kept; if not, generation starts over from nothing."""
    severity: Severity = Severity.REJECT


class Verdict(BaseModel, frozen=True, extra="forbid"):
    """The whole answer about a draft."""

    accepted: bool
    violations: tuple[Violation, ...]
    verified_turns: int = Field(ge=0)
    """Length of the verified prefix, in turns: where generation may go on. All turns if accepted."""

    def _repr_html_(self) -> str:
        standing = "accepted" if self.accepted else "refused"
        found = (
            (one.rule, f"turn {one.turn + 1}: {one.message} ({one.code}, {one.severity})") for one in self.violations
        )
        return html_table([(standing, f"{self.verified_turns:,} turns verified"), *found])


@runtime_checkable
class Rule(Protocol):
    """A check of a draft.

    Any callable of this shape is a rule. Deriving from `BaseRule` gives it the operators and `violation`.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]: ...


Factory = Callable[..., Rule]
"""Value of a name: a rule's class, or a function that makes a rule."""

BUILT_IN: dict[str, Factory] = {}
"""Name to factory of what comes with the package, complete when `refinesynth.rules` is imported."""

_Made = TypeVar("_Made", bound=Factory)


def built_in(factory: _Made) -> _Made:
    """Make a factory known by its name, see `registry.find`; for what comes with the package."""
    BUILT_IN[factory.__name__] = factory
    return factory


class BaseRule:
    """A rule with operators: `a & b` (all, in order), `a | b` (either), `~a` (not).

    Subclasses are frozen dataclasses whose fields are the rule's settings, so that `repr` shows them, and define
    `__call__`. With pydantic's `dataclass(frozen=True, config=FIELDS)` wrong settings are refused when the rule is
    made. Those that come with the package are known by name: `class MyRule(BaseRule, built_in=True)`.
    """

    def __init_subclass__(cls, *, built_in: bool = False) -> None:
        if built_in:
            BUILT_IN[cls.__name__] = cls

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        """Yield what is wrong with `draft`."""
        raise TypeError(f"{type(self).__name__} defines no __call__ to check {type(draft).__name__} with")

    def violation(self, turn: int, code: str, message: str, *, keeps_prefix: bool = True) -> Violation:
        """A violation in this rule's name; the message may quote anything and is made fit for UTF-8."""
        name = type(self).__name__
        return Violation(rule=name, turn=turn, code=code, message=scrub(message), keeps_prefix=keeps_prefix)

    def __and__(self, other: Rule) -> "All":
        return all_of(self, other)

    def __rand__(self, other: Rule) -> "All":
        return all_of(other, self)

    def __or__(self, other: Rule) -> "Either":
        return Either(self, other)

    def __ror__(self, other: Rule) -> "Either":
        return Either(other, self)

    def __invert__(self) -> "Not":
        return Not(self)


def _refuse_others(*given: object) -> None:
    """Raises: TypeError: One of these is no rule."""
    for one in given:
        if not callable(one) or isinstance(one, type):
            make = {str: f"rules.parse({one!r}) makes one of text", type: "call the class to make one"}
            advice = next(
                (says for kind, says in make.items() if isinstance(one, kind)), "a rule is callable with a draft"
            )
            raise TypeError(f"{one!r} is no rule; {advice}")


def rejects(violation: Violation) -> bool:
    """Return whether this violation refuses the draft."""
    return violation.severity is Severity.REJECT


@dataclass(frozen=True)
class All(BaseRule):
    """Every rule in order, with all that each one finds. Written `a & b`.

    Nested ones are taken apart, so that `(a & b) & c` equals `a & (b & c)`.
    """

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        flat: list[Rule] = []
        _refuse_others(*self.rules)
        for rule in self.rules:
            flat.extend(rule.rules if isinstance(rule, All) else (rule,))
        object.__setattr__(self, "rules", tuple(flat))

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for rule in self.rules:
            yield from timed(rule, draft)

    def __repr__(self) -> str:
        if len(self.rules) < 2:  # noqa: PLR2004 - an operator needs two sides
            return f"all_of({', '.join(map(repr, self.rules))})"
        return " & ".join(_bracketed(rule, Either) for rule in self.rules)


def all_of(*rules: Rule) -> All:
    """`All` of these rules, however many; of none, it passes everything."""
    return All(rules)


@dataclass(frozen=True)
class Either(BaseRule):
    """Passes when one of the two passes; otherwise everything that both find. Written `a | b`."""

    left: Rule
    right: Rule

    def __post_init__(self) -> None:
        _refuse_others(self.left, self.right)

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        found = list(self.left(draft))
        if not any(map(rejects, found)):
            yield from found
            return
        others = list(self.right(draft))
        if not any(map(rejects, others)):
            yield from others
            return
        yield from found
        yield from others

    def __repr__(self) -> str:
        return f"{_bracketed(self.left, All)} | {_bracketed(self.right, All, Either)}"


@dataclass(frozen=True)
class Not(BaseRule):
    """Passes when the rule does not. Written `~a`. What it finds keeps no prefix, since no single turn is at fault.

    An unfinished draft passes: what is satisfied so far may yet not be.
    """

    rule: Rule

    def __post_init__(self) -> None:
        _refuse_others(self.rule)

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        if draft.finished and not any(map(rejects, self.rule(draft))):
            message = f"This trajectory satisfies {self.rule!r}, which it must not. Write a different one."
            yield self.violation(0, "satisfied", message, keeps_prefix=False)

    def __repr__(self) -> str:
        return f"~{_bracketed(self.rule, All, Either)}"


@dataclass(frozen=True)
class FirstFailure(BaseRule):
    """The rules read turn by turn, as the paper's Algorithm 1 reads them: only the failure that comes first.

    First is the earliest turn; at one turn, the order of the rules. Warnings found before it are passed on.
    """

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        _refuse_others(*self.rules)

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        first: Violation | None = None
        for rule in self.rules:
            for violation in rule(draft):
                if not rejects(violation):
                    yield violation
                elif first is None or violation.turn < first.turn:
                    first = violation
        if first is not None:
            yield first

    def __repr__(self) -> str:
        return f"first_failure({', '.join(map(repr, self.rules))})"


def first_failure(*rules: Rule) -> FirstFailure:
    """A chain that stops at the first failure in turn order; see `FirstFailure`."""
    return FirstFailure(rules)


@dataclass(frozen=True)
class Warn(BaseRule):
    """The same rule, of which every violation only warns."""

    rule: Rule

    def __post_init__(self) -> None:
        _refuse_others(self.rule)

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for violation in self.rule(draft):
            yield violation.model_copy(update={"severity": Severity.WARN})

    def __repr__(self) -> str:
        return f"warn({self.rule!r})"


def warn(rule: Rule) -> Warn:
    """`rule`, reporting instead of refusing."""
    return Warn(rule)


def verify(draft: Draft | Trajectory, rule: Rule) -> Verdict:
    """Run `rule` over a draft, or over a trajectory as if it were one.

    The verified prefix ends at the earliest turn that a rejecting violation names, and is empty when one of them keeps
    no prefix. The same draft and rule give the same verdict.

    Raises:
        RuleFailed: A rule that is not of this package raised.
        TypeError: `rule` is no rule.
    """
    _refuse_others(rule)
    draft = draft.draft() if isinstance(draft, Trajectory) else draft
    try:
        violations = tuple(rule(draft) if isinstance(rule, All) else timed(rule, draft))
        refusing = [violation for violation in violations if rejects(violation)]
    except Exception as error:
        if (failed := blame(error)) is None:
            raise
        raise failed from error
    if not refusing:
        kept = len(draft.turns)
    elif all(violation.keeps_prefix for violation in refusing):
        kept = min(len(draft.turns), *(violation.turn for violation in refusing))
    else:
        kept = 0
    return Verdict(accepted=not refusing, violations=violations, verified_turns=kept)


def _bracketed(rule: Rule, *looser: type[BaseRule]) -> str:
    return f"({rule!r})" if isinstance(rule, looser) else repr(rule)
