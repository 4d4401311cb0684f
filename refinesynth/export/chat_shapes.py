"""Records of an export and their shapes in each chat format, from id and messages to a JSON object."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue

from refinesynth.actions.calls import Tool
from refinesynth.chat import Message, ToolMessage
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import Trajectory


class Masking(StrEnum):
    """Treatment of mistakes in an export."""

    FLAG = "flag"
    """One record per conversation, with a training flag on each message."""
    SPLIT = "split"
    """One record per correct turn, at its end; only the last message is trained. Exact, with several times the tokens."""
    DROP = "drop"
    """One record per conversation without mistakes and their answers. It shows no refinement; thoughts may mention removed
    answers."""
    PAIR = "pair"
    """One record per repaired mistake: its context, the repair to choose and the mistake to reject."""
    WORLD = "world"
    """One record per world, with its task and no turns."""


AnyMessage = Message | ToolMessage


def labels(trajectory: Trajectory, messages: Sequence[AnyMessage], key: str = "labels") -> dict[str, JsonValue]:
    """Return a record's labels under `key`, one per assistant message, if a repairer took part or a message mixes mistakes
    and right calls. The label of mixed calls joins theirs, as in `player+mistake`.
    """
    result: list[JsonValue] = []
    for message in (message for message in messages if message.role == "assistant"):
        call_labels = [call.label for call in message.calls] if isinstance(message, ToolMessage) else []
        result.append("+".join(call_labels) if len({*call_labels}) > 1 else message.label)
    informative = "repairer" in trajectory.provenance.models or any(
        label not in {"player", "mistake"} for label in result
    )
    return {key: result} if informative else {}


def conversations(messages: Sequence[AnyMessage], masking: Masking) -> Iterator[tuple[AnyMessage, ...]]:
    """Yield the messages of each record; no record without a message to train on.

    `messages` alternate and begin with a user message. Each conversation ends with an assistant message, because several
    trainers require it.
    """
    if masking is Masking.SPLIT:
        for index, message in enumerate(messages):
            if message.loss:
                yield (*(earlier._replace(loss=False) for earlier in messages[:index]), message)
        return
    remaining = list(messages) if masking is Masking.FLAG else _without_mistakes(messages)
    while remaining and remaining[-1].role != "assistant":
        remaining.pop()
    if any(message.loss for message in remaining):
        yield tuple(remaining)


def _without_mistakes(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    remaining: list[AnyMessage] = []
    dropped_ids: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage) and message.id:
            dropped_ids.update(call.id for call in message.calls if call.label == "mistake")
            if correct := [call for call in message.calls if call.label != "mistake"]:
                remaining.append(correct[0]._replace(content=message.content, loss=True, further=tuple(correct[1:])))
            elif message.id not in dropped_ids:
                remaining.append(message)
            continue
        is_mistake = message.role == "assistant" and not message.loss
        answers_mistake = message.role != "assistant" and bool(remaining) and remaining[-1].role != "assistant"
        if not is_mistake and not answers_mistake:
            remaining.append(message)
    return remaining


Shape = Callable[[str, Sequence[AnyMessage], Sequence[Tool]], dict[str, Any]]
"""Function from a record's id, messages and functions (for calls) to its JSON object."""

_SPEAKER = {"user": "human", "assistant": "gpt"}


class ExportRecord(NamedTuple):
    """One line of an export, or the reason for its absence."""

    data: dict[str, JsonValue]
    trained: int = 0
    """Number of assistant messages that are trained on."""
    masked: int = 0
    """Number of assistant messages that are context only."""
    omitted: str = ""
    """Reason for the absence of a line, with empty `data`, such as `mistakes without a repair`."""


def sharegpt(record_id: str, messages: Sequence[AnyMessage], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return ShareGPT's `conversations` of `from` and `value`, without flags."""
    del tools
    return {
        "id": record_id,
        "conversations": [{"from": _SPEAKER[message.role], "value": message.content} for message in messages],
    }


def agentinstruct(record_id: str, messages: Sequence[AnyMessage], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return ShareGPT's form with a boolean `loss` on every message, the form of AgentInstruct and AgentRefine."""
    record = sharegpt(record_id, messages, tools)
    entries = [
        {**entry, "loss": message.loss} for entry, message in zip(record["conversations"], messages, strict=True)
    ]
    return {**record, "conversations": entries}


def llamafactory(record_id: str, messages: Sequence[AnyMessage], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return LLaMA-Factory's v1 form: typed content and `loss_weight`, with the id in `extra_info`."""
    del tools
    return {
        "messages": [
            {
                "role": message.role,
                "content": [{"type": "text", "value": message.content}],
                "loss_weight": 1.0 if message.loss else 0.0,
            }
            for message in messages
        ],
        "extra_info": record_id,
    }


def openai(record_id: str, messages: Sequence[AnyMessage], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return OpenAI's fine-tuning form: `weight` on assistant messages, no id. With calls, it has `tools` and the flag
    `parallel_tool_calls`.
    """
    del record_id
    entries = [
        {**_completion(message), **({"weight": int(message.loss)} if message.role == "assistant" else {})}
        for message in messages
    ]
    parallel = any(isinstance(message, ToolMessage) and message.further for message in messages)
    fields = {**_tool_field(tools), "parallel_tool_calls": parallel} if tools else {}
    return {"messages": entries, **fields}


def flagged(
    key: str, mark: Callable[[bool], JsonValue] = bool, *, arguments: Literal["text", "object"] = "text"
) -> Shape:
    """Return a shape of messages with a flag under this key, also on user messages: without it, the role would decide.

    Arguments of calls are JSON text or, for readers that need them, objects; a table would give each object all keys.
    """

    def shape(record_id: str, messages: Sequence[AnyMessage], tools: Sequence[Tool]) -> dict[str, Any]:
        entries = [{**_completion(message, arguments), key: mark(message.loss)} for message in messages]
        return {"id": record_id, "messages": entries, **_tool_field(tools)}

    return shape


def prompt(messages: Sequence[AnyMessage]) -> list[dict[str, Any]]:
    """Return the messages of a prompt, with arguments of calls as objects."""
    return [_completion(message, "object") for message in messages]


def plain(record_id: str, messages: Sequence[AnyMessage], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return messages without flags, for trainers that decide by the role; `tools` are JSON text, for tables."""
    fields = {name: write_json(definitions).decode() for name, definitions in _tool_field(tools).items()}
    return {"id": record_id, "messages": [*map(_completion, messages)], **fields}


def prompt_completion(record_id: str, messages: Sequence[AnyMessage], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return TRL's prompt and completion, for conversations with only the last message trained."""
    entries = prompt(messages)
    return {"id": record_id, "prompt": entries[:-1], "completion": entries[-1:], **_tool_field(tools)}


def _completion(message: AnyMessage, arguments: Literal["text", "object"] = "text") -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        return message.openai(arguments=arguments)
    return {"role": message.role, "content": message.content}


def _tool_field(tools: Sequence[Tool]) -> dict[str, list[JsonValue]]:
    return {"tools": [tool.definition() for tool in tools]} if tools else {}
