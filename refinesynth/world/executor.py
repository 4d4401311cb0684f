"""The executor: an action's text and a state in, a ruling out.

Execution is deterministic, total and bounded, has no side effects, and never changes the state that it is given.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import JsonValue

from refinesynth.actions.matching import action_form, explain_mismatch, match_action
from refinesynth.trajectory import ActionSpec, MistakeKind, Script
from refinesynth.world.effects import CompiledEffect, compile_effect
from refinesynth.world.errors import Inapplicable, RulebookError
from refinesynth.world.expression import MAX_BYTES, Expression, compile_expression, encode
from refinesynth.world.syntax import RESERVED
from refinesynth.world.template import Template, parse_template

NOTHING_HAPPENS = "Nothing happens."
"""What a player is told when an action cannot be carried out and nobody has written why."""


DONE = "Done."
"""What a player is told of an action that was carried out where nobody has written what it reveals."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What comes of an action."""

    state: JsonValue
    """The state after it; the very object that was given if nothing changed."""
    kind: MistakeKind | None
    """What the player got wrong; None if the action was carried out."""
    text: str
    """The filled observation, or the filled hint of what was not met."""
    action: str | None
    """Name template of the action that the text is, if it is one."""
    values: Mapping[str, str]
    """Its parameters, as the script spells them."""
    done: bool
    """Whether the goal is reached."""
    progress: float
    """Share of the goal's conditions that hold, 0 to 1; 1 exactly if done."""
    problem: str | None = None
    """What the rulebook or state itself is at fault for, in words to its author: a condition without an answer, an effect that
    cannot be applied. Such an action counts as a logic mistake and changes nothing."""


@dataclass(frozen=True, slots=True)
class CompiledRequirement:
    """One requirement whose condition is compiled."""

    condition: Expression
    kind: MistakeKind
    hint: Template


@dataclass(frozen=True, slots=True)
class Unmet:
    """The first requirement that does not hold."""

    at: int
    """Its index."""
    requirement: CompiledRequirement
    problem: str | None
    """Why it has no answer, if it has none."""


@dataclass(frozen=True, slots=True)
class CompiledAction:
    """One action of a rulebook, made ready to run."""

    spec: ActionSpec
    requires: tuple[CompiledRequirement, ...]
    effects: tuple[CompiledEffect, ...]
    reveals: Template

    def unmet(self, state: JsonValue, values: Mapping[str, str]) -> Unmet | None:
        """The first requirement that does not hold."""
        for at, requirement in enumerate(self.requires):
            answer = requirement.condition.answer(state, values)
            if answer is not True:
                fault = f"requirement {at + 1} of {self.spec.name!r}: {answer}" if isinstance(answer, str) else None
                return Unmet(at, requirement, fault)
        return None

    def applied(self, state: JsonValue, values: Mapping[str, str]) -> JsonValue:
        """The state after all effects, whatever is required; the very same object if nothing changed.

        Raises:
            Inapplicable: An effect has no meaning in this state.
        """
        for at, effect in enumerate(self.effects):
            try:
                new = effect.apply(state, values)
            except Inapplicable as error:
                raise Inapplicable(f"effect {at + 1} of {self.spec.name!r} cannot be applied: {error}") from None
            # After each effect, since values copied again and again would grow beyond all bounds within one action.
            if new is not state and not _fits(new):
                limit = f"{MAX_BYTES:,} bytes"
                raise Inapplicable(
                    f"effect {at + 1} of {self.spec.name!r} makes the state too deep or larger than {limit}"
                )
            state = new
        return state


