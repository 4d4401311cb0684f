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
_SHARED = re.compile(r"\n\n(?=\{[^{}]*\} is one of: )")
MOST_ACTIONS = 256
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
    place, rest, opening = parts
    goal, found, listed = rest.rpartition(_ACTIONS)
    if not found or not goal or listed.count("\n- ") >= MOST_ACTIONS:
        return None
    script = plain_script(place, goal, _actions(listed))
    written = render_task(script)
    return Task(script, opening) if text == _with_opening(written, opening) else None


def read_tool_task(text: str, tools: Sequence[Mapping[str, Any]]) -> Task | None:
    """Read the text of `render_tool_task` and the list of `render_tools`; None for others."""
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
    """Return the introduction, the text after `Goal:`, and the opening observation."""
    head, found, after = text.partition(f"\n\n{instructions}")
    place, goal, rest = head.partition(_GOAL)
    if not found or not goal or (after and not after.startswith("\n\n")):
        return None
    return place, rest, after[2:] if after else None


def _with_opening(task: str, opening: str | None) -> str:
    return task if opening is None else f"{task}\n\n{opening}"


def _actions(listed: str) -> list[ActionSpec]:
    """Read the lines of `task_with_actions`."""
    own, *further = _SHARED.split(listed, maxsplit=1)
    shared: dict[str, tuple[str, ...]] = {}
    for line in further[0].split("\n") if further else ():
        name, _, values = line.partition(f"}}{_VALUES}")
        shared[name.removeprefix("{")] = tuple(values.split(", "))
    return [_action(line, shared) for line in own.removeprefix("- ").split("\n- ") if line]


def _action(line: str, shared: Mapping[str, tuple[str, ...]]) -> ActionSpec:
    head, found, ends = line.rpartition(" ({")
    stated = _stated(f"{{{ends[:-1]}") if found and ends.endswith(")") else None
    own, types = stated or ({}, {})
    name, _, description = (line if stated is None else head).partition(": ")
    action = ActionSpec(name=name or line, description=description, pattern=pattern_of(name), types=types)
    parameters = own | {each: shared[each] for each in shared if each in action.placeholders and each not in own}
    return action.model_copy(update={"parameters": parameters})


def _stated(text: str) -> tuple[dict[str, tuple[str, ...]], dict[str, ParameterType]] | None:
    """Read the values and types of placeholders in the form of `render_action`; None for other text."""
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


