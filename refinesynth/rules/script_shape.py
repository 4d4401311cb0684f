"""The shape of a script: how many actions, their names and parameters, the environment's size.

Script rules look at `draft.script` alone. What they find is at turn 0 and keeps no prefix: a script is regenerated as a
whole.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, cast

from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass

from refinesynth.actions.wording import folded, quoted
from refinesynth.rules.rule import FIELDS, BaseRule, Violation
from refinesynth.text.jsontext import depth, write_json
from refinesynth.text.printable import control_character
from refinesynth.trajectory import ActionSpec, Draft

MAX_ACTIONS_READ = 100
"""How many actions of a script are looked into. `ActionCount` refuses scripts long before; this bounds the work on
one."""


class ScriptRule(BaseRule):
    """A rule about the script alone."""

    def fault(self, code: str, message: str) -> Violation:
        """A violation of the whole script."""
        return self.violation(0, code, message, keeps_prefix=False)

    def actions(self, draft: Draft) -> tuple[ActionSpec, ...]:
        """The script's actions, the first `MAX_ACTIONS_READ` of them."""
        return draft.script.actions[:MAX_ACTIONS_READ]


@dataclass(frozen=True, config=FIELDS)
class ActionCount(ScriptRule, built_in=True):
    """Neither too few nor too many actions; else code `too_few_actions` or `too_many_actions`."""

    least: Annotated[int, Field(ge=0)] = 3
    most: Annotated[int, Field(ge=1)] = 40

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        count = len(draft.script.actions)
        wanted = f"write {self.least} to {self.most}"
        if count < self.least:
            yield self.fault("too_few_actions", f"The script has {count} available actions; {wanted}.")
        elif count > self.most:
            yield self.fault("too_many_actions", f"The script has {count} available actions; {wanted}.")


@dataclass(frozen=True, config=FIELDS)
class UniqueNames(ScriptRule, built_in=True):
    """No two actions have one name, without regard to case and white space; else code `same_name`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        seen: set[str] = set()
        for action in self.actions(draft):
            name = folded(action.name)
            if name in seen:
                yield self.fault("same_name", f"Two actions are called {quoted(action.name)}. Rename or merge them.")
            seen.add(name)


@dataclass(frozen=True, config=FIELDS)
class PlaceholdersHaveParameters(ScriptRule, built_in=True):
    """Every placeholder has a parameter and the reverse, each once.

    Codes: `placeholder_without_parameter`, `parameter_without_placeholder`, `placeholder_repeated`, `too_many_values`.
    """

    values: Annotated[int, Field(ge=1)] = 500
    """Most allowed values of one parameter: so many are read to the player and tried on the pattern."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            name, placeholders = quoted(action.name), action.placeholders
            if len(set(placeholders)) < len(placeholders):
                message = f"{name} has a placeholder twice. Give each its own name."
                yield self.fault("placeholder_repeated", message)
            for placeholder in sorted(set(placeholders) - set(action.parameters)):
                message = f"In {name}, the placeholder {quoted(placeholder)} has no entry in the action's parameters."
                yield self.fault("placeholder_without_parameter", message)
            for parameter in sorted(set(action.parameters) - set(placeholders)):
                message = f"{name} has a parameter {quoted(parameter)}, but no placeholder in braces of that name."
                yield self.fault("parameter_without_placeholder", message)
            for parameter, values in action.parameters.items():
                if len(values) > self.values:
                    message = (
                        f"In {name}, the parameter {quoted(parameter)} has {len(values):,} allowed values. List at most "
                        f"{self.values}, or none if any value will do."
                    )
                    yield self.fault("too_many_values", message)


@dataclass(frozen=True, config=FIELDS)
class EnvironmentLimits(ScriptRule, built_in=True):
    """The environment says something, and not too much; what the player reads of the script holds no control character.

    Codes: `environment_empty`, `environment_too_deep`, `environment_too_large`, `control_character`.
    """

    characters: Annotated[int, Field(ge=1)] = 50_000
    """Length as JSON without white space, in bytes of UTF-8."""
    depth: Annotated[int, Field(ge=1, le=200)] = 12
    """Nesting levels; an object of scalars has one."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        script = draft.script
        for what, texts in (
            ("introduction", (script.introduction,)),
            ("goal", (script.goal,)),
            ("completion conditions", script.completion_conditions),
            ("available actions", _action_texts(self.actions(draft))),
        ):
            if found := control_character("".join(texts)):
                message = f"The script holds the control character {found} in its {what}. Write it without."
                yield self.fault("control_character", message)
        environment = script.environment
        if not environment:
            yield self.fault(
                "environment_empty", "The environment is empty. Describe places, things and the player's state."
            )
            return
        if depth(cast("JsonValue", environment), limit=self.depth + 1) > self.depth:
            message = f"The environment is nested deeper than {self.depth} levels. Make it flatter."
            yield self.fault("environment_too_deep", message)
            return
        size = len(write_json(environment))
        if size > self.characters:
            message = f"The environment has {size:,} characters as JSON; at most {self.characters:,} are allowed."
            yield self.fault("environment_too_large", message)


def _action_texts(actions: tuple[ActionSpec, ...]) -> Iterator[str]:
    for action in actions:
        yield from (action.name, action.description, *chain.from_iterable(action.parameters.values()))
