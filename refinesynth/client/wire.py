"""From pydantic-ai's messages and parameters to the arguments of a chat completion, in OpenAI's words."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from refinesynth.text.jsontext import scrub

_PASSED = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "logit_bias": "logit_bias",
    "stop_sequences": "stop",
    "extra_headers": "extra_headers",
    "extra_body": "extra_body",
}
"""Settings that go into a request as they are: pydantic-ai's name to litellm's."""


def chat_messages(
    messages: Sequence[ModelMessage], parameters: ModelRequestParameters, *, thinking_field: str | None = None
) -> list[dict[str, Any]]:
    """The conversation, everything that the system says first joined into one message.

    One, because the chat templates of many open models take no second system message. `thinking_field` names the key
    under which a provider wants its own thinking back; without it thinking is left out.

    Raises:
        UserError: A part that this cannot say in a chat completion, such as an image: it must not vanish silently.
    """
    mapped: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            mapped.extend(_said_to_the_model(message))
        elif answer := _said_by_the_model(message, thinking_field):
            mapped.append(answer)
    leading = next((at for at, message in enumerate(mapped) if message["role"] != "system"), len(mapped))
    system = [*(message["content"] for message in mapped[:leading]), *_instructions(messages, parameters)]
    rest = mapped[leading:]
    return [{"role": "system", "content": "\n\n".join(system)}, *rest] if system else rest


def tools(parameters: ModelRequestParameters, *, strict: bool) -> list[dict[str, Any]]:
    """The tools that the model may call, the output tool among them; `strict` where the provider knows the flag."""
    return [_tool(definition, strict=strict) for definition in parameters.declared_tool_defs.values()]


def tool_choice(parameters: ModelRequestParameters, settings: ModelSettings, *, forced: bool) -> str:
    """Whether the model must call a tool: where no text is asked for and `forced` says that it can be made to.

    Raises:
        UserError: A choice that names tools one by one, which no role needs and not every provider knows.
    """
    choice = settings.get("tool_choice")
    if choice not in (None, "auto", "none", "required"):
        raise UserError(f"tool_choice={choice!r} cannot be sent; give 'auto', 'none' or 'required'")
    if choice == "none" and not parameters.output_tools:
        return "none"
    wanted = choice == "required" or not parameters.allow_text_output
    return "required" if wanted and forced else "auto"


def response_format(parameters: ModelRequestParameters, *, strict: bool, json_mode: bool) -> dict[str, Any] | None:
    """What holds the answer to JSON: the schema in native mode, JSON mode for prompted output where there is one."""
    if parameters.output_mode == "native" and parameters.output_object is not None:
        return {"type": "json_schema", "json_schema": _schema(parameters.output_object, strict=strict)}
    if parameters.output_mode == "prompted" and json_mode:
        return {"type": "json_object"}
    return None


def passed_on(settings: ModelSettings) -> dict[str, Any]:
    """The settings that go into the request as they are, under litellm's names."""
    given = dict(settings)
    return {ours: given[theirs] for theirs, ours in _PASSED.items() if given.get(theirs) is not None}


def _said_to_the_model(message: ModelRequest) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, SystemPromptPart):
            yield {"role": "system", "content": scrub(part.content)}
        elif isinstance(part, UserPromptPart):
            yield {"role": "user", "content": scrub(_user_text(part.content))}
        elif isinstance(part, ToolReturnPart):
            content = scrub(part.model_response_str())
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}
        else:
            raise _unsayable(part)


def _user_text(content: str | Sequence[UserContent]) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for item in content:
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, TextContent):
            texts.append(item.content)
        else:
            raise _unsayable(item)
    return "\n\n".join(texts)


def _said_by_the_model(message: ModelResponse, thinking_field: str | None) -> dict[str, Any] | None:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            texts.append(scrub(part.content))
        elif isinstance(part, ThinkingPart):
            thoughts.append(scrub(part.content))
        elif isinstance(part, ToolCallPart):
            function = {"name": part.tool_name, "arguments": scrub(part.args_as_json_str())}
            calls.append({"id": part.tool_call_id, "type": "function", "function": function})
        else:
            raise _unsayable(part)
    if not texts and not calls:
        # An assistant message with nothing in it is a 400 with most providers.
        return None
    answer: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) if texts else None}
    if calls:
        answer["tool_calls"] = calls
    if thinking_field is not None and thoughts:
        answer[thinking_field] = "\n\n".join(thoughts)
    return answer


def _unsayable(part: object) -> UserError:
    return UserError(
        f"{type(part).__name__} cannot be sent in a chat completion of text and tools; "
        "if it comes from `Model.request` called directly, pass the messages through `prepare_messages` first"
    )


def _instructions(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> list[str]:
    if parameters.instruction_parts is not None:
        return [scrub(part.content) for part in parameters.instruction_parts]
    latest = next((message for message in reversed(messages) if isinstance(message, ModelRequest)), None)
    return [] if latest is None or latest.instructions is None else [scrub(latest.instructions)]


def _tool(definition: ToolDefinition, *, strict: bool) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": definition.name,
        "description": definition.description or "",
        "parameters": definition.parameters_json_schema,
    }
    if strict and definition.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _schema(answer: OutputObjectDefinition, *, strict: bool) -> dict[str, Any]:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", answer.name or "answer")[:64]
    schema: dict[str, Any] = {"name": name, "schema": answer.json_schema}
    if answer.description:
        schema["description"] = answer.description
    if strict and answer.strict:
        schema["strict"] = True
    return schema
