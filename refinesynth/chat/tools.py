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

PARALLEL_INSTRUCTIONS = """\
Each time, think about what you know and what to try next, and write that down; then call one function, which is your action,
or several, of which none needs the result of another. They are executed in their order, and after all of them you are told
what happened. If an action turns out wrong, find out why and correct it."""
"""The same where a message may hold several calls."""

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
    """True if training learns to write this message: of several calls, all are right."""
    id: str = ""
    """Of the call that is made, or answered."""
    call: Call | None = None
    """An assistant's action; of several, the first."""
    label: TurnLabel = ""
    """Of an assistant's message, or its first call."""
    further: tuple["ToolMessage", ...] = ()
    """The other calls of the same message, each as a message without content."""

    @property
    def calls(self) -> tuple["ToolMessage", ...]:
        """Messages of the calls, one by one."""
        return () if self.call is None else (self, *self.further)

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
        calls: list[dict[str, Any]] = []
        for name, (function, given) in ((one.id, one.call) for one in self.calls if one.call is not None):
            said: object = write_json(dict(given)).decode() if arguments == "text" else dict(given)
            calls.append({"id": name, "type": "function", "function": {"name": function, "arguments": said}})
        if thought == "reasoning_content":
            message |= {"content": "", thought: self.content}
        return {**message, "tool_calls": calls}


def to_tool_messages(trajectory: Trajectory) -> list[ToolMessage]:
    """A whole trajectory, its last observation included; the functions are `tools_of(trajectory.script)`."""
    return render_tool_turns(trajectory.script, trajectory.turns, parallel=trajectory.provenance.parallel_calls)


def render_tool_turns(
    script: Script, turns: Sequence[PlayerTurn | DungeonMasterTurn], *, parallel: bool = False
) -> list[ToolMessage]:
    """Any number of turns, as `chat.render_turns` has them as text; with `parallel`, or where a message has several calls,
    the task allows that.

    Ids are nine letters and digits, `call00000` for the first turn's, which every provider takes. A call that is
    followed by another one has an empty answer; observations that follow each other are one. The answers to the calls of
    one message follow it in their order.
    """
    mistakes = set(flagged_turns(turns))
    allowed = parallel or any(isinstance(turn, PlayerTurn) and turn.parallel for turn in turns)
    messages = [ToolMessage("user", render_tool_task(script, parallel=allowed), loss=False)]
    spoken, waiting = 0, ""
    for at, turn in enumerate(turns):
        if isinstance(turn, PlayerTurn):
            if waiting:
                messages.append(ToolMessage("tool", "", loss=False, id=waiting))
            label, waiting = label_of(turn, mistake=at in mistakes), f"call{at:05d}"
            call = call_of(script, turn.action)
            made = ToolMessage("assistant", turn.thought, label != "mistake", waiting, call=call, label=label)
            if spoken and turn.parallel and not turn.thought:
                said = messages[spoken]
                messages[spoken] = said._replace(loss=said.loss and made.loss, further=(*said.further, made))
            else:
                spoken = len(messages)
                messages.append(made)
        elif waiting:
            messages.append(ToolMessage("tool", turn.observation, loss=False, id=waiting))
            waiting = ""
        else:
            messages[-1] = messages[-1]._replace(content=f"{messages[-1].content}\n\n{turn.observation}")
    return messages


def render_tool_task(script: Script, *, parallel: bool = False) -> str:
    """The first user message: introduction, goal, and how to answer, by one call or if `parallel` by several."""
    return f"{introduced(script)}\n\nGoal: {script.goal}\n\n{PARALLEL_INSTRUCTIONS if parallel else TOOL_INSTRUCTIONS}"


def tool_instructions_in(text: str) -> str:
    """Return the form of the answer that a task for calls ends with; empty if the text is none."""
    return next((one for one in (TOOL_INSTRUCTIONS, PARALLEL_INSTRUCTIONS) if one in text), "")


def render_act_task(script: Script) -> str:
    """The task for a player whose one function is `act(action)`, whatever the world: the actions are in the message."""
    return task_with_actions(script, ACT_INSTRUCTIONS)


def render_tools(script: Script) -> list[dict[str, Any]]:
    """The functions beside the messages, as a chat completion's `tools` have them."""
    return [tool.definition() for tool in tools_of(script)]


def to_react(script: Script, messages: Sequence[ToolMessage]) -> list[Message]:
    """The same conversation as ReAct text: the way back of `render_tool_turns`. Each call is followed by its answer."""
    task = render_tool_task(script, parallel=PARALLEL_INSTRUCTIONS in messages[0].content)
    found: list[Message] = []
    waiting: list[Message] = []
    for message in messages:
        for one in message.calls:
            if one.call is not None:
                turn = PlayerTurn(thought=one.content, action=text_of(script, one.call))
                waiting.append(Message("assistant", render_player(turn), one.label != "mistake", one.label))
        if message.call is None and found:
            found += (*waiting[:1], Message("user", message.content, loss=False))
            del waiting[:1]
        elif not found:
            found.append(Message("user", render_task(script) + message.content.removeprefix(task), loss=False))
    return [*found, *waiting]
