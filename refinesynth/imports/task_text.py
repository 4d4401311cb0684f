"""The script behind a conversation: parsed from our task text, or made of another text and the actions.

A parsed script is rendered again and compared, so text that only resembles ours is not mistaken for it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from refinesynth.actions.functions import action_of
from refinesynth.actions.patterns import pattern_of
from refinesynth.chat import (
    INSTRUCTIONS,
    PARALLEL_INSTRUCTIONS,
    SOMEWHERE,
    render_task,
    render_tool_task,
    render_tools,
    tool_instructions_in,
)
from refinesynth.chat.react import FORMER_INSTRUCTIONS
from refinesynth.trajectory import ActionSpec, ParameterType, Script

ANY_ACTION = ActionSpec(name="{action}", description="Whatever the task allows.", pattern="(?s)(.+)")
"""The one action of a script whose record lists none."""

_GOAL, _ACTIONS, _VALUES = "\n\nGoal: ", "\n\nAvailable actions:\n", " is one of: "
_SHARED = re.compile(r"\n\n(?=\{[^{}]*\} is one of: )")
MOST_ACTIONS = 256
"""Most actions of a script; each turn is compared with all."""


class Task(NamedTuple):
    """Script of a conversation with its opening observation."""

    script: Script
    opening: str | None
    """Observation before the first turn."""


def plain_script(introduction: str, goal: str, actions: Iterable[ActionSpec] = (ANY_ACTION,)) -> Script:
    """A script without environment and completion conditions."""
    return Script(
        introduction="" if introduction == SOMEWHERE else introduction,
        environment={},
        goal=goal,
        completion_conditions=(),
        actions=tuple(actions),
    )


def read_task(text: str) -> Task | None:
    """Inverse of `render_task`, also of earlier versions', with or without an opening observation; None for any other
    text.
    """
    text = text.replace(FORMER_INSTRUCTIONS, INSTRUCTIONS)
    parts = _parts(text, INSTRUCTIONS)
    if parts is None:
        return None
    place, rest, opening = parts
    goal, found, listed = rest.rpartition(_ACTIONS)
    if not found or not goal or listed.count("\n- ") >= MOST_ACTIONS:
        return None
    script = plain_script(place, goal, _actions(listed))
    written = render_task(script)
    return Task(script, opening) if text == _with_opening(written, opening) else None


def read_tool_task(text: str, tools: Sequence[Mapping[str, Any]]) -> Task | None:
    """The same for `render_tool_task` and `render_tools`."""
    instructions = tool_instructions_in(text)
    parts = _parts(text, instructions) if instructions else None
    if parts is None or not parts[1] or len(tools) > MOST_ACTIONS or None in (actions := [*map(action_of, tools)]):
        return None
    place, goal, opening = parts
    script = plain_script(place, goal, filter(None, actions))
    written = render_tool_task(script, parallel=instructions == PARALLEL_INSTRUCTIONS)
    same = text == _with_opening(written, opening) and render_tools(script) == list(tools)
    return Task(script, opening) if same else None


def _parts(text: str, instructions: str) -> tuple[str, str, str | None] | None:
    """Introduction, text after `Goal:`, and the opening observation."""
    head, found, after = text.partition(f"\n\n{instructions}")
    place, goal, rest = head.partition(_GOAL)
    if not found or not goal or (after and not after.startswith("\n\n")):
        return None
    return place, rest, after[2:] if after else None


def _with_opening(task: str, opening: str | None) -> str:
    return task if opening is None else f"{task}\n\n{opening}"


def _actions(listed: str) -> list[ActionSpec]:
    """Inverse of the lines of `task_with_actions`."""
    own, *further = _SHARED.split(listed, maxsplit=1)
    shared = _choices(further[0].split("\n")) if further else {}
    return [_action(line, shared) for line in own.removeprefix("- ").split("\n- ") if line]


def _action(line: str, shared: Mapping[str, tuple[str, ...]]) -> ActionSpec:
    said, found, ends = line.rpartition(" ({")
    stated = _stated(f"{{{ends[:-1]}") if found and ends.endswith(")") else None
    own, types = stated or ({}, {})
    name, _, description = (line if stated is None else said).partition(": ")
    action = ActionSpec(name=name or line, description=description, pattern=pattern_of(name), types=types)
    parameters = own | {each: shared[each] for each in shared if each in action.placeholders and each not in own}
    return action.model_copy(update={"parameters": parameters})


def _stated(text: str) -> tuple[dict[str, tuple[str, ...]], dict[str, ParameterType]] | None:
    """Values and types of placeholders as `render_action` writes them; None if the text says something else."""
    values: dict[str, tuple[str, ...]] = {}
    types: dict[str, ParameterType] = {}
    for each in text.split("; {"):
        place, _, words = each.removeprefix("{").partition("} is ")
        if words.startswith("one of: "):
            values[place] = tuple(words.removeprefix("one of: ").split(", "))
        elif kind := ParameterType.from_words(words):
            types[place] = kind
        else:
            return None
    return values, types


def _choices(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in lines:
        name, _, values = line.partition(f"}}{_VALUES}")
        found[name.removeprefix("{")] = tuple(values.split(", "))
    return found


def properties_of(function: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Parameters of a function with their allowed texts, empty for any."""
    return {name: _texts(each.get("enum")) for name, each in _schemas(function).items()}


def _schemas(function: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    schema = _object(function.get("parameters"))
    return {name: _object(each) for name, each in _object(schema.get("properties")).items()}


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _texts(values: object) -> tuple[str, ...]:
    every = cast("list[object]", values) if isinstance(values, list) else []
    texts = tuple(one for one in every if isinstance(one, str))
    return texts if len(texts) == len(every) else ()
