"""Rules, violations, and compositions of rules; a draft as exchanges, for rules that judge actions and answers.

A rule reads a draft and yields violations; none means that it passes. Rules are synchronous and pure: no I/O and no
randomness. They never raise, for any content of a draft. A composition of rules is a rule.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar, cast, dataclass_transform, runtime_checkable

import pydantic.dataclasses
from pydantic import BaseModel, ConfigDict, Field

from refinesynth.errors import RuleFailed
from refinesynth.text.formatting import scrub
from refinesynth.trajectory import Draft, DungeonMasterTurn, MalformedTurn, PlayerTurn, Trajectory

FIELDS = ConfigDict(extra="forbid")
"""Configuration of rules as pydantic dataclasses: fields are validated, unknown ones refused."""


class Severity(StrEnum):
    """Effect of a violation on a draft."""

    REJECT = "reject"
    """The draft is refused."""
    WARN = "warn"
    """The draft is kept; the violation is reported and counted."""


class Violation(BaseModel, frozen=True, extra="forbid"):
    """One problem that a rule found in a draft."""

    rule: str
    """Name of the rule's class, the key of its statistics."""
    turn: int = Field(ge=0)
    """Index of the first turn that the problem makes invalid; the number of turns for a problem after the last one."""
    code: str
    """Machine-readable kind of the problem, in snake_case."""
    message: str
    """Description of the problem and its repair, addressed to the LLM that must repair it."""
    keeps_prefix: bool = True
    """True if the turns before `turn` may be kept; False to start over from nothing."""
    severity: Severity = Severity.REJECT


class Verdict(BaseModel, frozen=True, extra="forbid"):
    """Result of a verification."""

    accepted: bool
    violations: tuple[Violation, ...]
    verified_turns: int = Field(ge=0)
    """Length of the verified prefix in turns, from which generation may continue; all turns of an accepted draft."""


@runtime_checkable
class Rule(Protocol):
    """Protocol of a rule.

    Any callable of this shape is a rule. Deriving from `BaseRule` adds the operators and `violation`.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]: ...


Factory = Callable[..., Rule]
"""Factory of a rule: its class, or a function that returns a rule."""

BUILT_IN: dict[str, Factory] = {}
"""Name to factory of the built-in rules, complete when `refinesynth.rules` is imported."""

_FactoryT = TypeVar("_FactoryT", bound=Factory)


def built_in(factory: _FactoryT) -> _FactoryT:
    """Register a built-in factory by name, see `registry.find`."""
    BUILT_IN[factory.__name__] = factory
    return factory


class BaseRule:
    """Base class of rules with operators: `a & b` (all, in order), `a | b` (either), `~a` (not).

    Subclasses are frozen dataclasses with the rule's settings as fields, shown by `repr`, and define `__call__`.
    Pydantic's `dataclass(frozen=True, config=FIELDS)` refuses wrong settings at construction.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        """Yield the violations of `draft`."""
        raise TypeError(f"{type(self).__name__} defines no __call__ to check {type(draft).__name__} with")

    def violation(self, turn: int, code: str, message: str, *, keeps_prefix: bool = True) -> Violation:
        """Return a violation in this rule's name; the message may quote anything and is made valid UTF-8."""
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


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
class BuiltInRule(BaseRule):
    """Base class of the built-in rules: makes a subclass a frozen pydantic dataclass and registers it by name. A
    subclass of a built-in rule is not built in, and stays as it is.
    """

    def __init_subclass__(cls) -> None:
        if BuiltInRule in cls.__bases__:
            pydantic.dataclasses.dataclass(frozen=True, config=FIELDS)(cls)
            built_in(cls)


def rejects(violation: Violation) -> bool:
    """Return whether this violation refuses the draft."""
    return violation.severity is Severity.REJECT


