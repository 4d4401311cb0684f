"""Player: the agent that thinks and acts, in text or with native tool calls."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self, cast

import orjson
from pydantic import JsonValue
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from refinesynth.actions.calls import Call, call_of, python_call, text_of, tools_of
from refinesynth.actions.matching import match_in
from refinesynth.chat import Message, ToolMessage, parse_player
from refinesynth.chat.react import STOPS, action_label, continues_after_action
from refinesynth.prompts import Prompts
from refinesynth.roles.actor import CALL_IN_TEXT, Actor, AnswerForm, plain_text, tool_calls_of
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.text.formatting import quoted
from refinesynth.trajectory import MistakeKind, PlayerTurn, Script


@dataclass
class Player(Actor):
    """Role with one verb, `act`.

    Its chat is exactly `chat.render_turns`, as in training and evaluation: no system prompt, tools or schema.
    """

    _messages: dict[Message, ModelMessage] = field(default_factory=dict[Message, ModelMessage], init=False, repr=False)
    """Messages of earlier views, which later views begin with."""

    async def act(
        self,
        view: Sequence[Message],
        *,
        mistake: MistakeRequest | None = None,
        violations: Sequence[str] = (),
        flag: "Flag | None" = None,
    ) -> PlayerTurn:
        """Return the turn after `view`, which ends with a user message.

        A private note after the last message holds a `mistake` to make or repair, the `violations` of an earlier
        answer, and the `flag` that a repairer answers. The note is in this request only. A player may repeat it in its
        thought, so violations are worded for the scene.

        Raises:
            InvalidAnswer: No answer had a thought and an action.
        """
        content = with_private_note(self.prompts, view[-1].content, mistake, violations, flag)
        return await self.ask(_FORM, content, history=[self._message(message) for message in view[:-1]])

    def _message(self, message: Message) -> ModelMessage:
        if (sent := self._messages.get(message)) is None:
            sent = self._messages[message] = _as_message(message)
        return sent


class Flag(NamedTuple):
    """The flagged action to repair, as feedback for a repairer."""

    action: str
    kind: MistakeKind
    reason: str
    """The DungeonMaster's reason."""


def with_private_note(
    prompts: Prompts, content: str, mistake: MistakeRequest | None, violations: Sequence[str], flag: Flag | None = None
) -> str:
    """Return the last message with a private note after it."""
    notes = [content]
    if flag is not None:
        data = {"action": flag.action, "mistake": flag.kind, "reason": flag.reason}
        notes.append(prompts.fill("player_repair", "request", **data))
    if violations:
        notes.append(prompts.fill("player_retake", "request", violations=list(violations)))
    if mistake is not None:
        notes.append(prompts.fill("player_mistake", "request", mistake=mistake.kind, way=mistake.style))
    return "\n\n".join(notes)


def _read(text: str) -> PlayerTurn:
    turn = parse_player(text)
    if not turn.thought:
        # A model trained on it would learn to act without thinking.
        raise ValueError('there is no thought; write "Thought: ..." and then "Action: ..."')
    return turn


class ReactForm(AnswerForm[PlayerTurn]):
    """Form of a thought and an action as text; text after the action is ignored."""

    def repair_kind(self, response: ModelResponse) -> str | None:
        return "text after the action" if continues_after_action(plain_text(response)) else None


_FORM = ReactForm(parameters=ModelRequestParameters(), load=_read, settings=ModelSettings(stop_sequences=[*STOPS]))


def _as_message(message: Message) -> ModelMessage:
    if message.role == "user":
        return ModelRequest(parts=[UserPromptPart(message.content)])
    return ModelResponse(parts=[TextPart(message.content)])


