"""A trajectory as chat messages with tool calls, each with its loss flag: the same turns as ReAct text.

The actions are functions, which the model is given beside the messages (`actions.calls`). The first user message holds
the task without them; a player's turn is an assistant message with its thought as content and its action as the one
call; what comes of it is that call's answer. A mistake that is no action is a call that cannot be: of a function that
there is not, or with a value that is not listed.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from refinesynth.actions.calls import Call, call_of, text_of, tools_of
from refinesynth.chat.react import (
    Message,
    TurnLabel,
    introduced,
    label_of,
    render_player,
    render_task,
    task_with_actions,
)
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Script, Trajectory, flagged_turns

TOOL_INSTRUCTIONS = """\
Each time, think about what you know and what to try next, and write that down; then call one function, which is your action.
After each action you are told what happened. If an action turns out wrong, find out why and correct it."""
"""Form of the answer, at the end of the first user message."""

ACT_INSTRUCTIONS = """\
Each time, think about what you know and what to try next, and write that down; then call the function act with one available
action, with every placeholder in braces replaced by a value; case counts. After each action you are told what happened. If
an action turns out wrong, find out why and correct it."""
"""The same where the only function is `act(action)`."""

ThoughtIn = Literal["content", "reasoning_content"]
"""The key of an assistant message that holds the thought: text for everybody, or what the model thinks for itself."""


class ToolMessage(NamedTuple):
    """One chat message."""

    role: Literal["user", "assistant", "tool"]
    content: str
    loss: bool
    """True if training learns to write this message."""
    id: str = ""
    """Of the call that is made, or answered."""
    call: Call | None = None
    """An assistant's action."""
    label: TurnLabel = ""
    """Of an assistant's message."""

    def openai(
        self, thought: ThoughtIn = "content", *, arguments: Literal["text", "object"] = "text"
    ) -> dict[str, Any]:
        """As a chat completion has it, without the loss flag. Arguments are JSON text there; many chat templates want
        them as an object.
        """
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.role == "tool":
            return {**message, "tool_call_id": self.id}
        if self.call is None:
            return message
        given = dict(self.call.arguments)
        said: object = write_json(given).decode() if arguments == "text" else given
        call = {"id": self.id, "type": "function", "function": {"name": self.call.name, "arguments": said}}
        if thought == "reasoning_content":
            message |= {"content": "", thought: self.content}
        return {**message, "tool_calls": [call]}


def to_tool_messages(trajectory: Trajectory) -> list[ToolMessage]:
    """A whole trajectory, its last observation included; the functions are `tools_of(trajectory.script)`."""
    return render_tool_turns(trajectory.script, trajectory.turns)


def render_tool_turns(script: Script, turns: Sequence[PlayerTurn | DungeonMasterTurn]) -> list[ToolMessage]:
    """Any number of turns, as `chat.render_turns` has them as text.

    Ids are nine letters and digits, `call00000` for the first turn's, which every provider takes. A call that is
    followed by another one has an empty answer; observations that follow each other are one.
    """
    mistakes = set(flagged_turns(turns))
    messages = [ToolMessage("user", render_tool_task(script), loss=False)]
    for at, turn in enumerate(turns):
        last = messages[-1]
        if isinstance(turn, PlayerTurn):
            if last.call is not None:
                messages.append(ToolMessage("tool", "", loss=False, id=last.id))
            label = label_of(turn, mistake=at in mistakes)
            call = call_of(script, turn.action)
            messages.append(
                ToolMessage("assistant", turn.thought, label != "mistake", f"call{at:05d}", call=call, label=label)
            )
        elif last.call is not None:
            messages.append(ToolMessage("tool", turn.observation, loss=False, id=last.id))
        else:
            messages[-1] = last._replace(content=f"{last.content}\n\n{turn.observation}")
    return messages


def render_tool_task(script: Script) -> str:
    """The first user message: introduction, goal and how to answer; what can be done is in the functions."""
    return f"{introduced(script)}\n\nGoal: {script.goal}\n\n{TOOL_INSTRUCTIONS}"


def render_act_task(script: Script) -> str:
    """The task for a player whose one function is `act(action)`, whatever the world: the actions are in the message."""
    return task_with_actions(script, ACT_INSTRUCTIONS)


def render_tools(script: Script) -> list[dict[str, Any]]:
    """The functions beside the messages, as a chat completion's `tools` have them."""
    return [tool.definition() for tool in tools_of(script)]


def to_react(script: Script, messages: Sequence[ToolMessage]) -> list[Message]:
    """The same conversation as ReAct text: the way back of `render_tool_turns`."""
    task = render_tool_task(script)
    found: list[Message] = []
    for message in messages:
        if message.call is not None:
            turn = PlayerTurn(thought=message.content, action=text_of(script, message.call))
            found.append(Message("assistant", render_player(turn), message.loss, message.label))
        elif not found:
            found.append(Message("user", render_task(script) + message.content.removeprefix(task), loss=False))
        else:
            found.append(Message("user", message.content, loss=False))
    return found
