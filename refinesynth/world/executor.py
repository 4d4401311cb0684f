"""Executor: from an action's text and a state to a ruling.

Execution is deterministic, total and bounded, has no side effects, and never modifies the given state.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast
from weakref import WeakValueDictionary

from pydantic import JsonValue

from refinesynth.actions.matching import match_in, refusal
from refinesynth.trajectory import MistakeKind, Script
from refinesynth.trajectory.rulebook import MAX_ACTIONS
from refinesynth.trajectory.weak_cache import weakly_cached
from refinesynth.world.compiled_action import (
    DONE,
    CompiledAction,
    CompiledInvariant,
    CompiledKnowledge,
    Unmet,
    compile_action,
    compile_effects,
    compile_invariant,
    compile_knowledge,
    where,
)
from refinesynth.world.effects import Notice, apply_effects
from refinesynth.world.expression import MAX_STATE_BYTES, Expression, compile_expression, fits
from refinesynth.world.random_starts import check_draws
from refinesynth.world.rulebook_errors import Inapplicable, RulebookError
from refinesynth.world.ruling import Ruling, state_changes, with_appeared
from refinesynth.world.visibility import Visibility, compile_visibility

NOTHING_HAPPENS = "Nothing happens."
"""Default message of a refused action."""

_NAMELESS: Mapping[str, str] = {}


@dataclass(frozen=True, eq=False)
class World:
    """A compiled grounded script. States are arguments and results; a world has no state.

    Raises:
        RulebookError: A part of the rulebook cannot be executed; the message names it and how to fix it.
    """

    script: Script
    actions: tuple[CompiledAction, ...] = field(init=False, repr=False)
    goal: tuple[Expression, ...] = field(init=False, repr=False)
    visibility: Visibility = field(init=False, repr=False)
    invariants: tuple[CompiledInvariant, ...] = field(init=False, repr=False)
    knowledge: CompiledKnowledge | None = field(init=False, repr=False)
    names: frozenset[str] = field(init=False, repr=False)
    """Allowed values of all parameters: every name that an action can contain."""

    def __post_init__(self) -> None:
        rulebook = self.script.rulebook
        if rulebook is None:
            raise RulebookError("the script has no rulebook, so its world cannot be executed; write one")
        if (count := len(self.script.actions)) > MAX_ACTIONS:
            raise RulebookError(
                f"the script has {count:,} actions; at most {MAX_ACTIONS} can be executed, so leave some out"
            )
        check_draws(self.script)
        names = [
            value
            for spec in self.script.actions
            for placeholder in spec.placeholders
            for value in spec.parameters.get(placeholder, ())
        ]
        visibility = compile_visibility(rulebook.sights, names)
        with where("each step"):
            each_step = compile_effects(rulebook.each_step, frozenset(), visibility.names_in, "each step")
        actions = tuple(
            compile_action(spec, at, visibility.names_in, each_step) for at, spec in enumerate(self.script.actions)
        )
        templates = [action.spec.name for action in actions]
        if repeated := next((name for name in templates if templates.count(name) > 1), None):
            raise RulebookError(f"there are two actions {repeated!r}; give each its own name")
        goal: list[Expression] = []
        for at, condition in enumerate(rulebook.goal):
            with where(f"goal condition {at + 1}"):
                goal.append(compile_expression(condition, frozenset()))
        invariants = tuple(compile_invariant(invariant, at) for at, invariant in enumerate(rulebook.invariants))
        object.__setattr__(self, "actions", actions)
        object.__setattr__(self, "goal", tuple(goal))
        object.__setattr__(self, "visibility", visibility)
        object.__setattr__(self, "invariants", invariants)
        object.__setattr__(self, "knowledge", None if rulebook.knows is None else compile_knowledge(rulebook.knows))
        object.__setattr__(self, "names", frozenset(names))

    def step(self, state: JsonValue, action_text: str) -> Ruling:
        """Execute an action and return its ruling. Accepts any text and any state; never raises.

        A text that is no action is a parameter mistake. Otherwise the first unmet requirement decides. A condition
        without an answer counts as unmet and as a logic mistake; so do effects that cannot be applied, make the state
        larger than `MAX_STATE_BYTES`, or break an invariant.
        """
        if not fits(state):
            problem = f"the state is no JSON, nested too deep or larger than {MAX_STATE_BYTES:,} bytes"
            return self._ruling(state, state, NOTHING_HAPPENS, kind=MistakeKind.LOGIC, problem=problem)
        read = self.read(action_text)
        if read is None:
            text = refusal(self.script.actions, action_text)
            return self._ruling(state, state, text, kind=MistakeKind.PARAMETER)
        action, values = read
        unmet = action.unmet(state, values)
        new, kind, problem = state, None, None
        try:
            if unmet is None:
                new, text = self._carried_out(state, action, values)
            else:
                kind, problem = unmet.requirement.kind, unmet.problem
                text = unmet.requirement.hint.text(state, values)
                new = self.after_mistake(state, action, values, unmet)
        except Inapplicable as error:
            text, problem = NOTHING_HAPPENS, str(error)
        if problem is not None:
            kind = MistakeKind.LOGIC
        if not text.strip():
            # An empty file has no content to show, but an observation must not be blank.
            text = DONE if kind is None else NOTHING_HAPPENS
        return self._ruling(state, new, text, read, kind=kind, problem=problem)

    def after(self, state: JsonValue, action: CompiledAction, values: Mapping[str, str]) -> JsonValue:
        """Return the state after an action, without a check of requirements; the same object if nothing changed.

        Raises:
            Inapplicable: An effect cannot be applied in this state, the knowledge record cannot be updated, or an
                invariant would be broken.
        """
        return self._carried_out(state, action, values, told=False)[0]

    def _carried_out(
        self, state: JsonValue, action: CompiledAction, values: Mapping[str, str], *, told: bool = True
    ) -> tuple[JsonValue, str]:
        """Return the state after an action, with the updated knowledge record, and the observation, filled from the
        state before that update. The observation is empty if it is neither requested (`told`) nor recorded.
        """
        new, text = action.applied(state, values), ""
        if told or self.knowledge is not None:
            text = action.observation(state, new, values).text(new, values)
        new = self._read(state, new, text, values)
        self._check_invariants(state, new, action)
        return new, text

    def learned(self, state: JsonValue, new: JsonValue, action: CompiledAction, values: Mapping[str, str]) -> JsonValue:
        """Return the state `new`, to which the action led from `state`, with the knowledge record updated.

        Raises:
            Inapplicable: The record cannot be updated in this state, or makes it too large.
        """
        if self.knowledge is None:
            return new
        return self._read(state, new, action.observation(state, new, values).text(new, values), values)

    def _read(self, state: JsonValue, new: JsonValue, text: str, values: Mapping[str, str]) -> JsonValue:
        if self.knowledge is None:
            return new
        _, appeared = self._seen(state, new)
        after = self.knowledge.after(new, with_appeared(text, appeared), values)
        if after is not new and not fits(after):
            raise Inapplicable(f"what the player reads makes the state larger than {MAX_STATE_BYTES:,} bytes")
        return after

    def after_mistake(
        self,
        state: JsonValue,
        action: CompiledAction,
        values: Mapping[str, str],
        unmet: Unmet,
        notice: Notice | None = None,
    ) -> JsonValue:
        """Return the state after a refused action; the same object if the requirement has no effects or no answer.

        Raises:
            Inapplicable: An effect cannot be applied in this state, an invariant would be broken, or the goal reached.
        """
        if unmet.problem is not None or not unmet.requirement.effects:
            return state
        new = apply_effects(unmet.requirement.effects, state, values, notice)
        self._check_invariants(state, new, action)
        if self.done(new) and not self.done(state):
            raise Inapplicable(
                f"requirement {unmet.at + 1} of {action.spec.name!r}: its effects would reach the goal by a mistake"
            )
        return new

    def _check_invariants(self, state: JsonValue, new: JsonValue, action: CompiledAction) -> None:
        for invariant in self.invariants if new is not state else ():
            invariant.check(new, action.spec.name)

    def read(self, action_text: str) -> tuple[CompiledAction, Mapping[str, str]] | None:
        """Return the action of a text and its parameters' values; None for a text that is no action."""
        match = match_in(self.script, action_text)
        if match is None:
            return None
        return next(action for action in self.actions if action.spec is match.action), match.values

    def visible(self, state: JsonValue) -> tuple[str, ...]:
        """Return the visible names in a state: those of the rulebook's sights, or all `names` without sights.

        Without duplicates. With sights, at most `MAX_SEEN`, and none in an invalid state. Never raises.
        """
        return self.visibility.names_in(state).names

    def progress(self, state: JsonValue) -> float:
        """Return the share of the goal's conditions that hold; one without an answer does not."""
        return sum(condition.answer(state, {}) is True for condition in self.goal) / len(self.goal)

    def done(self, state: JsonValue) -> bool:
        """Return whether all of the goal's conditions hold."""
        return all(condition.answer(state, {}) is True for condition in self.goal)

    def withheld(self, state: JsonValue, ruling: Ruling) -> Ruling:
        """Return the ruling on an action that fails by chance in this state: the state, progress and visible names stay
        unchanged.

        The action, its values, its text, the kind of mistake and the problem remain as ruled.
        """
        progress = self.progress(state)
        return replace(
            ruling,
            state=state,
            done=progress == 1.0,
            progress=progress,
            visible=self.visible(state),
            appeared=(),
            changed=(),
        )

    def _ruling(
        self,
        state: JsonValue,
        new: JsonValue,
        text: str,
        read: tuple[CompiledAction, Mapping[str, str]] | None = None,
        *,
        kind: MistakeKind | None,
        problem: str | None = None,
    ) -> Ruling:
        name, values = (read[0].spec.name, read[1]) if read else (None, _NAMELESS)
        seen, appeared = self._seen(state, new)
        progress = self.progress(new)
        return Ruling(
            state=new,
            kind=kind,
            text=with_appeared(text, appeared),
            action=name,
            values=values,
            done=progress == 1.0,
            progress=progress,
            problem=problem,
            visible=seen,
            appeared=appeared,
            changed=() if new is state else state_changes(state, new),
        )

    def _seen(self, state: JsonValue, new: JsonValue) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the visible names after an action, and the new ones among them."""
        before = self.visibility.names_in(state)
        seen = before if new is state else self.visibility.names_in(new)
        return seen.names, tuple(name for name in seen.names if name not in before.known)


def replay(world: World, actions: Iterable[str], transient: Container[int] = ()) -> list[Ruling]:
    """Return the rulings on a sequence of actions from the script's environment.

    Args:
        world: World that executes the actions.
        actions: Any texts.
        transient: Indices of actions that failed by chance; they leave the state unchanged, see `World.withheld`.
    """
    # The executor never modifies a state; the environment's type is `dict[str, JsonValue]`.
    state = cast("JsonValue", world.script.environment)
    rulings: list[Ruling] = []
    for at, action in enumerate(actions):
        ruling = world.step(state, action)
        if at in transient:
            ruling = world.withheld(state, ruling)
        rulings.append(ruling)
        state = ruling.state
    return rulings


def world_of(script: Script) -> World:
    """Return the world of a script, compiled once for all equal scripts and freed with the last of them.

    Raises:
        RulebookError: The rulebook cannot be executed.
    """
    world = world_or_problem(script)
    if isinstance(world, str):
        raise RulebookError(world)
    return world


@weakly_cached
def world_or_problem(script: Script) -> World | str:
    """Return the world of a script, or the reason why it cannot be executed; cached per object."""
    digest = script.digest
    world = _by_digest.get(digest)
    if world is None:
        try:
            # A copy with shared parts: a world with a reference to the script would keep it alive and so, through the
            # cache, itself.
            world = _by_digest[digest] = World(script.model_copy())
        except RulebookError as error:
            return str(error)
    return world


_by_digest: WeakValueDictionary[str, World] = WeakValueDictionary()
