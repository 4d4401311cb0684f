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
from refinesynth.actions.wording import quoted
from refinesynth.chat import Message, ToolMessage, parse_player
from refinesynth.chat.react import STOPS, action_label, goes_on
from refinesynth.prompts import Prompts
from refinesynth.roles.actor import CALL_IN_TEXT, Actor, AnswerForm, called, plain_text
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.trajectory import MistakeKind, PlayerTurn, Script


@dataclass
class Player(Actor):
    """Role with one verb, `act`.

    Its chat is exactly `chat.render_turns`, as in training and evaluation: no system prompt, tools or schema.
    """

    _sent: dict[Message, ModelMessage] = field(default_factory=dict[Message, ModelMessage], init=False, repr=False)
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
        seen = with_notes(self.prompts, view[-1].content, mistake, violations, flag)
        return await self.ask(_FORM, seen, history=[self._message(message) for message in view[:-1]])

    def _message(self, message: Message) -> ModelMessage:
        if (sent := self._sent.get(message)) is None:
            sent = self._sent[message] = _as_message(message)
        return sent


class Flag(NamedTuple):
    """The flagged action to repair, as feedback for a repairer."""

    action: str
    kind: MistakeKind
    reason: str
    """The DungeonMaster's reason."""


def with_notes(
    prompts: Prompts, seen: str, mistake: MistakeRequest | None, violations: Sequence[str], flag: Flag | None = None
) -> str:
    """Return the last message with a private note after it."""
    notes = [seen]
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

    def repair(self, response: ModelResponse) -> str | None:
        return "text after the action" if goes_on(plain_text(response)) else None


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
        parameters = offered(one.definition() for one in tools_of(self.script))
        load = partial(_in_words, self.script)
        return CallForm(parameters=parameters, load=load, script=self.script, most=self.most)

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
        last = last._replace(content=with_notes(self.prompts, last.content, mistake, violations, flag))
        return await self.ask(self._form, _part(last, view), history=[_message(one, view) for one in view[:-1]])


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm(AnswerForm[tuple[PlayerTurn, ...]]):
    """Form of a thought with one or several function calls. The thought is text, or the model's reasoning if there is
    no text. A call in Python's syntax, or an available action after its label, counts as a call.
    """

    script: Script
    thought: str = ""
    """Thought of an answer without a call; the next request demands the call."""
    most: int = 1
    """Maximum number of calls in a message."""

    def read(self, response: ModelResponse) -> tuple[PlayerTurn, ...]:
        """Return the turns in a response, one per call.

        Raises:
            ValueError: There is no thought or no call, there are too many calls, or a call is unusable. The message is
                feedback to the model.
        """
        calls = called(response)
        if not calls:
            return self.load(plain_text(response))
        if len(calls) > self.most:
            asked = "take one action at a time, by one call" if self.most == 1 else f"make at most {self.most}"
            raise ValueError(f"there are {len(calls)} calls; {asked}")
        thought = plain_text(response).strip() or _thinking(response) or self.thought
        if not thought:
            # A model trained on it would learn to act without thinking.
            raise ValueError("there is no thought; write what you think as text beside the call")
        made = enumerate(map(self._action, calls))
        return tuple(PlayerTurn(thought="" if at else thought, action=each, parallel=at > 0) for at, each in made)

    def _action(self, made: ToolCallPart) -> str:
        call = Call(made.tool_name, _arguments(made.args))
        action = text_of(self.script, call).strip()
        if not action:
            raise ValueError("the call says nothing; call one of the functions")
        if wrong := _misread(self.script, call, action):
            raise ValueError(f"the argument {quoted(wrong)} holds the name of another one with `=`; leave that out")
        return action

    def again(self, response: ModelResponse) -> Self:
        thought = "" if called(response) else _prose(plain_text(response))
        # If a call is required, many servers allow no text beside it.
        return replace(self, thought=thought, settings=ModelSettings(tool_choice="required")) if thought else self

    def repair(self, response: ModelResponse) -> str | None:
        return super(CallForm, self).repair(response) if called(response) else CALL_IN_TEXT


def _misread(script: Script, call: Call, text: str) -> str | None:
    """Return the argument that the action's text does not preserve, if any."""
    if not any(one.function for one in script.actions):
        return None
    again = call_of(script, text).arguments
    for name, value in call.arguments.items():
        found = again.get(name)
        if isinstance(value, list | dict) and found != value:
            return name
        if isinstance(value, str) and isinstance(found, str) and found != value.strip():
            return name
    return None


def offered(tools: Iterable[Mapping[str, Any]]) -> ModelRequestParameters:
    """Return the parameters of a request that may be answered by calls of these functions, given as the `tools` of a
    chat completion.
    """
    functions = (tool["function"] for tool in tools)
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=one["name"], description=one["description"], parameters_json_schema=one["parameters"], strict=False
            )
            for one in functions
        ]
    )


def _in_words(script: Script, text: str) -> tuple[PlayerTurn, ...]:
    """Return the turn of an answer without a call, from a call in Python's syntax or an available action after its
    label.
    """
    at = action_label(text)
    thought = "" if at is None else _prose(text[:at])
    if thought and match_in(script, action := parse_player(text).action):
        return (PlayerTurn(thought=thought, action=action),)
    if (found := python_call(script, text)) is not None and (thought := _prose(text[: found[0]])):
        action = text_of(script, found[1])
        if _misread(script, found[1], action) is None:
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
        found: object = orjson.loads(value) if isinstance(value, str) and value.strip() else value or {}
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, Mapping):
        raise ValueError(f"the arguments are no JSON object: {quoted(str(value))}")
    return cast("Mapping[str, JsonValue]", found)


def _message(message: ToolMessage, view: Sequence[ToolMessage]) -> ModelMessage:
    if message.call is None:
        return ModelRequest(parts=[_part(message, view)])
    made = ((one.id, one.call) for one in message.calls if one.call is not None)
    calls = [ToolCallPart(name, dict(arguments), tool_call_id=at) for at, (name, arguments) in made]
    return ModelResponse(parts=[*([TextPart(message.content)] if message.content else ()), *calls])


def _part(message: ToolMessage, view: Sequence[ToolMessage]) -> ModelRequestPart:
    if message.role == "user":
        return UserPromptPart(message.content)
    calls = (one for turn in view for one in turn.calls)
    name = next(one.call.name for one in calls if one.call is not None and one.id == message.id)
    return ToolReturnPart(name, message.content, tool_call_id=message.id)