@dataclass
class ToolPlayer(Actor):
    """Role with one verb, `act`, in one script.

    Its chat is `chat.render_tool_turns`, with the script's actions as tools.
    """

    script: Script = field(kw_only=True)
    most: int = field(default=1, kw_only=True)
    """Maximum number of calls in a message."""

    @cached_property
    def _form(self) -> "CallForm":
        parameters = request_parameters(tool.definition() for tool in tools_of(self.script))
        load = partial(_turn_in_text, self.script)
        return CallForm(parameters=parameters, load=load, script=self.script, max_calls=self.most)

    async def act(
        self,
        view: Sequence[ToolMessage],
        *,
        mistake: MistakeRequest | None = None,
        violations: Sequence[str] = (),
        flag: Flag | None = None,
    ) -> tuple[PlayerTurn, ...]:
        """Return the turns of the next message after `view`, one per call, as `Player.act`. The private note is at the
        end of the last message, which is the answer to a call or the task.

        Raises:
            InvalidAnswer: No answer had a thought and one to `most` usable calls.
        """
        last = view[-1]
        last = last._replace(content=with_private_note(self.prompts, last.content, mistake, violations, flag))
        return await self.ask(self._form, _part(last, view), history=[_message(message, view) for message in view[:-1]])


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm(AnswerForm[tuple[PlayerTurn, ...]]):
    """Form of a thought with one or several function calls. The thought is text, or the model's reasoning if there is
    no text. A call in Python's syntax, or an available action after its label, counts as a call.
    """

    script: Script
    thought: str = ""
    """Thought of an answer without a call; the next request demands the call."""
    max_calls: int = 1
    """Maximum number of calls in a message."""

    def read(self, response: ModelResponse) -> tuple[PlayerTurn, ...]:
        """Return the turns in a response, one per call.

        Raises:
            ValueError: There is no thought or no call, there are too many calls, or a call is unusable. The message is
                feedback to the model.
        """
        calls = tool_calls_of(response)
        if not calls:
            return self.load(plain_text(response))
        if len(calls) > self.max_calls:
            advice = (
                "take one action at a time, by one call" if self.max_calls == 1 else f"make at most {self.max_calls}"
            )
            raise ValueError(f"there are {len(calls)} calls; {advice}")
        thought = plain_text(response).strip() or _thinking(response) or self.thought
        if not thought:
            # A model trained on it would learn to act without thinking.
            raise ValueError("there is no thought; write what you think as text beside the call")
        actions = enumerate(map(self._action, calls))
        return tuple(PlayerTurn(thought="" if i else thought, action=action, parallel=i > 0) for i, action in actions)

    def _action(self, part: ToolCallPart) -> str:
        call = Call(part.tool_name, _arguments(part.args))
        action = text_of(self.script, call).strip()
        if not action:
            raise ValueError("the call says nothing; call one of the functions")
        if lost := _lost_argument(self.script, call, action):
            raise ValueError(f"the argument {quoted(lost)} holds the name of another one with `=`; leave that out")
        return action

    def for_retry(self, response: ModelResponse) -> Self:
        thought = "" if tool_calls_of(response) else _prose(plain_text(response))
        # If a call is required, many servers allow no text beside it.
        return replace(self, thought=thought, settings=ModelSettings(tool_choice="required")) if thought else self

    def repair_kind(self, response: ModelResponse) -> str | None:
        return super(CallForm, self).repair_kind(response) if tool_calls_of(response) else CALL_IN_TEXT


def _lost_argument(script: Script, call: Call, text: str) -> str | None:
    """Return the argument that the action's text does not preserve, if any."""
    if not any(action.function for action in script.actions):
        return None
    read_back = call_of(script, text).arguments
    for name, value in call.arguments.items():
        read_value = read_back.get(name)
        if isinstance(value, list | dict) and read_value != value:
            return name
        if isinstance(value, str) and isinstance(read_value, str) and read_value != value.strip():
            return name
    return None


def request_parameters(tools: Iterable[Mapping[str, Any]]) -> ModelRequestParameters:
    """Return the parameters of a request that may be answered by calls of these functions, given as the `tools` of a
    chat completion.
    """
    functions = (tool["function"] for tool in tools)
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=function["name"],
                description=function["description"],
                parameters_json_schema=function["parameters"],
                strict=False,
            )
            for function in functions
        ]
    )


def _turn_in_text(script: Script, text: str) -> tuple[PlayerTurn, ...]:
    """Return the turn of an answer without a call, from a call in Python's syntax or an available action after its
    label.
    """
    label = action_label(text)
    thought = "" if label is None else _prose(text[:label])
    if thought and match_in(script, action := parse_player(text).action):
        return (PlayerTurn(thought=thought, action=action),)
    if (call := python_call(script, text)) is not None and (thought := _prose(text[: call[0]])):
        action = text_of(script, call[1])
        if _lost_argument(script, call[1], action) is None:
            return (PlayerTurn(thought=thought, action=action),)
    raise ValueError("no function is called; write your thought as text, and call one function, which is your action")


def _prose(text: str) -> str:
    """Return a text without its label; empty for JSON, code or an action."""
    words = text.strip().removeprefix("Thought:").strip()
    return "" if re.search(r"[{`]|\w\(", words) or action_label(words) is not None else words


def _thinking(response: ModelResponse) -> str:
    return "\n\n".join(part.content for part in response.parts if isinstance(part, ThinkingPart)).strip()


def _arguments(value: str | Mapping[str, Any] | None) -> Mapping[str, JsonValue]:
    try:
        arguments: object = orjson.loads(value) if isinstance(value, str) and value.strip() else value or {}
    except orjson.JSONDecodeError:
        arguments = None
    if not isinstance(arguments, Mapping):
        raise ValueError(f"the arguments are no JSON object: {quoted(str(value))}")
    return cast("Mapping[str, JsonValue]", arguments)


def _message(message: ToolMessage, view: Sequence[ToolMessage]) -> ModelMessage:
    if message.call is None:
        return ModelRequest(parts=[_part(message, view)])
    made = ((one.id, one.call) for one in message.calls if one.call is not None)
    calls = [ToolCallPart(name, dict(arguments), tool_call_id=at) for at, (name, arguments) in made]
    return ModelResponse(parts=[*([TextPart(message.content)] if message.content else ()), *calls])


def _part(message: ToolMessage, view: Sequence[ToolMessage]) -> ModelRequestPart:
    if message.role == "user":
        return UserPromptPart(message.content)
    calls = (part for turn in view for part in turn.calls)
    name = next(part.call.name for part in calls if part.call is not None and part.id == message.id)
    return ToolReturnPart(name, message.content, tool_call_id=message.id)
