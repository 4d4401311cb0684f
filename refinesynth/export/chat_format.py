"""Formats of chat messages: conversations as `chat` renders them, written down in the shape that one reader wants."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from refinesynth.actions.calls import tools_of
from refinesynth.chat import Message, ToolMessage, to_messages, to_tool_messages
from refinesynth.export.masking import Masking, conversations
from refinesynth.export.shapes import CallShape, Record, Shape
from refinesynth.trajectory import Trajectory

DROPPED = "#correct"
"""Ends the id of a conversation without its mistakes, in a format without flags: every turn of the assistant is
right."""


@dataclass(frozen=True)
class ChatFormat:
    """A format of chat messages, as `chat.to_messages` renders them.

    Conversations end with their last assistant message: the closing observation, which nothing is trained on, is left
    out.
    """

    name: str
    reader: str
    advice: Mapping[Masking, str]
    shape: Shape
    calls: CallShape | None = None
    """For actions as tool calls, where the reader takes them."""

    def records(self, trajectory: Trajectory, masking: Masking) -> Iterator[Record]:
        for number, messages in enumerate(conversations(to_messages(trajectory), masking), start=1):
            yield _record(self.shape(trajectory.id + self.mark(masking, number), messages), messages)

    def mark(self, masking: Masking, number: int) -> str:
        """What stands behind the id where a reader cannot know otherwise what is to be trained on."""
        if masking is Masking.SPLIT:
            return f"#{number}"
        return DROPPED if masking is Masking.DROP and Masking.FLAG not in self.advice else ""


def _record(data: dict[str, JsonValue], messages: Sequence[Message | ToolMessage]) -> Record:
    spoken = sum(message.role == "assistant" for message in messages)
    trained = sum(message.loss for message in messages)
    return Record(data, trained, spoken - trained)


@dataclass(frozen=True)
class ToolCallFormat:
    """A format of chat messages with the actions as tool calls, as `chat.to_tool_messages` renders them."""

    chat: ChatFormat
    shape: CallShape

    @property
    def name(self) -> str:
        """That of the format."""
        return self.chat.name

    @property
    def reader(self) -> str:
        """See `Format.reader`."""
        return self.chat.reader

    @property
    def advice(self) -> Mapping[Masking, str]:
        """See `Format.advice`."""
        return self.chat.advice

    def records(self, trajectory: Trajectory, masking: Masking) -> Iterator[Record]:
        tools = tools_of(trajectory.script)
        for number, messages in enumerate(conversations(to_tool_messages(trajectory), masking), start=1):
            name = trajectory.id + self.chat.mark(masking, number)
            yield _record(self.shape(name, messages, tools), messages)
