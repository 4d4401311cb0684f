"""Arguments of a chat completion from pydantic-ai's messages and parameters; features that models and servers lack.

Capabilities of models come from pydantic-ai's profiles: litellm's flags claim native JSON schemas for DeepSeek and deny
them to local models. Features that a server lacks are detected once per backend, and omitted from all later requests. A
lack counts when a request without the feature succeeds, as the prompt may be at fault; missing tools count at once.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters, infer_model_profile
from pydantic_ai.profiles import DEFAULT_PROFILE, ModelProfile, merge_profile
from pydantic_ai.settings import ModelSettings

from refinesynth.backends.backend import Backend, OutputMode, Role, report
from refinesynth.backends.providers import PROVIDERS, provider_of, server_of, split_model
from refinesynth.errors import StorageError
from refinesynth.journal import Journal
from refinesynth.text.formatting import scrub


class UnsupportedFeature(StrEnum):
    """Feature that a server may lack; the value is the name of its argument in a request."""

    SCHEMA = "response_format"
    """JSON schema of the output."""
    TOOLS = "tools"
    TOOL_CHOICE = "tool_choice"
    """Forced tool call; tools can be offered without it."""
    SEED = "seed"
    STOP = "stop"


_NOTE = "lacks"
_NOTE_ADAPTER = TypeAdapter(dict[str, frozenset[UnsupportedFeature]])


def server_name(backend: Backend) -> str:
    """Return the name of a backend's server and model in `UnsupportedFeatures`."""
    return f"{backend.model} {server_of(backend) or ''}".rstrip()


class UnsupportedFeatures:
    """Features that a run's servers are known to lack; written to the journal after `open`."""

    def __init__(self) -> None:
        self._servers = dict[str, frozenset[UnsupportedFeature]]()
        self._journal: Journal | None = None

    def open(self, journal: Journal) -> None:
        """Read the lacks that earlier processes of the run found, and write new ones to `journal`."""
        try:
            self._add_all(_NOTE_ADAPTER.validate_json(journal.note(_NOTE) or b"{}"))
        except ValidationError as error:
            raise StorageError(f"the journal at {str(journal.path)!r} is damaged: its note {_NOTE!r}") from error
        self._journal = journal

    def to_json(self) -> bytes:
        """Return the known lacks, for `merge` in another process."""
        return _NOTE_ADAPTER.dump_json(self._servers)

    async def merge(self, known: bytes) -> None:
        """Add the lacks that another process found; they are committed when this returns."""
        before = dict(self._servers)
        self._add_all(_NOTE_ADAPTER.validate_json(known))
        if self._journal is not None and self._servers != before:
            await self._journal.keep_note(_NOTE, self.to_json())

    def _add_all(self, known: Mapping[str, frozenset[UnsupportedFeature]]) -> None:
        for name, features in known.items():
            self._servers[name] = self.of(name) | features

    def of(self, server: str) -> frozenset[UnsupportedFeature]:
        """Return the lacks of the server with this `server_name`."""
        return self._servers.get(server, frozenset())

    async def add(self, backend: Backend, features: frozenset[UnsupportedFeature]) -> None:
        """Record lacks of this backend's server and log new ones; they are committed when this returns."""
        name = server_name(backend)
        if not (new := features - self.of(name)):
            return
        self._add_all({name: new})
        for feature in sorted(new):
            text = f"{backend.label} does not take {feature}; requests go without it"
            report("goes_without", backend, text, lacks=feature.value)
        if self._journal is not None:
            await self._journal.keep_note(_NOTE, self.to_json())


_FORWARDED = (
    "temperature", "top_p", "max_tokens", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "stop_sequences",
    "extra_headers", "extra_body",
)  # fmt: skip
_LITELLM_NAMES = {"stop_sequences": "stop"}
"""Settings that pydantic-ai and litellm name differently."""


def chat_messages(
    messages: Sequence[ModelMessage], parameters: ModelRequestParameters, *, thinking_field: str | None = None
) -> list[dict[str, Any]]:
    """Return the conversation with its leading system messages joined: chat templates of many open models accept only
    one.

    `thinking_field` is the key under which a provider expects earlier thoughts; None omits the thoughts.

    Raises:
        UserError: A part, such as an image, has no form in a chat completion.
    """
    mapped: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            mapped.extend(_request_messages(message))
        elif answer := _response_message(message, thinking_field):
            mapped.append(answer)
    leading = next((index for index, message in enumerate(mapped) if message["role"] != "system"), len(mapped))
    system = [*(message["content"] for message in mapped[:leading]), *_instructions(messages, parameters)]
    rest = mapped[leading:]
    return [{"role": "system", "content": "\n\n".join(system)}, *rest] if system else rest


