"""Requests and completions in OpenAI's format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, cast

import orjson
from pydantic import JsonValue

from refinesynth.actions.calls import Call
from refinesynth.chat import tool_instructions_in
from refinesynth.chat.react import with_former_instructions
from refinesynth.prompts.data_blocks import read_blocks
from refinesynth.rehearsal.injected_faults import Draws, Faults
from refinesynth.text.formatting import scrub

_CHARACTERS_PER_TOKEN = 4
"""Estimate for English, for usage counts."""

_SEED_BITS = 64


@dataclass(frozen=True)
class Form:
    """Form of an answer: text, JSON, or a tool call."""

    kind: Literal["text", "json", "tool"]
    tool: str = ""
    required: bool = False
    """True if the tool call is required."""


@dataclass(frozen=True)
class Request:
    """Parts of a request that determine the answer; model settings, headers and keys do not."""

    messages: tuple[tuple[str, str], ...]
    """Role and text of each message."""
    form: Form
    seed: int | str | None
    max_tokens: int | None
    """Maximum number of tokens in the answer; None for no limit."""
    model: str
    calls: tuple[tuple[int, str, str], ...]
    """Tool calls in the messages: index of the message, function name, and arguments as JSON text."""
    tools: tuple[Mapping[str, object], ...] = ()

    @classmethod
    def read(cls, model: object, messages: object, options: Mapping[str, object]) -> "Request":
        """Read the arguments of a completion request; accepts any values."""
        entries = [item for item in map(mapping, items(messages)) if item]
        return cls(
            messages=tuple((str(item.get("role"))[:20], _text_of(item.get("content"))) for item in entries),
            form=_form(options),
            seed=_seed(options.get("seed")),
            max_tokens=_positive(options.get("max_completion_tokens")) or _positive(options.get("max_tokens")),
            model=model if isinstance(model, str) else "rehearsal",
            calls=tuple((i, *call) for i, item in enumerate(entries) for call in _calls(item.get("tool_calls"))),
            tools=tuple(mapping(mapping(tool).get("function")) for tool in items(options.get("tools"))),
        )

    @property
    def plays_by_calls(self) -> bool:
        """True for a player that acts by function calls."""
        return bool(self.tools) and any(role == "user" and tool_instructions_in(text) for role, text in self.messages)

    @cached_property
    def blocks(self) -> dict[str, JsonValue]:
        """All data blocks of messages except the assistant's, by name; the last of each name."""
        by_name: dict[str, JsonValue] = {}
        for role, text in self.messages:
            if role != "assistant":
                by_name.update(read_blocks(text))
        return by_name

    def draws(self, faults: Faults, seed: int) -> Draws:
        parts = (with_former_instructions(part) for message in self.messages for part in message)
        return draws_of(faults, seed, self.seed, *parts, *(f"{name} {arguments}" for _, name, arguments in self.calls))


def draws_of(faults: Faults, *parts: int | str | None) -> Draws:
    """Return draws that depend on these parts only."""
    digest = blake2b(digest_size=16)
    for part in parts:
        text = f"{type(part).__name__} {part}".encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(text))
        digest.update(text)
    return Draws(digest.digest(), faults)


def completion(request: Request, content: str, draws: Draws, calls: Sequence[Call] = ()) -> dict[str, Any]:
    """Return a chat completion with `content` as message or tool arguments, perhaps with calls."""
    content = scrub(content)
    structured = request.form.kind == "tool" and not request.plays_by_calls
    reason = "tool_calls" if structured or calls else "stop"
    if request.max_tokens is not None and tokens(content) > request.max_tokens:
        content, reason = content[: request.max_tokens * _CHARACTERS_PER_TOKEN], "length"
    message: dict[str, Any] = {"role": "assistant", "content": None if structured else content}
    functions = [(name, dumps(dict(call_arguments))) for name, call_arguments in calls if reason != "length"]
    if functions := [(request.form.tool, content)] if structured else functions:
        message["tool_calls"] = [
            {
                "id": f"call_{draws.digest.hex()[:24]}{index or ''}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for index, (name, arguments) in enumerate(functions)
        ]
    prompt_tokens = sum(tokens(text) for _, text in request.messages)
    return envelope(f"chatcmpl-{draws.digest.hex()}", request.model, message, reason, (prompt_tokens, tokens(content)))


def envelope(
    identity: str, model: str, message: Mapping[str, Any], reason: str, tokens_used: tuple[int, int]
) -> dict[str, Any]:
    """Return a chat completion with one message; tokens are those read and written."""
    prompt_tokens, completion_tokens = tokens_used
    return {
        "id": identity,
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def _form(options: Mapping[str, object]) -> Form:
    tools = (mapping(mapping(tool).get("function")) for tool in items(options.get("tools")))
    names = [name for tool in tools if isinstance(name := tool.get("name"), str)]
    choice = options.get("tool_choice")
    forced = mapping(mapping(choice).get("function")).get("name")
    required = forced in names or choice in ("required", "any")
    response_format = mapping(options.get("response_format"))
    if names and choice != "none" and (required or response_format.get("type") not in {"json_schema", "json_object"}):
        return Form("tool", tool=next((name for name in names if name == forced), names[0]), required=required)
    return Form("json" if response_format.get("type") in {"json_schema", "json_object"} else "text")


def items(value: object) -> list[object]:
    return list(cast("list[object]", value)) if isinstance(value, list | tuple) else []


def mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = [mapping(part).get("text") for part in items(content)]
    return "\n".join(part for part in parts if isinstance(part, str))


def _calls(calls: object) -> list[tuple[str, str]]:
    functions = [mapping(mapping(call).get("function")) for call in items(calls)]
    return [
        (str(function.get("name")), arguments)
        for function in functions
        if isinstance(arguments := function.get("arguments"), str)
    ]


def _seed(value: object) -> int | str | None:
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _SEED_BITS else None
    return value if isinstance(value, str) else None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def dumps(data: object) -> str:
    return orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS).decode()