class _Composition(BaseRule):
    """Base class of the compositions, whose fields hold a rule each, or several as `rules`."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _require_rules(*value if name == "rules" else (value,))


def _require_rules(*values: object) -> None:
    """Raise TypeError if one of these is no rule."""
    for one in values:
        if isinstance(one, type):
            raise TypeError(f"{one!r} is no rule; call the class to make one")
        if not callable(one):
            advice = (
                f"rules.parse({one!r}) makes one of text" if isinstance(one, str) else "a rule is callable with a draft"
            )
            raise TypeError(f"{one!r} is no rule; {advice}")


def _violations(rule: Rule, draft: Draft) -> Iterator[Violation]:
    """Yield the violations of `rule`.

    Raises RuleFailed if a rule of another package raises; the innermost one is named.
    """
    try:
        for found in rule(draft):
            if not isinstance(cast("object", found), Violation):
                raise TypeError(f"it yields {found!r}, which is no Violation")  # noqa: TRY301 - reported as other errors are
            yield found
    except RuleFailed:
        raise
    except Exception as error:
        if (failure := _rule_failure(rule, error)) is None:
            raise
        raise failure from error


@dataclass(frozen=True)
class All(_Composition):
    """All rules in order, with all their violations. Written `a & b`.

    Nested ones are flattened, so `(a & b) & c` equals `a & (b & c)`.
    """

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        flat = [part for rule in self.rules for part in (rule.rules if isinstance(rule, All) else (rule,))]
        object.__setattr__(self, "rules", tuple(flat))

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for rule in self.rules:
            yield from _violations(rule, draft)

    def __repr__(self) -> str:
        if len(self.rules) < 2:  # noqa: PLR2004 - an operator needs two sides
            return f"all_of({', '.join(map(repr, self.rules))})"
        return " & ".join(_bracketed(rule, Either) for rule in self.rules)


def all_of(*rules: Rule) -> All:
    """Return `All` of these rules; without any, everything passes."""
    return All(rules)


@dataclass(frozen=True)
class Either(_Composition):
    """Alternative of two rules, written `a | b`. Passes if one of them passes, with the warnings of that one.

    Otherwise yields the violations of both. The second rule is applied only if the first refuses.
    """

    left: Rule
    right: Rule

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        found = list(_violations(self.left, draft))
        if any(map(rejects, found)):
            others = list(_violations(self.right, draft))
            found = [*found, *others] if any(map(rejects, others)) else others
        yield from found

    def __repr__(self) -> str:
        return f"{_bracketed(self.left, All)} | {_bracketed(self.right, All, Either)}"


@dataclass(frozen=True)
class Not(_Composition):
    """Negation of a rule, written `~a`. Passes if the rule refuses the draft.

    Its violation keeps no prefix, because no single turn is wrong. An unfinished draft passes, because its remaining
    turns may still break the rule.
    """

    rule: Rule

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        if draft.finished and not any(map(rejects, _violations(self.rule, draft))):
            message = f"This trajectory satisfies {self.rule!r}, which it must not. Write a different one."
            yield self.violation(0, "satisfied", message, keeps_prefix=False)

    def __repr__(self) -> str:
        return f"~{_bracketed(self.rule, All, Either)}"


@dataclass(frozen=True)
class FirstFailure(_Composition):
    """Several rules of which only the first failure in turn order is reported, as in the paper's Algorithm 1.

    The first failure is the one at the earliest turn, and of several there, that of the earliest rule. All warnings are
    reported too.
    """

    rules: tuple[Rule, ...]

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        first: Violation | None = None
        for rule in self.rules:
            for violation in _violations(rule, draft):
                if not rejects(violation):
                    yield violation
                elif first is None or violation.turn < first.turn:
                    first = violation
        if first is not None:
            yield first

    def __repr__(self) -> str:
        return f"first_failure({', '.join(map(repr, self.rules))})"


def first_failure(*rules: Rule) -> FirstFailure:
    """Return a chain that reports only the first failure in turn order, see `FirstFailure`."""
    return FirstFailure(rules)


@dataclass(frozen=True)
class Warn(_Composition):
    """The same rule with all violations as warnings."""

    rule: Rule

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for violation in _violations(self.rule, draft):
            yield violation.model_copy(update={"severity": Severity.WARN})

    def __repr__(self) -> str:
        return f"warn({self.rule!r})"


def warn(rule: Rule) -> Warn:
    """Return `rule` with all violations as warnings."""
    return Warn(rule)


def verify(draft: Draft | Trajectory, rule: Rule) -> Verdict:
    """Apply `rule` to a draft or a trajectory.

    The verified prefix ends at the earliest turn with a refusing violation, and is empty if one of them keeps no
    prefix. The verdict is deterministic.

    Raises:
        RuleFailed: A rule of another package raised.
        TypeError: `rule` is no rule.
    """
    _require_rules(rule)
    draft = draft.draft() if isinstance(draft, Trajectory) else draft
    violations = tuple(_violations(rule, draft))
    refusing = [violation for violation in violations if rejects(violation)]
    if not refusing:
        verified = len(draft.turns)
    elif all(violation.keeps_prefix for violation in refusing):
        verified = min(len(draft.turns), *(violation.turn for violation in refusing))
    else:
        verified = 0
    return Verdict(accepted=not refusing, violations=violations, verified_turns=verified)


def _bracketed(rule: Rule, *looser: type[BaseRule]) -> str:
    return f"({rule!r})" if isinstance(rule, looser) else repr(rule)


def _name(rule: object) -> str:
    return getattr(rule, "__name__", type(rule).__name__)


def _rule_failure(rule: Rule, error: Exception) -> RuleFailed | None:
    """Return the error that names a user's rule and the place in it; None for a bug of a rule of this package."""
    # The frame behind that of the caller is the rule's; there is none if it could not be called.
    frame = error.__traceback__ and error.__traceback__.tb_next
    outside = frame is not None and not _is_internal(str(frame.tb_frame.f_globals.get("__name__", "")))
    if not outside and _is_internal(str(getattr(rule, "__module__", type(rule).__module__))):
        return None
    place = f" ({frame.tb_frame.f_code.co_filename}:{frame.tb_lineno})" if frame is not None and outside else ""
    return RuleFailed(
        f"the rule {_name(rule)}{place} raised {type(error).__name__}: {error}. A rule yields violations and raises nothing, whatever "
        f"the draft holds: correct it, and the same command goes on"
    )