def tools(parameters: ModelRequestParameters, *, strict: bool) -> list[dict[str, Any]]:
    """Return the callable tools, output tools included; `strict` is True if the provider accepts that flag."""
    functions: list[dict[str, Any]] = [
        {
            "name": tool.name,
            "description": tool.description or "",
            "parameters": tool.parameters_json_schema,
            **({"strict": True} if strict and tool.strict else {}),
        }
        for tool in parameters.declared_tool_defs.values()
    ]
    return [{"type": "function", "function": function} for function in functions]


def tool_choice(parameters: ModelRequestParameters, settings: ModelSettings, *, forced: bool) -> str:
    """Return the tool choice: `required` if calls can be `forced`, and the settings or the output require one."""
    choice = settings.get("tool_choice")
    if choice not in (None, "auto", "none", "required"):
        raise UserError(f"tool_choice={choice!r} cannot be sent; give 'auto', 'none' or 'required'")
    if choice == "none" and not parameters.output_tools:
        return "none"
    is_required = choice == "required" or not parameters.allow_text_output
    return "required" if is_required and forced else "auto"


def response_format(parameters: ModelRequestParameters, *, strict: bool) -> dict[str, Any] | None:
    """Return the output schema in native mode; None in other modes."""
    answer = parameters.output_object
    if parameters.output_mode != "native" or answer is None:
        return None
    name = re.sub(r"[^A-Za-z0-9_-]", "_", answer.name or "answer")[:64]
    schema: dict[str, Any] = {"name": name, "schema": answer.json_schema}
    if answer.description:
        schema["description"] = answer.description
    if strict and answer.strict:
        schema["strict"] = True
    return {"type": "json_schema", "json_schema": schema}


def forwarded_settings(settings: ModelSettings) -> dict[str, Any]:
    values = dict(settings)
    return {_LITELLM_NAMES.get(name, name): values[name] for name in _FORWARDED if values.get(name) is not None}


def _request_messages(message: ModelRequest) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, SystemPromptPart):
            yield {"role": "system", "content": scrub(part.content)}
        elif isinstance(part, UserPromptPart):
            if not isinstance(part.content, str):
                raise _unsupported_part(part.content)
            yield {"role": "user", "content": scrub(part.content)}
        elif isinstance(part, ToolReturnPart):
            content = scrub(part.model_response_str())
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}
        else:
            raise _unsupported_part(part)


def _response_message(message: ModelResponse, thinking_field: str | None) -> dict[str, Any] | None:
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
            raise _unsupported_part(part)
    if not texts and not calls:
        # Most providers answer an empty assistant message with 400.
        return None
    answer: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) if texts else None}
    if calls:
        answer["tool_calls"] = calls
    if thinking_field is not None and thoughts:
        answer[thinking_field] = "\n\n".join(thoughts)
    return answer


def _unsupported_part(part: object) -> UserError:
    return UserError(
        f"{type(part).__name__} cannot be sent in a chat completion of text and tools; "
        "if it comes from `Model.request` called directly, pass the messages through `prepare_messages` first"
    )