def properties_of(function: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the parameters of a function with their allowed texts; empty if any text is allowed."""
    found: dict[str, tuple[str, ...]] = {}
    for name, schema in _object(_object(function.get("parameters")).get("properties")).items():
        values: object = _object(schema).get("enum")
        every = cast("list[object]", values if isinstance(values, list) else [])
        texts = tuple(one for one in every if isinstance(one, str))
        found[name] = texts if len(texts) == len(every) else ()
    return found


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
        if len(self._properties) > MOST_ACTIONS:
            raise ValueError(f"there are {len(self._properties):,} functions; {MOST_ACTIONS} are taken")
        for separator in _SEPARATORS:
            self._actions = dict(self._specified(separator))
            if self._misread(calls) is None:
                return
        if wrong := self._misread(calls):
            shown = write_json(dict(wrong.arguments)).decode(errors="replace")[:200]
            raise ValueError(
                f"the call of {wrong.name!r} with {shown} cannot be written as an action's text and be read back: "
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

    def _misread(self, calls: Sequence[ToolCall]) -> ToolCall | None:
        """Return the first call with a text that does not parse back, ignoring blanks around arguments."""
        actions = tuple(self.actions)
        for call in calls:
            found = match_action(actions, self.text_of(call))
            values = {name: value.strip() for name, value in self._values(call).items()}
            if found is None or found.action != self._actions[call.name] or found.values != values:
                return call
        return None

    def _specified(self, separator: str) -> Iterable[tuple[str, ActionSpec]]:
        for name, properties in self._properties.items():
            places = {_placeholder(each): values for each, values in properties.items()}
            arguments = separator.join(f"{{{place}}}" for place in places)
            template = f"{re.sub(r'[^0-9A-Za-z_.-]', '_', name)}({arguments})"
            described = self._descriptions.get(name)
            about = described if isinstance(described, str) else ""
            yield name, ActionSpec(name=template, description=about, pattern=pattern_of(template), parameters=places)


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


def read_conversation(record: Mapping[str, Any], where: str) -> ParsedPlay:
    """Read a record's messages as turns, with or without tool calls; messages flagged as not trained are mistakes.

    Messages without a flag are right.

    Raises:
        InputError: The messages are not an agent's turns; the error begins with `where`.
    """
    conversation = read_record(record, where, unflagged=True)
    if any(turn.label is TurnLabel.HISTORY for turn in conversation.turns):
        raise InputError(
            f"{where}: only the last message is to be trained on, as in one of several records of a conversation, so it is not known "
            "which of the earlier turns are mistakes; export with a flag per message, and an id where there is a place for one"
        )
    preamble = list(takewhile(lambda turn: turn.label in {None, TurnLabel.PREAMBLE}, conversation.turns))
    played = conversation.turns[len(preamble) :]
    if not played:
        raise InputError(f"{where}: the assistant takes no turn")
    called = conversation.tools or any(turn.calls for turn in played)
    try:
        if called:
            task, read = _with_calls(conversation, preamble, played)
        else:
            ours = read_task(preamble[0].content) if len(preamble) == 1 else None
            task, read = ours or Task(plain_script(*_introduction_and_goal(preamble)), None), _read_text
        separate = bool(record.get("system")) and conversation.turns[0].role == "system"
        turns = _turns(task, played, read, first=len(preamble) + (0 if separate else 1))
        return ParsedPlay(task.script, mark_repairs(tuple(turns), record))
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error


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


def _with_calls(found: Conversation, asked: Sequence[Turn], played: Sequence[Turn]) -> tuple[Task, _Reader]:
    acting = [turn for turn in played if turn.role == "assistant"]
    silent = any(not turn.calls for turn in acting)
    ours = read_tool_task(asked[0].content, found.tools) if len(asked) == 1 and not silent else None
    if ours is not None:
        return ours, lambda turn: PlayerTurn(
            thought=_joined(*_thoughts(turn)),
            action=text_of(ours.script, Call(turn.calls[0].name, turn.calls[0].arguments)),
        )
    right = [call for turn in acting for call in turn.calls if not _is_wrong(turn._replace(calls=(call,)))]
    functions = Functions(found.tools, right, answers=silent)

    def read(turn: Turn) -> PlayerTurn:
        if not turn.calls:
            thinking, content = _thoughts(turn)
            return PlayerTurn(thought=thinking, action=ANSWER.fill({"text": content}))
        return PlayerTurn(thought=_joined(*_thoughts(turn)), action=functions.text_of(turn.calls[0]))

    return Task(plain_script(*_introduction_and_goal(asked), functions.actions), None), read


def _is_wrong(turn: Turn) -> bool:
    return turn.label is TurnLabel.MISTAKE or any(call.id in turn.mistakes for call in turn.calls)


def _introduction_and_goal(asked: Sequence[Turn]) -> tuple[str, str]:
    """Return introduction and goal; the last message before the first turn is the goal."""
    *before, goal = (turn.content.strip() for turn in asked if turn.label is None)
    return "\n\n".join(before), goal


def _turns(
    task: Task, played: Sequence[Turn], read: _Reader, *, first: int
) -> Iterator[PlayerTurn | DungeonMasterTurn]:
    """Yield the player's turns, each followed by its answer; raises ValueError with a message's number."""
    if task.opening is not None:
        yield _answer(task.opening)
    before = None
    for at, speaker, heard in _exchanges(played):
        try:
            player = read(speaker)
        except ValueError as error:
            raise ValueError(f"message {first + at}: {error}") from error
        yield player.model_copy(update={"parallel": True}) if at == before else player
        before = at
        observation = "\n\n".join(turn.content for turn in heard if turn.content.strip()) or UNANSWERED
        unknown = match_in(task.script, player.action) is None
        yield _answer(observation, wrong=_is_wrong(speaker), unknown=unknown)


def _exchanges(played: Sequence[Turn]) -> Iterator[tuple[int, Turn, list[Turn]]]:
    """Yield the index of a message, a turn of it, and the turn's answers. Each of several calls is a turn; the thought
    belongs to the first turn.
    """
    starts = [at for at, turn in enumerate(played) if turn.role == "assistant"]
    for at, stop in zip(starts, [*starts[1:], len(played)], strict=True):
        speaker, heard = played[at], list(played[at + 1 : stop])
        for call in speaker.calls[:-1]:
            answer = [turn for turn in heard if turn.role == "tool" and turn.call_id == call.id][:1]
            heard = [turn for turn in heard if turn not in answer]
            yield at, speaker._replace(calls=(call,)), answer
            speaker = speaker._replace(content="", thinking="")
        yield at, speaker._replace(calls=speaker.calls[-1:]), heard


def _answer(observation: str, *, wrong: bool = False, unknown: bool = False) -> DungeonMasterTurn:
    """Return an answer; the flag of a mistake has no kind, thus unknown actions are `parameter` errors, others `logic`."""
    kind = (MistakeKind.PARAMETER if unknown else MistakeKind.LOGIC) if wrong else None
    return DungeonMasterTurn.of_kind(kind, thought="", observation=observation)
