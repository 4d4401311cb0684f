"""Executor: from an action's text and a state to a ruling.

Execution is deterministic, total and bounded, has no side effects, and never modifies the given state.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import cast
from weakref import WeakValueDictionary

from pydantic import JsonValue

from refinesynth.actions.matching import match_in, refusal
from refinesynth.errors import Inapplicable, RulebookError, error_prefix
from refinesynth.trajectory import MistakeKind, Script
from refinesynth.trajectory.rulebook import MAX_ACTIONS
from refinesynth.trajectory.value import weakly_cached
from refinesynth.world.compiled_action import (
    DONE,
    CompiledAction,
    Ruling,
    Unmet,
    compile_action,
    compile_effects,
    compile_knowledge,
    state_changes,
    with_appeared,
)
from refinesynth.world.effects import Trace, apply_effects
from refinesynth.world.expression import MAX_STATE_BYTES, Expression, compile_expression, is_valid_state
from refinesynth.world.text_template import require_text
from refinesynth.world.visibility import compile_visibility

NOTHING_HAPPENS = "Nothing happens."
"""Default message of a refused action."""


class World:
    """A compiled grounded script. States are arguments and results; a world has no state."""

    def __init__(self, script: Script) -> None:
        """Compile the script's rulebook.

        Raises:
            RulebookError: A part of the rulebook cannot be executed; the message names it and how to fix it.
        """
        self.script = script
        rulebook = script.rulebook
        if rulebook is None:
            raise RulebookError("the script has no rulebook, so its world cannot be executed; write one")
        self.rulebook = rulebook
        if (count := len(script.actions)) > MAX_ACTIONS:
            raise RulebookError(
                f"the script has {count:,} actions; at most {MAX_ACTIONS} can be executed, so leave some out"
            )
        names = [name for spec in script.actions for key in spec.placeholders for name in spec.parameters.get(key, ())]
        self.names = frozenset(names)
        """Allowed values of all parameters: every name that an action can contain."""
        self.visibility = compile_visibility(rulebook.sights, names)
        visible = self.visibility.names_in
        with error_prefix("each step"):
            each_step = compile_effects(rulebook.each_step, frozenset(), visible, "each step")
        self.actions = tuple(compile_action(spec, i, visible, each_step) for i, spec in enumerate(script.actions))
        templates = [spec.name for spec in script.actions]
        if repeated := next((name for name in templates if templates.count(name) > 1), None):
            raise RulebookError(f"there are two actions {repeated!r}; give each its own name")
        self.goal = tuple(_compile_all("goal condition", rulebook.goal))
        self.invariants = tuple(_compile_all("invariant", (invariant.condition for invariant in rulebook.invariants)))
        for number, invariant in enumerate(rulebook.invariants, 1):
            with error_prefix(f"invariant {number}"):
                require_text(invariant.sentence)
        self.knowledge = None if rulebook.knows is None else compile_knowledge(rulebook.knows)

    def step(self, state: JsonValue, action_text: str) -> Ruling:
        """Execute an action and return its ruling. Accepts any text and any state; never raises.

        A text that is no action is a parameter mistake. Otherwise the first unmet requirement decides. A condition
        without an answer counts as unmet and as a logic mistake; so do effects that cannot be applied, make the state
        larger than `MAX_STATE_BYTES`, or break an invariant.
        """
        if not is_valid_state(state):
            problem = f"the state is no JSON, nested too deep or larger than {MAX_STATE_BYTES:,} bytes"
            return self._ruling(state, state, NOTHING_HAPPENS, None, {}, kind=MistakeKind.LOGIC, problem=problem)
        parsed = self.read(action_text)
        if parsed is None:
            text = refusal(self.script.actions, action_text)
            return self._ruling(state, state, text, None, {}, kind=MistakeKind.PARAMETER)
        action, values = parsed
        unmet = action.first_unmet(state, values)
        new, kind, problem = state, None, None
        try:
            if unmet is None:
                applied = apply_effects(action.effects, state, values)
                new = self._complete(state, applied, action, values)
                text = action.observation(state, applied, values).text(applied, values)
            else:
                kind, problem = unmet.requirement.kind, unmet.problem
                text = unmet.requirement.hint.text(state, values)
                new = self.state_after_mistake(state, action, values, unmet)
        except Inapplicable as error:
            text, problem = NOTHING_HAPPENS, str(error)
        if problem is not None:
            kind = MistakeKind.LOGIC
        if not text.strip():
            # An empty file has no content to show, but an observation must not be blank.
            text = DONE if kind is None else NOTHING_HAPPENS
        return self._ruling(state, new, text, action.spec.name, values, kind=kind, problem=problem)

    def state_after(
        self, state: JsonValue, action: CompiledAction, values: Mapping[str, str], trace: Trace | None = None
    ) -> JsonValue:
        """Return the state after an action, without a check of requirements; the same object if nothing changed.

        Raises:
            Inapplicable: An effect cannot be applied in this state, the knowledge record cannot be updated, or an
                invariant would be broken.
        """
        return self._complete(state, apply_effects(action.effects, state, values, trace), action, values)

    def _complete(
        self, state: JsonValue, applied: JsonValue, action: CompiledAction, values: Mapping[str, str]
    ) -> JsonValue:
        new = self.learned(state, applied, action, values)
        self._check_invariants(state, new, action)
        return new

    def learned(self, state: JsonValue, new: JsonValue, action: CompiledAction, values: Mapping[str, str]) -> JsonValue:
        """Return the state `new`, to which the action led from `state`, with the knowledge record updated.

        Raises:
            Inapplicable: The record cannot be updated in this state, or makes it too large.
        """
        if self.knowledge is None:
            return new
        text = action.observation(state, new, values).text(new, values)
        appeared = self._visible_names(state, new)[1]
        updated, previous = self.knowledge.update(new, with_appeared(text, appeared), values), new
        while self.visibility.sights and updated is not previous:
            # A sight may depend on the record, which only grows, and show a text of it in turn.
            appeared = self._visible_names(state, updated)[1]
            updated, previous = self.knowledge.update(updated, with_appeared(text, appeared), values), updated
        if updated is not new and not is_valid_state(updated, finite=True):
            raise Inapplicable(f"what the player reads makes the state larger than {MAX_STATE_BYTES:,} bytes")
        return updated

    def state_after_mistake(
        self,
        state: JsonValue,
        action: CompiledAction,
        values: Mapping[str, str],
        unmet: Unmet,
        trace: Trace | None = None,
    ) -> JsonValue:
        """Return the state after a refused action; the same object if the requirement has no effects or no answer.

        Raises:
            Inapplicable: An effect cannot be applied in this state, an invariant would be broken, or the goal reached.
        """
        if unmet.problem is not None or not unmet.requirement.effects:
            return state
        new = apply_effects(unmet.requirement.effects, state, values, trace)
        self._check_invariants(state, new, action)
        if self.done(new) and not self.done(state):
            raise Inapplicable(
                f"requirement {unmet.index + 1} of {action.spec.name!r}: its effects would reach the goal by a mistake"
            )
        return new

    def _check_invariants(self, state: JsonValue, new: JsonValue, action: CompiledAction) -> None:
        for number, broken in self.broken_invariants(new) if new is not state else ():
            raise Inapplicable(f"{action.spec.name!r} would break invariant {number}: {broken}")

    def broken_invariants(self, state: JsonValue) -> Iterator[tuple[int, str]]:
        """Yield the number, from 1, and the violation of each invariant that does not hold in this state."""
        for number, (condition, invariant) in enumerate(zip(self.invariants, self.rulebook.invariants, strict=True), 1):
            if (answer := condition.answer(state, {})) is not True:
                reason = f"it has no answer: {answer}" if isinstance(answer, str) else "it does not hold"
                yield number, f"{invariant.sentence or repr(invariant.condition)}: {reason}"

    def read(self, action_text: str) -> tuple[CompiledAction, Mapping[str, str]] | None:
        """Return the action of a text and its parameters' values; None for a text that is no action."""
        match = match_in(self.script, action_text)
        if match is None:
            return None
        return next(action for action in self.actions if action.spec is match.action), match.values

    def visible(self, state: JsonValue) -> tuple[str, ...]:
        """Return the visible names in a state: those of the rulebook's sights, or all `names` without sights.

        Without duplicates. With sights, at most `MAX_VISIBLE`, and none in an invalid state. Never raises.
        """
        return self.visibility.names_in(state).names

    def progress(self, state: JsonValue) -> float:
        """Return the share of the goal's conditions that hold; one without an answer does not."""
        return sum(condition.answer(state, {}) is True for condition in self.goal) / len(self.goal)

    def done(self, state: JsonValue) -> bool:
        """Return whether all of the goal's conditions hold."""
        return all(condition.answer(state, {}) is True for condition in self.goal)

    def transient_ruling(self, state: JsonValue, ruling: Ruling) -> Ruling:
        """Return the ruling on an action that fails by chance in this state: the state, progress and visible names stay
        unchanged, and the text of an accepted action is `NOTHING_HAPPENS`.

        The action, its values, the kind of mistake, its text and the problem remain as ruled.
        """
        text = NOTHING_HAPPENS if ruling.kind is None else ruling.text
        return self._ruling(state, state, text, ruling.action, ruling.values, kind=ruling.kind, problem=ruling.problem)

    def _ruling(
        self,
        state: JsonValue,
        new: JsonValue,
        text: str,
        action: str | None,
        values: Mapping[str, str],
        *,
        kind: MistakeKind | None,
        problem: str | None = None,
    ) -> Ruling:
        seen, appeared = self._visible_names(state, new)
        progress = self.progress(new)
        return Ruling(
            state=new,
            kind=kind,
            text=with_appeared(text, appeared),
            action=action,
            values=values,
            done=progress == 1.0,
            progress=progress,
            problem=problem,
            visible=seen,
            appeared=appeared,
            changed=() if new is state else state_changes(state, new),
        )

    def _visible_names(self, state: JsonValue, new: JsonValue) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the visible names after an action, and the new ones among them."""
        before = self.visibility.names_in(state)
        visible = before if new is state else self.visibility.names_in(new)
        return visible.names, tuple(name for name in visible.names if name not in before.name_set)


def _compile_all(label: str, conditions: Iterable[str]) -> Iterator[Expression]:
    for number, condition in enumerate(conditions, 1):
        with error_prefix(f"{label} {number}"):
            yield compile_expression(condition, frozenset())


def replay(world: World, actions: Iterable[str], transient: Container[int] = ()) -> list[Ruling]:
    """Return the rulings on a sequence of actions from the script's environment.

    Args:
        world: World that executes the actions.
        actions: Any texts.
        transient: Indices of actions that failed by chance; they leave the state unchanged, see `World.transient_ruling`.
    """
    # The executor never modifies a state; the environment's type is `dict[str, JsonValue]`.
    state = cast("JsonValue", world.script.environment)
    rulings: list[Ruling] = []
    for index, action in enumerate(actions):
        ruling = world.step(state, action)
        if index in transient:
            ruling = world.transient_ruling(state, ruling)
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
