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


Spoken = Message | ToolMessage


def labels(trajectory: Trajectory, messages: Sequence[Spoken]) -> dict[str, JsonValue]:
    """Return a record's `labels`, one per assistant message, if a repairer took part or a message mixes mistakes and right
    calls. The label of mixed calls joins theirs, as in `player+mistake`.
    """
    found: list[JsonValue] = []
    for message in (message for message in messages if message.role == "assistant"):
        each = [one.label for one in message.calls] if isinstance(message, ToolMessage) else []
        found.append("+".join(each) if len({*each}) > 1 else message.label)
    informative = "repairer" in trajectory.provenance.models or any(
        label not in {"player", "mistake"} for label in found
    )
    return {"labels": found} if informative else {}


def conversations(messages: Sequence[Spoken], masking: Masking) -> Iterator[tuple[Spoken, ...]]:
    """Yield the messages of each record; no record without a message to train on.

    `messages` alternate and begin with a user message. Each conversation ends with an assistant message, because several
    trainers require it.
    """
    if masking is Masking.SPLIT:
        for at, message in enumerate(messages):
            if message.loss:
                yield (*(earlier._replace(loss=False) for earlier in messages[:at]), message)
        return
    remaining = list(messages) if masking is Masking.FLAG else _without_mistakes(messages)
    while remaining and remaining[-1].role != "assistant":
        remaining.pop()
    if any(message.loss for message in remaining):
        yield tuple(remaining)


def _without_mistakes(messages: Sequence[Spoken]) -> list[Spoken]:
    remaining: list[Spoken] = []
    gone: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage) and message.id:
            gone.update(one.id for one in message.calls if one.label == "mistake")
            if right := [one for one in message.calls if one.label != "mistake"]:
                remaining.append(right[0]._replace(content=message.content, loss=True, further=tuple(right[1:])))
            elif message.id not in gone:
                remaining.append(message)
            continue
        is_mistake = message.role == "assistant" and not message.loss
        answers_mistake = message.role != "assistant" and bool(remaining) and remaining[-1].role != "assistant"
        if not is_mistake and not answers_mistake:
            remaining.append(message)
    return remaining


Shape = Callable[[str, Sequence[Spoken], Sequence[Tool]], dict[str, Any]]
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


def sharegpt(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return ShareGPT's `conversations` of `from` and `value`, without flags."""
    del tools
    return {
        "id": record_id,
        "conversations": [{"from": _SPEAKER[message.role], "value": message.content} for message in messages],
    }


def agentinstruct(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return ShareGPT's form with a boolean `loss` on every message, the form of AgentInstruct and AgentRefine."""
    record = sharegpt(record_id, messages, tools)
    written = [
        {**entry, "loss": message.loss} for entry, message in zip(record["conversations"], messages, strict=True)
    ]
    return {**record, "conversations": written}


def llamafactory(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool]) -> dict[str, Any]:
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


def openai(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return OpenAI's fine-tuning form: `weight` on assistant messages, no id. With calls, it has `tools` and the flag
    `parallel_tool_calls`.
    """
    del record_id
    written = [
        {**_completion(message), **({"weight": int(message.loss)} if message.role == "assistant" else {})}
        for message in messages
    ]
    several = any(isinstance(message, ToolMessage) and message.further for message in messages)
    further = {**_listed(tools), "parallel_tool_calls": several} if tools else {}
    return {"messages": written, **further}


def flagged(
    key: str, mark: Callable[[bool], JsonValue] = bool, *, arguments: Literal["text", "object"] = "text"
) -> Shape:
    """Return a shape of messages with a flag under this key, also on user messages: without it, the role would decide.

    Arguments of calls are JSON text or, for readers that need them, objects; a table would give each object all keys.
    """

    def shape(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool]) -> dict[str, Any]:
        written = [{**_completion(message, arguments), key: mark(message.loss)} for message in messages]
        return {"id": record_id, "messages": written, **_listed(tools)}

    return shape


def prompt(messages: Sequence[Spoken]) -> list[dict[str, Any]]:
    """Return the messages of a prompt, with arguments of calls as objects."""
    return [_completion(message, "object") for message in messages]


def plain(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return messages without flags, for trainers that decide by the role; `tools` are JSON text, for tables."""
    further = {name: write_json(listed).decode() for name, listed in _listed(tools).items()}
    return {"id": record_id, "messages": [*map(_completion, messages)], **further}


def prompt_completion(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool]) -> dict[str, Any]:
    """Return TRL's prompt and completion, for conversations with only the last message trained."""
    written = prompt(messages)
    return {"id": record_id, "prompt": written[:-1], "completion": written[-1:], **_listed(tools)}


def _completion(message: Spoken, arguments: Literal["text", "object"] = "text") -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        return message.openai(arguments=arguments)
    return {"role": message.role, "content": message.content}


def _listed(tools: Sequence[Tool]) -> dict[str, list[JsonValue]]:
    return {"tools": [tool.definition() for tool in tools]} if tools else {}