def _instructions(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> list[str]:
    if parameters.instruction_parts is not None:
        return [scrub(part.content) for part in parameters.instruction_parts]
    latest = next((message for message in reversed(messages) if isinstance(message, ModelRequest)), None)
    return [] if latest is None or latest.instructions is None else [scrub(latest.instructions)]


_COMPATIBLE = ModelProfile(
    supports_json_schema_output=True, supports_json_object_output=True, may_tokenize_special_tokens_in_content=True
)
"""Profile of any OpenAI-compatible server, and of the rehearsal, which gets the same requests."""


def profile_of(backend: Backend) -> ModelProfile:
    """Return the profile of a backend's model, with an output mode.

    The mode is `backend.structured`; for `auto`, native JSON schema if the model supports it, else a tool call, else
    prompted JSON.
    """
    base = _model_profile(backend)
    mode = backend.structured
    if mode is OutputMode.AUTO and base.get("supports_json_schema_output", False):
        mode = OutputMode.NATIVE
    elif mode is OutputMode.AUTO:
        mode = OutputMode.TOOL if base.get("supports_tools", True) else OutputMode.PROMPTED
    chosen = ModelProfile(default_structured_output_mode=cast("Any", mode.value))
    if mode is OutputMode.NATIVE:
        chosen["supports_json_schema_output"] = True
    if mode is OutputMode.TOOL:
        chosen["supports_tools"] = True
    return merge_profile(base, chosen)


def _model_profile(backend: Backend) -> ModelProfile:
    provider, name = split_model(backend.model)
    if backend.is_rehearsal or (provider == "openai" and backend.base_url is not None):
        return merge_profile(DEFAULT_PROFILE, _COMPATIBLE)
    known = PROVIDERS.get(provider)
    return infer_model_profile(f"{known.profile}{name}" if known else f"litellm:{provider}/{name}")


def output_mode(
    backend: Backend, profile: ModelProfile, unsupported: frozenset[UnsupportedFeature], *, free_keys: bool = False
) -> OutputMode:
    """Return the output mode for a server with these lacks; a mode that the user chose stays.

    `free_keys` is True if the schema has an object with unnamed keys.
    """
    mode = OutputMode(profile.get("default_structured_output_mode", OutputMode.TOOL))
    if backend.structured is not OutputMode.AUTO:
        return mode
    if free_keys and (provider := provider_of(backend)) is not None and provider.open_schema is not OutputMode.NATIVE:
        mode = provider.open_schema
    if mode is OutputMode.NATIVE and UnsupportedFeature.SCHEMA in unsupported:
        mode = OutputMode.TOOL
    has_tools = profile.get("supports_tools", True) and UnsupportedFeature.TOOLS not in unsupported
    return mode if has_tools or mode is not OutputMode.TOOL else OutputMode.PROMPTED


def is_open(schema: object) -> bool:
    """Return True if a JSON schema contains an object with unnamed keys."""
    if not isinstance(schema, dict):
        return False
    node = cast("dict[str, Any]", schema)
    properties: dict[str, Any] = node.get("properties") or {}
    if node.get("type") == "object" and (node.get("additionalProperties") or not properties):
        return True
    children: list[object] = [*properties.values(), *node.get("$defs", {}).values(), node.get("items")]
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        children.extend(node.get(key, ()))
    return any(is_open(child) for child in children)


def thinking_is_off(backend: Backend) -> bool:
    """Return True if the backend's settings switch thinking off."""
    match dict(backend.extra):
        case {"thinking": {"type": "disabled"}} | {"reasoning_effort": "none" | "disable"}:
            return True
        case {"enable_thinking": False} | {"extra_body": {"enable_thinking": False}}:
            return True
        case {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}:
            return True
        case _:
            return False


def can_force_tools(backend: Backend, profile: ModelProfile) -> bool:
    """Return True if a tool call can be forced; some models reject that always, some only while they think."""
    thinks = profile.get("thinking_enabled_by_default", False) and not thinking_is_off(backend)
    name = "supports_forced_tool_choice_with_thinking" if thinks else "supports_forced_tool_choice"
    return profile.get("supports_forced_tool_choice", True) and profile.get(name, True)


def with_cache_marks(request: dict[str, Any], role: str) -> dict[str, Any]:
    """Return the request with the marks by which Anthropic caches the beginning of a conversation.

    The DungeonMaster's instructions recur in all episodes, and a Player's conversation grows by messages. Nothing else is
    marked: a cache write that no request reads costs a quarter more. The journal's digest excludes the marks.
    """
    messages: list[dict[str, Any]] = list(request["messages"])
    if role in {Role.DUNGEON_MASTER, Role.PLAYER, Role.REPAIRER} and messages[0]["role"] == "system":
        messages[0] = _with_cache_mark(messages[0])
    if role in {Role.PLAYER, Role.REPAIRER}:
        messages[-1] = _with_cache_mark(messages[-1])
    return {**request, "messages": messages}


def _with_cache_mark(message: dict[str, Any]) -> dict[str, Any]:
    mark, text = {"cache_control": {"type": "ephemeral"}}, message.get("content")
    if message["role"] == "tool":
        return {**message, **mark}
    # Anthropic rejects empty text blocks.
    return {**message, "content": [{"type": "text", "text": text, **mark}]} if text else message


BOUND_NAMES = frozenset({"max_tokens", "max_completion_tokens"})
"""Names of the argument that bounds a completion."""


def has_bound(arguments: Mapping[str, Any]) -> bool:
    """Return True if arguments of a request, or their `extra_body`, name a bound of the completion."""
    return any(name in source for source in _sources(arguments) for name in BOUND_NAMES)


def bound_in(arguments: Mapping[str, Any]) -> int | None:
    """Return the bound of the completion in tokens, the largest if arguments and `extra_body` differ; None without one."""
    values = [source.get(name) for source in _sources(arguments) for name in BOUND_NAMES]
    return max((int(value) for value in values if isinstance(value, int | float)), default=None)


def _sources(arguments: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    body: object = arguments.get("extra_body")
    return [arguments, cast("Mapping[str, Any]", body)] if isinstance(body, Mapping) else [arguments]
