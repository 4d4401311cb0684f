"""Records: one line of an export, and what one looks like in each chat format, an id and messages in, a JSON object
out.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, Self, TypeVar

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


_M = TypeVar("_M", Message, ToolMessage)


def conversations(messages: Sequence[_M], masking: Masking) -> Iterator[tuple[_M, ...]]:
    """The records' messages, in order; none if nothing in `messages` is to be trained on.

    `messages` alternate, a user's first, as `chat.to_messages` and `chat.to_tool_messages` give them. Each conversation ends with an assistant
    message: nothing after the last one can be trained on, and several trainers refuse or skip a conversation that ends
    otherwise.
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


def _without_mistakes(messages: Sequence[_M]) -> list[_M]:
    kept: list[_M] = []
    for message in messages:
        is_mistake = message.role == "assistant" and not message.loss
        answers_mistake = message.role != "assistant" and bool(kept) and kept[-1].role != "assistant"
        if not is_mistake and not answers_mistake:
            kept.append(message)
    return kept


Shape = Callable[[str, Sequence[Message]], dict[str, JsonValue]]
"""Writes one record from its id and messages."""

CallShape = Callable[[str, Sequence[ToolMessage], Sequence[Tool]], dict[str, JsonValue]]
"""Writes one record from its id, its messages with calls and the tools."""

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


def sharegpt(record_id: str, messages: Sequence[Message]) -> dict[str, JsonValue]:
    """`conversations` of `from` and `value`; there is no place for a flag."""
    return {
        "id": record_id,
        "conversations": [{"from": _SPEAKER[message.role], "value": message.content} for message in messages],
    }


def agentinstruct(record_id: str, messages: Sequence[Message]) -> dict[str, JsonValue]:
    """ShareGPT with a boolean `loss` on every message, as AgentInstruct and AgentRefine were released."""
    return {
        "id": record_id,
        "conversations": [
            {"from": _SPEAKER[message.role], "value": message.content, "loss": message.loss} for message in messages
        ],
    }


def llamafactory(record_id: str, messages: Sequence[Message]) -> dict[str, JsonValue]:
    """LLaMA-Factory v1: typed content, which it insists on, and `loss_weight`; `extra_info` is its own field for an
    id.
    """
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


def openai(record_id: str, messages: Sequence[Message]) -> dict[str, JsonValue]:
    """OpenAI's fine-tuning form: `weight` on assistant messages only, and no key beside `messages`, not even an id."""
    del record_id
    written: list[JsonValue] = []
    for message in messages:
        weight: dict[str, JsonValue] = {"weight": int(message.loss)} if message.role == "assistant" else {}
        written.append({"role": message.role, "content": message.content, **weight})
    return {"messages": written}


def flagged(key: str, mark: Callable[[bool], JsonValue] = bool) -> Shape:
    """Messages with a flag each under this key, user messages included: a missing one would leave it to the role."""

    def shape(record_id: str, messages: Sequence[Message]) -> dict[str, JsonValue]:
        written: list[JsonValue] = [
            {"role": message.role, "content": message.content, key: mark(message.loss)} for message in messages
        ]
        return {"id": record_id, "messages": written}

    return shape


def axolotl_thoughts(record_id: str, messages: Sequence[Message]) -> dict[str, JsonValue]:
    """As `flagged`, with each content in parts: of a turn that is trained on, what is thought and not what is done."""
    written: list[JsonValue] = []
    for message in messages:
        thought, action = split_thought(message.content) if message.loss else ("", message.content)
        said = message.content.removesuffix(action) if thought else ""
        written.append({"role": message.role, "content": _parts(said, action), "training": message.loss})
    return {"id": record_id, "messages": written}


def _parts(trained: str, context: str) -> list[JsonValue]:
    """Axolotl's parts of a content, which it joins; every content is a list, as a table has one type in a column."""
    parts = ((trained, True), (context, False))
    return [{"type": "text", "text": text, "train": train} for text, train in parts if text]


def plain(record_id: str, messages: Sequence[Message]) -> dict[str, JsonValue]:
    """Messages of which the role says whether they are trained on."""
    return {
        "id": record_id,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
    }


def prompt_completion(record_id: str, messages: Sequence[Message]) -> dict[str, JsonValue]:
    """TRL's prompt and completion, for a conversation whose last message alone is to be trained on."""
    plain: list[JsonValue] = [{"role": message.role, "content": message.content} for message in messages]
    return {"id": record_id, "prompt": plain[:-1], "completion": plain[-1:]}


def openai_calls(record_id: str, messages: Sequence[ToolMessage], tools: Sequence[Tool]) -> dict[str, JsonValue]:
    """OpenAI's fine-tuning form with `tools`; one call a turn, as the data has it."""
    del record_id
    written: list[JsonValue] = []
    for message in messages:
        weight: dict[str, JsonValue] = {"weight": int(message.loss)} if message.role == "assistant" else {}
        written.append({**message.openai(), **weight})
    return {"messages": written, "tools": _definitions(tools), "parallel_tool_calls": False}


def flagged_calls(
    key: str, mark: Callable[[bool], JsonValue] = bool, *, arguments: Literal["text", "object"] = "text"
) -> CallShape:
    """Messages with a flag each under this key, and `tools`. Arguments are JSON text unless the reader wants objects:
    a table of objects would give each call the keys of all others.
    """

    def shape(record_id: str, messages: Sequence[ToolMessage], tools: Sequence[Tool]) -> dict[str, JsonValue]:
        written: list[JsonValue] = [
            {**message.openai(arguments=arguments), key: mark(message.loss)} for message in messages
        ]
        return {"id": record_id, "messages": written, "tools": _definitions(tools)}

    return shape


def axolotl_thoughts_calls(
    record_id: str, messages: Sequence[ToolMessage], tools: Sequence[Tool]
) -> dict[str, JsonValue]:
    """As `axolotl_thoughts`; a call is no part of the content."""
    written: list[JsonValue] = []
    for message in messages:
        content = _parts(message.content, "") if message.loss else _parts("", message.content)
        written.append({**message.openai(), "content": content, "training": message.loss})
    return {"id": record_id, "messages": written, "tools": _definitions(tools)}


def plain_calls(record_id: str, messages: Sequence[ToolMessage], tools: Sequence[Tool]) -> dict[str, JsonValue]:
    """Messages of which the role says whether they are trained on, and `tools` as JSON text, so that a table keeps
    functions of different parameters apart.
    """
    written: list[JsonValue] = [message.openai() for message in messages]
    return {"id": record_id, "messages": written, "tools": write_json(_definitions(tools)).decode()}


def prompt_completion_calls(
    record_id: str, messages: Sequence[ToolMessage], tools: Sequence[Tool]
) -> dict[str, JsonValue]:
    """TRL's prompt and completion, and `tools`."""
    plain: list[JsonValue] = [message.openai(arguments="object") for message in messages]
    return {"id": record_id, "prompt": plain[:-1], "completion": plain[-1:], "tools": _definitions(tools)}


def _definitions(tools: Sequence[Tool]) -> list[JsonValue]:
    return [tool.definition() for tool in tools]
