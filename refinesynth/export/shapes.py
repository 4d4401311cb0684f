"""Records: one line of an export, and what one looks like in each chat format, an id and messages in, a JSON object
out.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

from pydantic import JsonValue

from refinesynth.actions.calls import Tool
from refinesynth.chat import Message, ToolMessage

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


def loss_messages(record_id: str, messages: Sequence[Message]) -> dict[str, JsonValue]:
    """Messages with a boolean `loss` each: ms-swift's form, and TRL's with a template that honours the key."""
    return {
        "id": record_id,
        "messages": [{"role": message.role, "content": message.content, "loss": message.loss} for message in messages],
    }


def axolotl(record_id: str, messages: Sequence[Message]) -> dict[str, JsonValue]:
    """Messages with a boolean `training` each, user messages included: a missing one would leave it to the role."""
    return {
        "id": record_id,
        "messages": [
            {"role": message.role, "content": message.content, "training": message.loss} for message in messages
        ],
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


def loss_calls(record_id: str, messages: Sequence[ToolMessage], tools: Sequence[Tool]) -> dict[str, JsonValue]:
    """Messages with a boolean `loss` each, and `tools`, whose column TRL gives to the chat template."""
    written: list[JsonValue] = [{**message.openai(arguments="object"), "loss": message.loss} for message in messages]
    return {"id": record_id, "messages": written, "tools": _definitions(tools)}


def axolotl_calls(record_id: str, messages: Sequence[ToolMessage], tools: Sequence[Tool]) -> dict[str, JsonValue]:
    """Messages with a boolean `training` each, and `tools`. Arguments are JSON text: a table of objects would give each
    call the keys of all others, and Axolotl reads the text.
    """
    written: list[JsonValue] = [{**message.openai(), "training": message.loss} for message in messages]
    return {"id": record_id, "messages": written, "tools": _definitions(tools)}


def prompt_completion_calls(
    record_id: str, messages: Sequence[ToolMessage], tools: Sequence[Tool]
) -> dict[str, JsonValue]:
    """TRL's prompt and completion, and `tools`."""
    plain: list[JsonValue] = [message.openai(arguments="object") for message in messages]
    return {"id": record_id, "prompt": plain[:-1], "completion": plain[-1:], "tools": _definitions(tools)}


def _definitions(tools: Sequence[Tool]) -> list[JsonValue]:
    return [tool.definition() for tool in tools]
