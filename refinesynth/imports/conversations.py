"""Conversations, parsed as for training, as turns in a script; called functions become actions.

The script is parsed from the package's task text, or made from another text and the actions. A parsed script is rendered
again and compared, to reject text that only resembles a task text.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, cast

from refinesynth.actions.calls import Call, text_of
from refinesynth.actions.functions import action_of
from refinesynth.actions.matching import match_action, match_in
from refinesynth.actions.patterns import pattern_of
from refinesynth.chat import (
    INSTRUCTIONS,
    PARALLEL_INSTRUCTIONS,
    SOMEWHERE,
    read_player,
    render_task,
    render_tool_task,
    render_tools,
    thinking_in,
    tool_instructions_in,
)
from refinesynth.chat.react import FORMER_INSTRUCTIONS
from refinesynth.errors import InputError
from refinesynth.text.json_reader import write_json
from refinesynth.train.data.record_forms import mark_repairs, read_record
from refinesynth.train.labelled_conversation import Conversation, ToolCall, Turn, TurnLabel
from refinesynth.trajectory import ActionSpec, DungeonMasterTurn, MistakeKind, ParameterType, PlayerTurn, Script

ANY_ACTION = ActionSpec(name="{action}", description="Whatever the task allows.", pattern="(?s)(.+)")
"""Action of a script if the record lists none."""

_GOAL, _ACTIONS, _VALUES = "\n\nGoal: ", "\n\nAvailable actions:\n", " is one of: "
_SHARED_VALUES = re.compile(r"\n\n(?=\{[^{}]*\} is one of: )")
MAX_ACTIONS = 256
"""Maximum number of actions in a script; each turn is compared with all of them."""


class Task(NamedTuple):
    """Script of a conversation, with its opening observation."""

    script: Script
    opening: str | None
    """Observation before the first turn; None without one."""


def plain_script(introduction: str, goal: str, actions: Iterable[ActionSpec] = (ANY_ACTION,)) -> Script:
    """Return a script without environment and completion conditions."""
    return Script(
        introduction="" if introduction == SOMEWHERE else introduction,
        environment={},
        goal=goal,
        completion_conditions=(),
        actions=tuple(actions),
    )


def read_task(text: str) -> Task | None:
    """Read the text of `render_task`, also of earlier versions, with or without an opening observation; None for others."""
    text = text.replace(FORMER_INSTRUCTIONS, INSTRUCTIONS)
    parts = _parts(text, INSTRUCTIONS)
    if parts is None:
        return None
    introduction, rest, opening = parts
    goal, separator, actions = rest.rpartition(_ACTIONS)
    if not separator or not goal or actions.count("\n- ") >= MAX_ACTIONS:
        return None
    script = plain_script(introduction, goal, _actions(actions))
    rendered = render_task(script)
    return Task(script, opening) if text == _with_opening(rendered, opening) else None


def read_tool_task(text: str, tools: Sequence[Mapping[str, Any]]) -> Task | None:
    """Read the text of `render_tool_task` and the list of `render_tools`; None for others."""
    instructions = tool_instructions_in(text)
    parts = _parts(text, instructions) if instructions else None
    if parts is None or not parts[1] or len(tools) > MAX_ACTIONS or None in (actions := [*map(action_of, tools)]):
        return None
    introduction, goal, opening = parts
    script = plain_script(introduction, goal, filter(None, actions))
    rendered = render_tool_task(script, parallel=instructions == PARALLEL_INSTRUCTIONS)
    is_same = text == _with_opening(rendered, opening) and render_tools(script) == list(tools)
    return Task(script, opening) if is_same else None


def _parts(text: str, instructions: str) -> tuple[str, str, str | None] | None:
    """Return the introduction, the text after `Goal:`, and the opening observation."""
    head, separator, opening = text.partition(f"\n\n{instructions}")
    introduction, goal, rest = head.partition(_GOAL)
    if not separator or not goal or (opening and not opening.startswith("\n\n")):
        return None
    return introduction, rest, opening[2:] if opening else None


def _with_opening(task: str, opening: str | None) -> str:
    return task if opening is None else f"{task}\n\n{opening}"


def _actions(text: str) -> list[ActionSpec]:
    """Read the lines of `task_with_actions`."""
    action_lines, *shared_lines = _SHARED_VALUES.split(text, maxsplit=1)
    shared: dict[str, tuple[str, ...]] = {}
    for line in shared_lines[0].split("\n") if shared_lines else ():
        name, _, values = line.partition(f"}}{_VALUES}")
        shared[name.removeprefix("{")] = tuple(values.split(", "))
    return [_action(line, shared) for line in action_lines.removeprefix("- ").split("\n- ") if line]


def _action(line: str, shared: Mapping[str, tuple[str, ...]]) -> ActionSpec:
    head, separator, tail = line.rpartition(" ({")
    stated = _parse_placeholders(f"{{{tail[:-1]}") if separator and tail.endswith(")") else None
    values, types = stated or ({}, {})
    name, _, description = (line if stated is None else head).partition(": ")
    action = ActionSpec(name=name or line, description=description, pattern=pattern_of(name), types=types)
    parameters = values | {key: shared[key] for key in shared if key in action.placeholders and key not in values}
    return action.model_copy(update={"parameters": parameters})


def _parse_placeholders(text: str) -> tuple[dict[str, tuple[str, ...]], dict[str, ParameterType]] | None:
    """Read the values and types of placeholders in the form of `render_action`; None for other text."""
    values: dict[str, tuple[str, ...]] = {}
    types: dict[str, ParameterType] = {}
    for part in text.split("; {"):
        name, _, words = part.removeprefix("{").partition("} is ")
        if words.startswith("one of: "):
            values[name] = tuple(words.removeprefix("one of: ").split(", "))
        elif kind := ParameterType.from_words(words):
            types[name] = kind
        else:
            return None
    return values, types


def properties_of(function: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the parameters of a function with their allowed texts; empty if any text is allowed."""
    parameters: dict[str, tuple[str, ...]] = {}
    for name, schema in _object(_object(function.get("parameters")).get("properties")).items():
        values: object = _object(schema).get("enum")
        allowed = cast("list[object]", values if isinstance(values, list) else [])
        texts = tuple(text for text in allowed if isinstance(text, str))
        parameters[name] = texts if len(texts) == len(allowed) else ()
    return parameters


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value if isinstance(value, Mapping) else {})