def _is_internal(module: str) -> bool:
    return module.partition(".")[0] == __name__.partition(".")[0]


class Exchange(NamedTuple):
    """A player turn with the turn after it."""

    turn: int
    """Index of the player turn."""
    player: PlayerTurn
    next_turn: PlayerTurn | DungeonMasterTurn | MalformedTurn | None
    """The turn that follows; None at the end of the draft."""

    @property
    def answer(self) -> DungeonMasterTurn | None:
        """The DungeonMaster's answer, if the next turn is one."""
        return self.next_turn if isinstance(self.next_turn, DungeonMasterTurn) else None

    @property
    def flagged(self) -> bool:
        """True if the DungeonMaster flagged the action."""
        return isinstance(self.next_turn, DungeonMasterTurn) and self.next_turn.flagged

    @property
    def accepted(self) -> bool:
        """True if the DungeonMaster answered without a flag."""
        return isinstance(self.next_turn, DungeonMasterTurn) and not self.next_turn.flagged

    @property
    def transient(self) -> bool:
        """True if the action was right and failed by chance; such an answer has no flag."""
        return isinstance(self.next_turn, DungeonMasterTurn) and self.next_turn.transient and not self.next_turn.flagged


def exchanges(turns: Sequence[PlayerTurn | DungeonMasterTurn | MalformedTurn]) -> Iterator[Exchange]:
    """Yield one exchange per player turn, in order."""
    last = len(turns) - 1
    for index, turn in enumerate(turns):
        if turn.role == "Player":  # a model's `isinstance` is slow to say no
            yield Exchange(index, turn, turns[index + 1] if index < last else None)


def is_complete(draft: Draft) -> bool:
    """Return whether the draft is finished and was read to its end, so an ending and a minimum can be required."""
    return draft.finished and draft.text_error is None
