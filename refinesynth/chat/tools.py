"""Trajectories as chat messages with tool calls and loss flags: the same turns as ReAct text.

The actions are functions beside the messages (`actions.calls`). The first user message holds the task without them; a
player's turn is an assistant message with its thought as content and its action as a call; the observation is that
call's answer. A mistake that is no action becomes a call of an unknown function, or with an unlisted value.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from refinesynth.actions.calls import Call, call_of, text_of, tools_of
from refinesynth.chat.react import (
    Message,
    MessageLabel,
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
"""Description of the answer's form, at the end of the first user message."""

PARALLEL_INSTRUCTIONS = """\
Each time, think about what you know and what to try next, and write that down; then call one function, which is your action,
or several, of which none needs the result of another. They are executed in their order, and after all of them you are told
what happened. If an action turns out wrong, find out why and correct it."""
"""The same for messages with several calls."""

ACT_INSTRUCTIONS = """\
Each time, think about what you know and what to try next, and write that down; then call the function act with one available
action, with every placeholder in braces replaced by a value; case counts. After each action you are told what happened. If
an action turns out wrong, find out why and correct it."""
"""The same for the single function `act(action)`."""

ThoughtIn = Literal["content", "reasoning_content"]
"""Key of an assistant message that holds the thought: visible text, or reasoning."""


class ToolMessage(NamedTuple):
    """One chat message."""

    role: Literal["user", "assistant", "tool"]
    content: str
    loss: bool
    """True if training learns to write this message; with several calls, only if none is a mistake."""
    id: str = ""
    """Id of the call that is made or answered."""
    call: Call | None = None
    """An assistant's action; the first of several."""
    label: MessageLabel = ""
    """Label of an assistant's message or its first call."""
    further: tuple["ToolMessage", ...] = ()
    """Further calls of the same message, each as a message without content."""

    @property
    def calls(self) -> tuple["ToolMessage", ...]:
        """Messages of the calls, one by one."""
        return () if self.call is None else (self, *self.further)

    def openai(
        self, thought: ThoughtIn = "content", *, arguments: Literal["text", "object"] = "text"
    ) -> dict[str, Any]:
        """Return the message in the form of a chat completion, without the loss flag. The thought beside a call is
        under the key `thought`. A call's arguments are JSON text by default; many chat templates expect an object.
        """
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.role == "tool":
            return {**message, "tool_call_id": self.id}
        if self.call is None:
            return message
        calls: list[dict[str, Any]] = []
        for name, (function, values) in ((entry.id, entry.call) for entry in self.calls if entry.call is not None):
            encoded: object = write_json(dict(values)).decode() if arguments == "text" else dict(values)
            calls.append({"id": name, "type": "function", "function": {"name": function, "arguments": encoded}})
        if thought == "reasoning_content":
            message |= {"content": "", thought: self.content}
        return {**message, "tool_calls": calls}


def to_tool_messages(trajectory: Trajectory) -> list[ToolMessage]:
    """Return a whole trajectory, including its last observation; the functions are `tools_of(trajectory.script)`."""
    return render_tool_turns(trajectory.script, trajectory.turns, parallel=trajectory.provenance.parallel_calls)


def render_tool_turns(
    script: Script, turns: Sequence[PlayerTurn | DungeonMasterTurn], *, parallel: bool = False
) -> list[ToolMessage]:
    """Return any number of turns, the counterpart of `chat.render_turns`. With `parallel`, or if a message has several
    calls, the task allows several.

    Ids have nine letters and digits, `call00000` for the first turn, a form that every provider accepts. A call that
    another call follows without an answer gets an empty one; the last call may remain unanswered. Consecutive
    observations are joined. The answers to the calls of one message follow it in order.
    """
    mistakes = set(flagged_turns(turns))
    allowed = parallel or any(isinstance(turn, PlayerTurn) and turn.parallel for turn in turns)
    messages = [ToolMessage("user", render_tool_task(script, parallel=allowed), loss=False)]
    player_index, call_id = 0, ""
    for index, turn in enumerate(turns):
        if isinstance(turn, PlayerTurn):
            if call_id:
                messages.append(ToolMessage("tool", "", loss=False, id=call_id))
            label, call_id = label_of(turn, mistake=index in mistakes), f"call{index:05d}"
            call = call_of(script, turn.action)
            new = ToolMessage("assistant", turn.thought, label != "mistake", call_id, call=call, label=label)
            if player_index and turn.parallel and not turn.thought:
                first = messages[player_index]
                messages[player_index] = first._replace(loss=first.loss and new.loss, further=(*first.further, new))
            else:
                player_index = len(messages)
                messages.append(new)
        elif call_id:
            messages.append(ToolMessage("tool", turn.observation, loss=False, id=call_id))
            call_id = ""
        else:
            messages[-1] = messages[-1]._replace(content=f"{messages[-1].content}\n\n{turn.observation}")
    return messages


def render_tool_task(script: Script, *, parallel: bool = False) -> str:
    """Return the first user message: introduction, goal, and the answer's form, with `parallel` for several calls."""
    return f"{introduced(script)}\n\nGoal: {script.goal}\n\n{PARALLEL_INSTRUCTIONS if parallel else TOOL_INSTRUCTIONS}"


def tool_instructions_in(text: str) -> str:
    """Return the description of the form in a task for calls; empty for another text."""
    return next((form for form in (TOOL_INSTRUCTIONS, PARALLEL_INSTRUCTIONS) if form in text), "")


def render_act_task(script: Script) -> str:
    """Return the task for a player whose only function is `act(action)` in every world; the message lists the actions."""
    return task_with_actions(script, ACT_INSTRUCTIONS)


def render_tools(script: Script) -> list[dict[str, Any]]:
    """Return the functions in the form of a chat completion's `tools`."""
    return [tool.definition() for tool in tools_of(script)]


def to_react(script: Script, messages: Sequence[ToolMessage]) -> list[Message]:
    """Return the conversation as ReAct text, the inverse of `render_tool_turns`. Each call is followed by its answer."""
    task = render_tool_task(script, parallel=PARALLEL_INSTRUCTIONS in messages[0].content)
    rendered: list[Message] = []
    pending: list[Message] = []
    for message in messages:
        for part in message.calls:
            if part.call is not None:
                turn = PlayerTurn(thought=part.content, action=text_of(script, part.call))
                pending.append(Message("assistant", render_player(turn), part.label != "mistake", part.label))
        if message.call is None and rendered:
            rendered += (*pending[:1], Message("user", message.content, loss=False))
            del pending[:1]
        elif not rendered:
            rendered.append(Message("user", render_task(script) + message.content.removeprefix(task), loss=False))
    return [*rendered, *pending]