_SEPARATORS = (", ", " | ", " ;; ", " ¦ ")
"""Separators of arguments, in order of preference; the first is used with which all calls parse back."""

ANSWER = ActionSpec(
    name="answer {text}", description="Say this; no function is called.", pattern=pattern_of("answer {text}")
)
"""Action of a message without a call in a conversation with calls."""


class Functions:
    """Functions of one record as actions with texts that parse back.

    Arguments other than text are written as JSON; missing ones are empty.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]], calls: Sequence[ToolCall], *, answers: bool) -> None:
        """Find a separator; `answers` for messages without a call. Raises ValueError: too many functions, or a call does
        not parse back.
        """
        self._properties = {tool["function"]["name"]: properties_of(tool["function"]) for tool in tools}
        self._descriptions = {tool["function"]["name"]: tool["function"].get("description") for tool in tools}
        for call in calls:
            properties = self._properties.setdefault(call.name, {})
            # A parameter that a call lacks must accept an empty text.
            properties |= dict.fromkeys(properties.keys() - call.arguments.keys(), ())
            properties |= {name: () for name in call.arguments if name not in properties}
        self._answers = answers
        if len(self._properties) > MAX_ACTIONS:
            raise ValueError(f"there are {len(self._properties):,} functions; {MAX_ACTIONS} are taken")
        for separator in _SEPARATORS:
            self._actions = dict(self._specs(separator))
            if self._first_misread(calls) is None:
                return
        if misread := self._first_misread(calls):
            shown = write_json(dict(misread.arguments)).decode(errors="replace")[:200]
            raise ValueError(
                f"the call of {misread.name!r} with {shown} cannot be written as an action's text and be read back: "
                "an argument is not among the values of its function, or too long"
            )

    @property
    def actions(self) -> Iterator[ActionSpec]:
        yield from self._actions.values()
        if self._answers or not self._actions:
            yield ANSWER

    def text_of(self, call: ToolCall) -> str:
        """Return the action text of a call; for an unknown function, its name and the values of its arguments."""
        action = self._actions.get(call.name)
        if action is None:
            return " ".join((call.name, *map(_text, call.arguments.values())))
        return action.fill(self._values(call))

    def _values(self, call: ToolCall) -> dict[str, str]:
        return {_placeholder(name): _text(call.arguments.get(name, "")) for name in self._properties[call.name]}

    def _first_misread(self, calls: Sequence[ToolCall]) -> ToolCall | None:
        """Return the first call with a text that does not parse back, ignoring blanks around arguments."""
        actions = tuple(self.actions)
        for call in calls:
            match = match_action(actions, self.text_of(call))
            values = {name: value.strip() for name, value in self._values(call).items()}
            if match is None or match.action != self._actions[call.name] or match.values != values:
                return call
        return None

    def _specs(self, separator: str) -> Iterable[tuple[str, ActionSpec]]:
        for name, properties in self._properties.items():
            parameters = {_placeholder(key): values for key, values in properties.items()}
            arguments = separator.join(f"{{{placeholder}}}" for placeholder in parameters)
            template = f"{re.sub(r'[^0-9A-Za-z_.-]', '_', name)}({arguments})"
            text = value if isinstance(value := self._descriptions.get(name), str) else ""
            pattern = pattern_of(template)
            yield name, ActionSpec(name=template, description=text, pattern=pattern, parameters=parameters)


def _placeholder(name: str) -> str:
    return re.sub(r"[{}]", "_", name)


def _text(value: object) -> str:
    return value if isinstance(value, str) else write_json(value, exact=True).decode()


UNANSWERED = "(no answer)"
"""Placeholder for an empty or missing observation; exports leave out the last observation."""


class ParsedPlay(NamedTuple):
    script: Script
    turns: tuple[PlayerTurn | DungeonMasterTurn, ...]


_Reader = Callable[[Turn], PlayerTurn]


def read_conversation(record: Mapping[str, Any], location: str) -> ParsedPlay:
    """Read a record's messages as turns, with or without tool calls; messages flagged as not trained are mistakes.

    Messages without a flag are right.

    Raises:
        InputError: The messages are not an agent's turns; the error begins with `location`.
    """
    conversation = read_record(record, location, unflagged=True)
    if any(turn.label is TurnLabel.HISTORY for turn in conversation.turns):
        raise InputError(
            f"{location}: only the last message is to be trained on, as in one of several records of a conversation, so it is not known "
            "which of the earlier turns are mistakes; export with a flag per message, and an id where there is a place for one"
        )
    preamble = list(takewhile(lambda turn: turn.label in {None, TurnLabel.PREAMBLE}, conversation.turns))
    played = conversation.turns[len(preamble) :]
    if not played:
        raise InputError(f"{location}: the assistant takes no turn")
    has_calls = conversation.tools or any(turn.calls for turn in played)
    try:
        if has_calls:
            task, read = _task_with_calls(conversation, preamble, played)
        else:
            parsed = read_task(preamble[0].content) if len(preamble) == 1 else None
            task, read = parsed or Task(plain_script(*_introduction_and_goal(preamble)), None), _read_text
        separate = bool(record.get("system")) and conversation.turns[0].role == "system"
        turns = _turns(task, played, read, first=len(preamble) + (0 if separate else 1))
        return ParsedPlay(task.script, mark_repairs(tuple(turns), record))
    except ValueError as error:
        raise InputError(f"{location}: {error}") from error


def _read_text(turn: Turn) -> PlayerTurn:
    thinking, content = _thoughts(turn)
    try:
        player = read_player(content)
    except ValueError:
        raise ValueError(
            'the assistant takes no action in it, there is no line that begins with "Action:"; expected one in each of its messages '
            '("Thought: ..." and then "Action: ..."), or calls of functions. Leave the record out, or write its actions so'
        ) from None
    return player.model_copy(update={"thought": _joined(thinking, player.thought)}) if thinking else player


def _thoughts(turn: Turn) -> tuple[str, str]:
    return (turn.thinking, turn.content) if turn.thinking else thinking_in(turn.content)[:2]


def _joined(thinking: str, text: str) -> str:
    return f"{thinking}\n\n{text}" if thinking and text.strip() else thinking or text


def _task_with_calls(chat: Conversation, preamble: Sequence[Turn], played: Sequence[Turn]) -> tuple[Task, _Reader]:
    acting = [turn for turn in played if turn.role == "assistant"]
    silent = any(not turn.calls for turn in acting)
    parsed = read_tool_task(preamble[0].content, chat.tools) if len(preamble) == 1 and not silent else None
    if parsed is not None:
        return parsed, lambda turn: PlayerTurn(
            thought=_joined(*_thoughts(turn)),
            action=text_of(parsed.script, Call(turn.calls[0].name, turn.calls[0].arguments)),
        )
    correct_calls = [call for turn in acting for call in turn.calls if not _is_mistake(turn._replace(calls=(call,)))]
    functions = Functions(chat.tools, correct_calls, answers=silent)

    def read(turn: Turn) -> PlayerTurn:
        if not turn.calls:
            thinking, content = _thoughts(turn)
            return PlayerTurn(thought=thinking, action=ANSWER.fill({"text": content}))
        return PlayerTurn(thought=_joined(*_thoughts(turn)), action=functions.text_of(turn.calls[0]))

    return Task(plain_script(*_introduction_and_goal(preamble), functions.actions), None), read


def _is_mistake(turn: Turn) -> bool:
    return turn.label is TurnLabel.MISTAKE or any(call.id in turn.mistakes for call in turn.calls)


def _introduction_and_goal(preamble: Sequence[Turn]) -> tuple[str, str]:
    """Return introduction and goal; the last message before the first turn is the goal."""
    *introduction, goal = (turn.content.strip() for turn in preamble if turn.label is None)
    return "\n\n".join(introduction), goal


def _turns(
    task: Task, played: Sequence[Turn], read: _Reader, *, first: int
) -> Iterator[PlayerTurn | DungeonMasterTurn]:
    """Yield the player's turns, each followed by its answer; raises ValueError with a message's number."""
    if task.opening is not None:
        yield _answer(task.opening)
    last_index = None
    for index, message, answers in _exchanges(played):
        try:
            player = read(message)
        except ValueError as error:
            raise ValueError(f"message {first + index}: {error}") from error
        yield player.model_copy(update={"parallel": True}) if index == last_index else player
        last_index = index
        observation = "\n\n".join(turn.content for turn in answers if turn.content.strip()) or UNANSWERED
        unknown = match_in(task.script, player.action) is None
        yield _answer(observation, mistake=_is_mistake(message), unknown=unknown)


def _exchanges(played: Sequence[Turn]) -> Iterator[tuple[int, Turn, list[Turn]]]:
    """Yield the index of a message, a turn of it, and the turn's answers. Each of several calls is a turn; the thought
    belongs to the first turn.
    """
    starts = [index for index, turn in enumerate(played) if turn.role == "assistant"]
    for index, stop in zip(starts, [*starts[1:], len(played)], strict=True):
        message, answers = played[index], list(played[index + 1 : stop])
        for call in message.calls[:-1]:
            answer = [turn for turn in answers if turn.role == "tool" and turn.call_id == call.id][:1]
            answers = [turn for turn in answers if turn not in answer]
            yield index, message._replace(calls=(call,)), answer
            message = message._replace(content="", thinking="")
        yield index, message._replace(calls=message.calls[-1:]), answers


def _answer(observation: str, *, mistake: bool = False, unknown: bool = False) -> DungeonMasterTurn:
    """Return an answer; the flag of a mistake has no kind, thus unknown actions are `parameter` errors, others `logic`."""
    kind = (MistakeKind.PARAMETER if unknown else MistakeKind.LOGIC) if mistake else None
    return DungeonMasterTurn.of_kind(kind, thought="", observation=observation)
