"""The chat of a player that acts by calling functions, as the text that the rehearsal plays from."""

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

import orjson
from pydantic import ValidationError

from refinesynth.actions.calls import Call, text_of
from refinesynth.chat import TOOL_INSTRUCTIONS, render_player, render_task
from refinesynth.rehearsal.memory import opening
from refinesynth.rehearsal.scene import label_in
from refinesynth.rehearsal.wire import Request
from refinesynth.trajectory import ActionSpec, PlayerTurn, Script

_TASK = re.compile(r"(?s)(?P<introduction>.*)\n\nGoal: (?P<goal>.*)")


class Seen(NamedTuple):
    """What a player was told and did, in text."""

    script: Script
    """Of which the functions are; of strangers as far as the functions say it."""
    task: str
    chat: list[tuple[str, str]]
    """Role and text of each message since."""


def read(request: Request) -> Seen:
    """The chat of a request for which `plays_by_calls` holds."""
    at, told = next((at, text) for at, (_, text) in enumerate(request.messages) if TOOL_INSTRUCTIONS in text)
    before, _, after = told.partition(TOOL_INSTRUCTIONS)
    script = _script_of(request, before.strip())
    called = {number: Call(name, _arguments(given)) for number, name, given in request.calls}
    chat: list[tuple[str, str]] = []
    for number, (role, text) in enumerate(request.messages[at + 1 :], start=at + 1):
        if (call := called.get(number)) is not None:
            text = render_player(PlayerTurn(thought=text, action=text_of(script, call)))  # noqa: PLW2901
        chat.append(("assistant" if role == "assistant" else "user", text))
    return Seen(script, render_task(script) + after, chat)


def _script_of(request: Request, told: str) -> Script:
    """The script of the scene that the task names, if its functions are those; else one made of the functions."""
    label = label_in(told)
    position = None if label is None else opening(label)
    listed = {str(tool.get("description")) for tool in request.tools}
    if position is not None and all(any(one.startswith(name) for one in listed) for name in position.scene.verbs):
        return position.scene.script.model_copy(update=_told(told))
    actions = [_action(tool) for tool in request.tools]
    of_tools = Script(
        goal="?", environment={}, completion_conditions=(), actions=tuple(one for one in actions if one is not None)
    )
    return of_tools.model_copy(update=_told(told))


def _told(told: str) -> dict[str, str]:
    found = _TASK.fullmatch(told)
    introduction, goal = (told, "") if found is None else found.group("introduction", "goal")
    return {"introduction": introduction, "goal": goal or "?"}


def _action(tool: Mapping[str, object]) -> ActionSpec | None:
    """An action as its function says it: the template is the description up to a colon."""
    name, _, description = str(tool.get("description", "")).partition(": ")
    parameters = tool.get("parameters")
    schema = cast("Mapping[str, object]", parameters).get("properties") if isinstance(parameters, Mapping) else None
    properties = list(cast("Mapping[str, object]", schema).values()) if isinstance(schema, Mapping) else []
    try:
        bare = ActionSpec(name=name, description=description, pattern=".")
        values = [
            cast("Mapping[str, tuple[str, ...]]", one).get("enum", ()) if isinstance(one, Mapping) else ()
            for one in properties
        ]
        parts = re.split(r"\{[^{}]*\}", name)
        return ActionSpec(
            name=name,
            description=description,
            pattern="(.+)".join(map(re.escape, parts)),
            parameters=dict(zip(bare.placeholders, values, strict=False)),
        )
    except (ValidationError, TypeError):
        return None


def _arguments(text: str) -> Mapping[str, str]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return cast("Mapping[str, str]", found) if isinstance(found, Mapping) else {}
