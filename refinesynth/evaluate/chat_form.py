"""Chat of an episode in the form of training: thought and action as text, or the action as a native tool call."""

from collections.abc import Mapping, Sequence
from typing import Any

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool, ChatMessageUser
from inspect_ai.tool import ToolCall, ToolInfo

from refinesynth.actions.calls import Call, call_of, text_of
from refinesynth.actions.patterns import pattern_of
from refinesynth.chat import parse_player, render_player, render_task, render_tool_task, render_tools
from refinesynth.evaluate import local_model
from refinesynth.evaluate.environments.environment import Start
from refinesynth.text.json_reader import scrub, write_json
from refinesynth.text.thinking import split_thinking
from refinesynth.trajectory import ActionSpec, PlayerTurn, Script


def script_of(start: Start) -> Script:
    """The script from which the first message and the functions are rendered, as in training."""
    actions = tuple(
        ActionSpec.model_validate({**vars(one), "pattern": one.pattern or pattern_of(one.name)})
        for one in start.actions
    )
    return Script(
        introduction=start.introduction, environment={}, goal=start.goal, completion_conditions=(), actions=actions
    )


class ReactForm:
    """One attempt's chat with thought and action as text."""

    def __init__(self, start: Start) -> None:
        self._script = script_of(start)
        self.tools: list[ToolInfo] = []
        """Functions that are offered to the model beside the messages."""

    def task(self) -> str:
        """The task, with which the first message begins."""
        return render_task(self._script)

    def written(self, turn: PlayerTurn) -> str:
        """A turn as text, for a worked example."""
        return render_player(turn)

    def message(self, turn: PlayerTurn) -> ChatMessageAssistant:
        """A turn as the player's message."""
        return ChatMessageAssistant(content=scrub(render_player(turn)))

    def read(self, message: ChatMessageAssistant) -> list[str]:
        """The actions of a player's message; raises ValueError, fit to be sent to the model, if there are none."""
        # What a model thinks before it speaks may stand in its text, and hold actions that it does not take.
        return [parse_player(split_thinking(message.text).text).action]

    def answers(
        self, message: ChatMessageAssistant, *texts: str, marks: Sequence[Mapping[str, Any]] = ({},)
    ) -> list[ChatMessage]:
        """Messages that tell the player what came of its message: a text for each action, or one for all."""
        del message
        told = zip(texts, marks, strict=True)
        return [ChatMessageUser(content=scrub(text), metadata=dict(given) or None) for text, given in told]


class ToolForm(ReactForm):
    """The same with calls and the thought beside them, as `chat.render_tool_turns` has them."""

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self._at = 1 if start.observation else 0
        self.tools = [local_model.offered_tool(one) for one in render_tools(self._script)]

    def task(self) -> str:
        return render_tool_task(self._script)

    def written(self, turn: PlayerTurn) -> str:
        return f"{turn.thought}\n{write_json(call_of(self._script, turn.action)._asdict()).decode()}"

    def message(self, turn: PlayerTurn) -> ChatMessageAssistant:
        name, arguments = call_of(self._script, scrub(turn.action))
        return ChatMessageAssistant(content=scrub(turn.thought), tool_calls=[ToolCall("", name, dict(arguments))])

    def read(self, message: ChatMessageAssistant) -> list[str]:
        if not message.tool_calls:
            raise ValueError("no function is called; call one function, which is your action")
        return [*map(self._action, message.tool_calls)]

    def _action(self, call: ToolCall) -> str:
        if call.parse_error is not None:
            raise ValueError(f"the call cannot be read: {call.parse_error}")
        if not (action := text_of(self._script, Call(call.function, call.arguments)).strip()):
            raise ValueError("the call says nothing; call one of the functions")
        return action

    def answers(
        self, message: ChatMessageAssistant, *texts: str, marks: Sequence[Mapping[str, Any]] = ({},)
    ) -> list[ChatMessage]:
        """Each call is answered, under an id of training, which numbers the turns."""
        if not message.tool_calls:
            self._at += 2
            return super().answers(message, *texts, marks=marks)
        if len(texts) == 1:
            texts, marks = texts * len(message.tool_calls), [*marks] * len(message.tool_calls)
        told: list[ChatMessage] = []
        for call, text, given in zip(message.tool_calls, texts, marks, strict=True):
            call.id, name, self._at = f"call{self._at:05d}", call.function, self._at + 2
            marked = dict(given) or None
            told.append(ChatMessageTool(content=scrub(text), tool_call_id=call.id, function=name, metadata=marked))
        return told


class ParallelToolForm(ToolForm):
    """The same where the task allows several calls in a message."""

    def task(self) -> str:
        return render_tool_task(self._script, parallel=True)


FORMS = {"tools": ToolForm, "parallel_tools": ParallelToolForm}
"""Forms of native tool calls by name."""