@dataclass(frozen=True, eq=False)
class World:
    """A grounded script made ready to run; states are passed in and out, a world holds none.

    Raises:
        RulebookError: Something in the rulebook cannot be run; the message says where and what to mend.
    """

    script: Script
    actions: tuple[CompiledAction, ...] = field(init=False, repr=False)
    goal: tuple[Expression, ...] = field(init=False, repr=False)
    _specs: tuple[ActionSpec, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.script.rulebook is None:
            raise RulebookError("the script has no rulebook, so its world cannot be executed; write one")
        actions = tuple(_compile_action(spec, at) for at, spec in enumerate(self.script.actions))
        names = [action.spec.name for action in actions]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise RulebookError(f"there are two actions {repeated!r}; give each its own name")
        goal: list[Expression] = []
        for at, condition in enumerate(self.script.rulebook.goal):
            with _where(f"goal condition {at + 1}"):
                goal.append(compile_expression(condition, frozenset()))
        object.__setattr__(self, "actions", actions)
        object.__setattr__(self, "goal", tuple(goal))
        object.__setattr__(self, "_specs", tuple(action.spec for action in actions))

    def step(self, state: JsonValue, action_text: str) -> Ruling:
        """Carry out an action, or say what is wrong with it. Any text and any state give a ruling; nothing is raised.

        A text that is no action is a parameter mistake. Else the first unmet requirement decides; a condition without
        an answer counts as unmet and as a logic mistake, and so do effects that cannot be applied or would make the state
        larger than `MAX_BYTES`.
        """
        if not _fits(state):
            problem = f"the state is no JSON, nested too deep or larger than {MAX_BYTES:,} bytes"
            return self._ruling(state, MistakeKind.LOGIC, NOTHING_HAPPENS, problem=problem)
        read = self.read(action_text)
        if read is None:
            return self._ruling(state, MistakeKind.PARAMETER, explain_mismatch(self._specs, action_text).message)
        action, values = read
        unmet = action.unmet(state, values)
        if unmet is not None:
            kind = MistakeKind.LOGIC if unmet.problem else unmet.requirement.kind
            return self._ruling(state, kind, unmet.requirement.hint.text(state, values), read, unmet.problem)
        try:
            new = action.applied(state, values)
        except Inapplicable as error:
            return self._ruling(state, MistakeKind.LOGIC, NOTHING_HAPPENS, read, str(error))
        return self._ruling(new, None, action.reveals.text(new, values), read)

    def read(self, action_text: str) -> tuple[CompiledAction, Mapping[str, str]] | None:
        """The action that a text is, and its parameters' values; None if it is none."""
        match = match_action(self._specs, action_text)
        if match is None:
            return None
        return next(action for action in self.actions if action.spec is match.action), match.values

    def progress(self, state: JsonValue) -> float:
        """Share of the goal's conditions that hold; one without an answer does not."""
        return sum(condition.answer(state, {}) is True for condition in self.goal) / len(self.goal)

    def done(self, state: JsonValue) -> bool:
        """Whether all of the goal's conditions hold."""
        return all(condition.answer(state, {}) is True for condition in self.goal)

    def _ruling(
        self,
        state: JsonValue,
        kind: MistakeKind | None,
        text: str,
        read: tuple[CompiledAction, Mapping[str, str]] | None = None,
        problem: str | None = None,
    ) -> Ruling:
        name, values = (read[0].spec.name, read[1]) if read else (None, dict[str, str]())
        progress = self.progress(state)
        return Ruling(state, kind, text, name, values, done=progress == 1.0, progress=progress, problem=problem)


def _fits(state: JsonValue) -> bool:
    encoded = encode(state)
    return encoded is not None and len(encoded) <= MAX_BYTES


@contextmanager
def _where(place: str) -> Generator[None]:
    """Say in which part of the rulebook an error is."""
    try:
        yield
    except RulebookError as error:
        raise RulebookError(f"{place}: {error}") from None


def _compile_action(spec: ActionSpec, at: int) -> CompiledAction:
    with _where(f"action {at + 1}, {spec.name[:80]!r}"):
        if problem := action_form(spec).problem:
            raise RulebookError(problem)
        names = frozenset(spec.placeholders)
        if taken := names & RESERVED:
            raise RulebookError(f"no parameter can be called {min(taken)!r}, which has a meaning of its own; rename it")
        requires: list[CompiledRequirement] = []
        for number, requirement in enumerate(spec.requires, 1):
            with _where(f"requirement {number}"):
                condition = compile_expression(requirement.condition, names)
                requires.append(
                    CompiledRequirement(condition, requirement.kind, parse_template(requirement.hint, names))
                )
        effects: list[CompiledEffect] = []
        for number, effect in enumerate(spec.effects, 1):
            with _where(f"effect {number}"):
                effects.append(compile_effect(effect, names))
        with _where("reveals"):
            reveals = parse_template(spec.reveals or DONE, names)
    return CompiledAction(spec, tuple(requires), tuple(effects), reveals)
