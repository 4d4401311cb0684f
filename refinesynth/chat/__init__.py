"""Trajectories as chat messages with loss flags, in ReAct text or tool calls.

The Player, the exports, training and evaluation share this rendering.
"""

from refinesynth.chat.react import (
    INSTRUCTIONS,
    SOMEWHERE,
    Message,
    action_label,
    parse_player,
    read_player,
    render_action,
    render_player,
    render_task,
    render_turns,
    shared_values,
    split_thought,
    thinking_in,
    to_messages,
)
from refinesynth.chat.tools import (
    PARALLEL_INSTRUCTIONS,
    TOOL_INSTRUCTIONS,
    ThoughtIn,
    ToolMessage,
    render_act_task,
    render_tool_task,
    render_tool_turns,
    render_tools,
    to_react,
    to_tool_messages,
    tool_instructions_in,
)

__all__ = [
    "INSTRUCTIONS",
    "PARALLEL_INSTRUCTIONS",
    "SOMEWHERE",
    "TOOL_INSTRUCTIONS",
    "Message",
    "ThoughtIn",
    "ToolMessage",
    "action_label",
    "parse_player",
    "read_player",
    "render_act_task",
    "render_action",
    "render_player",
    "render_task",
    "render_tool_task",
    "render_tool_turns",
    "render_tools",
    "render_turns",
    "shared_values",
    "split_thought",
    "thinking_in",
    "to_messages",
    "to_react",
    "to_tool_messages",
    "tool_instructions_in",
]
