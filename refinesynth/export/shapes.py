"""Records: one line of an export, and what one looks like in each chat format, an id and messages in, a JSON object
out.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol, Self

from pydantic import JsonValue

from refinesynth.actions.calls import Tool
from refinesynth.chat import Message, ToolMessage, split_thought
from refinesynth.text.jsontext import write_json


class Masking(StrEnum):
    """What an export does about the mistakes of a conversation."""

    FLAG = "flag"
    """One record a conversation; each message says whether it is trained on."""
    SPLIT = "split"
    """One record a correct turn: the conversation up to it, of which only the last message is to be trained on. Exact,
    at several times the tokens."""
    DROP = "drop"
    """One record a conversation, mistakes and the answers to them left out. What is left shows no refinement, and a
    later thought may speak of an answer that is no longer there."""
    PAIR = "pair"
    """One record a mistake that is repaired: what came before it, and the two turns, the one to choose and the one to
    reject."""
    WORLD = "world"
    """One record a world: its task, and nobody's turns."""


Spoken = Message | ToolMessage


def conversations(messages: Sequence[Spoken], masking: Masking) -> Iterator[tuple[Spoken, ...]]:
    """The records' messages, in order; none if nothing in `messages` is to be trained on.

    `messages` alternate, a user's first, as `chat.to_messages` and `chat.to_tool_messages` give them. Each conversation
    ends with an assistant message: nothing after the last one can be trained on, and several trainers refuse or skip a
    conversation that ends otherwise.
    """
    if masking is Masking.SPLIT:
        for at, message in enumerate(messages):
            if message.loss:
                yield (*(earlier._replace(loss=False) for earlier in messages[:at]), message)
        return
    kept = list(messages) if masking is Masking.FLAG else _without_mistakes(messages)
    while kept and kept[-1].role != "assistant":
        kept.pop()
    if any(message.loss for message in kept):
        yield tuple(kept)


def _without_mistakes(messages: Sequence[Spoken]) -> list[Spoken]:
    kept: list[Spoken] = []
    for message in messages:
        is_mistake = message.role == "assistant" and not message.loss
        answers_mistake = message.role != "assistant" and bool(kept) and kept[-1].role != "assistant"
        if not is_mistake and not answers_mistake:
            kept.append(message)
    return kept


class Shape(Protocol):
    """Writes one record from its id and messages; where actions are calls, `tools` are the functions."""

    def __call__(self, record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool] = ()) -> dict[str, Any]: ...


_SPEAKER = {"user": "human", "assistant": "gpt"}


class Record(NamedTuple):
    """One line of an export; or the reason why there is none."""

    data: dict[str, JsonValue]
    trained: int
    """Assistant messages that a trainer learns to write."""
    masked: int
    """Assistant messages that are context only."""
    omitted: str = ""
    """Why nothing is written: what is left out, such as `mistakes without a repair`."""

    @classmethod
    def none(cls, why: str) -> Self:
        """No line."""
        return cls({}, 0, 0, why)


def sharegpt(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool] = ()) -> dict[str, Any]:
    """`conversations` of `from` and `value`; there is no place for a flag."""
    del tools
    return {
        "id": record_id,
        "conversations": [{"from": _SPEAKER[message.role], "value": message.content} for message in messages],
    }


def agentinstruct(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool] = ()) -> dict[str, Any]:
    """ShareGPT with a boolean `loss` on every message, as AgentInstruct and AgentRefine were released."""
    record = sharegpt(record_id, messages, tools)
    written = [{**said, "loss": message.loss} for said, message in zip(record["conversations"], messages, strict=True)]
    return {**record, "conversations": written}


def llamafactory(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool] = ()) -> dict[str, Any]:
    """LLaMA-Factory v1: typed content, which it insists on, and `loss_weight`; `extra_info` is its own field for an
    id.
    """
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


def openai(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool] = ()) -> dict[str, Any]:
    """OpenAI's fine-tuning form: `weight` on assistant messages only, and no key beside `messages`, not even an id;
    with calls `tools`, and one call a turn, as the data has it.
    """
    del record_id
    written = [
        {**_completion(message), **({"weight": int(message.loss)} if message.role == "assistant" else {})}
        for message in messages
    ]
    beside = {**_listed(tools), "parallel_tool_calls": False} if tools else {}
    return {"messages": written, **beside}


def flagged(
    key: str, mark: Callable[[bool], JsonValue] = bool, *, arguments: Literal["text", "object"] = "text"
) -> Shape:
    """Messages with a flag each under this key, user messages included: a missing one would leave it to the role.
    Arguments of calls are JSON text unless the reader wants objects: a table of objects would give each call the keys
    of all others.
    """

    def shape(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool] = ()) -> dict[str, Any]:
        written = [{**_completion(message, arguments), key: mark(message.loss)} for message in messages]
        return {"id": record_id, "messages": written, **_listed(tools)}

    return shape


def axolotl_thoughts(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool] = ()) -> dict[str, Any]:
    """As `flagged`, with each content in parts, which Axolotl joins: of a turn that is trained on, what is thought and
    not what is done. A call is no part of the content. Every content is a list, as a table has one type in a column.
    """
    written: list[dict[str, Any]] = []
    for message in messages:
        done = "" if isinstance(message, ToolMessage) else split_thought(message.content)[1]
        thought = message.content.removesuffix(done) if message.loss else ""
        parts = ((thought, True), (message.content.removeprefix(thought), False))
        content = [{"type": "text", "text": text, "train": train} for text, train in parts if text]
        written.append({**_completion(message), "content": content, "training": message.loss})
    return {"id": record_id, "messages": written, **_listed(tools)}


def plain(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool] = ()) -> dict[str, Any]:
    """Messages of which the role says whether they are trained on; `tools` are JSON text, so that a table keeps
    functions of different parameters apart.
    """
    beside = {name: write_json(listed).decode() for name, listed in _listed(tools).items()}
    return {"id": record_id, "messages": [*map(_completion, messages)], **beside}


def prompt_completion(record_id: str, messages: Sequence[Spoken], tools: Sequence[Tool] = ()) -> dict[str, Any]:
    """TRL's prompt and completion, for a conversation whose last message alone is to be trained on."""
    written = [_completion(message, "object") for message in messages]
    return {"id": record_id, "prompt": written[:-1], "completion": written[-1:], **_listed(tools)}


def _completion(message: Spoken, arguments: Literal["text", "object"] = "text") -> dict[str, Any]:
    """A message as a chat completion has it."""
    if isinstance(message, ToolMessage):
        return message.openai(arguments=arguments)
    return {"role": message.role, "content": message.content}


def _listed(tools: Sequence[Tool]) -> dict[str, list[JsonValue]]:
    return {"tools": [tool.definition() for tool in tools]} if tools else {}
