"""Rules about an executable world, in stages; each message says how to fix the rulebook.

All but `GoalFitsConditions` and `ValuesExist` use the result of `world.check_solvability`, which is bounded by a number
of states and cached. After a failed stage, the later ones report nothing.
"""

import re
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Annotated

from pydantic import Field, JsonValue

from refinesynth.errors import ConfigurationError
from refinesynth.rules.rule import BuiltInRule, Violation
from refinesynth.rules.script_shape import ScriptRule
from refinesynth.text.formatting import folded, listed, quoted
from refinesynth.trajectory import ActionSpec, Draft, Effect, Script
from refinesynth.world import check_solvability
from refinesynth.world.effects import value_expressions

_TYPED = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?|[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{1,2}:[0-9]{2}")
"""A value that need not occur in the state: a number, a date or a time."""
_LITERAL = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'")
"""A text literal in a CEL expression."""


def _uses_placeholder(action: ActionSpec, placeholder: str) -> bool:
    """Return whether a path or a condition of the action uses the placeholder."""
    slot, name = f"{{{placeholder}}}", re.compile(rf"\b{re.escape(placeholder)}\b")
    effects = _effects(action)
    paths = (path or "" for effect in effects for path in (effect.path, effect.from_path, effect.each))
    conditions = (*(requirement.condition for requirement in action.requires), *(one.when or "" for one in effects))
    return any(slot in path for path in paths) or any(name.search(_LITERAL.sub(" ", text)) for text in conditions)


def _effects(action: ActionSpec) -> tuple[Effect, ...]:
    return (*action.effects, *(effect for requirement in action.requires for effect in requirement.effects))


def _literals(script: Script) -> Iterator[str]:
    """Yield the literals in conditions, steps of paths, values of effects, and texts of the knowledge record."""
    expressions = [requirement.condition for action in script.actions for requirement in action.requires]
    effects = [effect for action in script.actions for effect in _effects(action)]
    if script.rulebook:
        expressions += script.rulebook.goal
        effects += script.rulebook.each_step
        yield from script.rulebook.knows.texts if script.rulebook.knows else ()
    for effect in effects:
        yield from f"{effect.path}/{effect.from_path or ''}".split("/")
        yield from _texts(effect.value)
        expressions += (effect.when or "", *value_expressions(effect.value))
    for expression in expressions:
        yield from (double_quoted or single_quoted for double_quoted, single_quoted in _LITERAL.findall(expression))


def _texts(value: JsonValue) -> Iterator[str]:
    """Yield every key, text and number in a value, at any depth."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield from item
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, str):
            yield item
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield str(item)


_MAX = 5
"""Maximum number of reported faults of a kind."""


class Stage(ScriptRule):
    """Base class of a stage; `faults` is called if all earlier stages passed."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        earlier = takewhile(lambda stage: type(stage) is not type(self), STAGES)
        if all(next(stage.faults(draft.script), None) is None for stage in earlier):
            for code, message in self.faults(draft.script):
                yield self.fault(code, message)

    def faults(self, script: Script) -> Iterator[tuple[str, str]]:
        """Yield code and message of each fault of this stage."""
        raise TypeError(f"{type(self).__name__} defines no faults to look for in a script with goal {script.goal!r}")


class RulebookCompiles(BuiltInRule, Stage):
    """The script has a rulebook, and every condition, path and template in it can be read; else code `no_rulebook` or
    `does_not_compile`.
    """

    def faults(self, script: Script) -> Iterator[tuple[str, str]]:
        if script.rulebook is None:
            yield "no_rulebook", "The script has no rulebook. Write one: goal, sights, invariants and a solution."
        elif (problem := check_solvability(script).problem) is not None:
            yield "does_not_compile", f"The rulebook cannot be read: {problem}"


class GoalFitsConditions(BuiltInRule, Stage):
    """The rulebook's goal has one condition for each completion condition; else code `goal_does_not_fit`."""

    def faults(self, script: Script) -> Iterator[tuple[str, str]]:
        goal, conditions = len(script.rulebook.goal) if script.rulebook else 0, len(script.completion_conditions)
        if goal != conditions:
            message = (
                f"The rulebook's goal has {goal} conditions and the script {conditions} completion conditions. Write one expression "
                "in the goal for each completion condition, in the same order."
            )
            yield "goal_does_not_fit", message


class ValuesExist(BuiltInRule, Stage):
    """At least one value of each placeholder of an action exists in the world; else code `values_unknown`.

    Names that exist nowhere are allowed as distractors beside existing ones. Existing values are the environment's
    keys, texts and numbers, and the rulebook's own literals; numbers, dates, times and values of other types
    than text always exist. Applies to placeholders in a path or a condition; values that only occur in texts need not exist.
    """

    def faults(self, script: Script) -> Iterator[tuple[str, str]]:
        return islice(self._unknown(script), _MAX)

    def _unknown(self, script: Script) -> Iterator[tuple[str, str]]:
        known = frozenset(map(folded, (*_texts(script.environment), *_literals(script))))
        for action in script.actions:
            for placeholder, values in action.parameters.items():
                typed = action.type_of(placeholder).type != "string"
                exists = typed or any(folded(value) in known or _TYPED.fullmatch(value) for value in values)
                if values and not exists and _uses_placeholder(action, placeholder):
                    message = (
                        f"In {quoted(action.name)}, no value of {{{placeholder}}} exists in the environment: "
                        f"{listed(values, limit=200)}. Use the names that the environment uses, spelled the same."
                    )
                    yield "values_unknown", message


class RulebookRuns(BuiltInRule, Stage):
    """In all states of the solvability check, paths exist or are created, conditions have answers and invariants hold;
    else code `does_not_run`.
    """

    def faults(self, script: Script) -> Iterator[tuple[str, str]]:
        for fault in check_solvability(script).faults[:_MAX]:
            yield "does_not_run", f"The rulebook does not run: {fault}"


class NotYetDone(BuiltInRule, Stage):
    """The goal is not reached at the beginning; else code `already_done`."""

    def faults(self, script: Script) -> Iterator[tuple[str, str]]:
        if check_solvability(script).met_at_start:
            message = (
                "All conditions of the goal hold in the environment as it is. Change the environment or the goal, so that "
                "something has to be done."
            )
            yield "already_done", message


class SolutionWorks(BuiltInRule, Stage):
    """The rulebook's solution, when executed, reaches the goal; else code `solution_fails`. A missing solution is
    accepted here.
    """

    def faults(self, script: Script) -> Iterator[tuple[str, str]]:
        written = script.rulebook is not None and script.rulebook.solution
        if written and (problem := check_solvability(script).solution_problem) is not None:
            yield "solution_fails", f"The solution does not work: {problem}"


class Solvable(BuiltInRule, Stage):
    """A way to the goal is known, by the rulebook's solution or a bounded search; else code `unsolvable`."""

    def faults(self, script: Script) -> Iterator[tuple[str, str]]:
        result = check_solvability(script)
        if result.shortest is None:
            reason = (
                "No sequence of actions reaches the goal: everything that can come about was looked at"
                if result.exhausted
                else "The rulebook has no solution, and a search found no way to the goal"
            )
            message = f"{reason}. Mend the requirements, effects or goal, and write a solution, action by action."
            yield "unsolvable", message


class ActionsUsable(BuiltInRule, Stage):
    """No action is provably never possible; else code `never_usable`."""

    def faults(self, script: Script) -> Iterator[tuple[str, str]]:
        if unusable := check_solvability(script).unusable:
            message = f"Never possible, wherever one goes and whatever one does: {listed(unusable, limit=300)}."
            yield "never_usable", f"{message} Mend what they require, or leave them out."


class DifficultyBand(BuiltInRule, Stage):
    """The shortest known solution has a length in this range; else code `too_easy` or `too_hard`.

    Raises:
        ConfigurationError: On construction, `least` is more than `most`.
    """

    least: Annotated[int, Field(ge=1)] = 2
    most: Annotated[int, Field(ge=1)] = 40

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ConfigurationError(
                f"no solution has at least {self.least} and at most {self.most} actions; swap them"
            )

    def faults(self, script: Script) -> Iterator[tuple[str, str]]:
        shortest = check_solvability(script).shortest
        if shortest is None:
            return
        expected = f"{self.least} to {self.most}" if self.least < self.most else f"{self.least}"
        count = f"{len(shortest)} action{'' if len(shortest) == 1 else 's'}"
        message = f"The goal can be reached in {count}, by {listed(shortest, limit=300)}; wanted are {expected}."
        if len(shortest) < self.least:
            yield "too_easy", f"{message} Put more that has to be done between the beginning and the goal."
        elif len(shortest) > self.most:
            yield "too_hard", f"{message} Ask for less, or begin nearer to the goal."


STAGES: tuple[Stage, ...] = (
    RulebookCompiles(),
    GoalFitsConditions(),
    ValuesExist(),
    RulebookRuns(),
    NotYetDone(),
    SolutionWorks(),
    Solvable(),
    ActionsUsable(),
)
"""Stages in order; `DifficultyBand` comes after them."""
