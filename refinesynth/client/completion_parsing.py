"""Parsing of completions: from a server's unchecked chat completion to the parts of a pydantic-ai response."""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, cast

import orjson
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_ai.messages import ModelResponsePart, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage

from refinesynth.backends.backend import NO_REASON
from refinesynth.client.classify_error import ErrorCategory, UnusableAnswer
from refinesynth.client.token_usage import ESTIMATED, ReportedUsage, ServerObject, object_or_empty, usage_of
from refinesynth.client.tool_calls import repair_calls
from refinesynth.errors import StorageError
from refinesynth.journal.journal_values import PaidCompletion
from refinesynth.text.formatting import redact, scrub
from refinesynth.text.json_reader import MAX_CHARACTERS, Truncated, read_json
from refinesynth.text.thinking import split_thinking

_MAX_CHARS = MAX_CHARACTERS + 1
_MAX_NAME_CHARS = 200

_COMPLETE, _FILTERED, _AT_LIMIT, _WINDOW_END = "whole", "filtered", "at its limit", "at the end of the context window"
_INTERRUPTED = "interrupted"
_ENDINGS: Mapping[str, str] = {
    reason: ending
    for ending, reasons in {
        _COMPLETE: "stop tool_calls tool_call toolcalls tool_use function_call function_calls eos eos_token eosfound end_turn"
        " stop_sequence stop_token stop_string stop_str stopstringfound end_of_turn end_of_text end_of_sequence endoftext"
        " end done finish finished complete completed normal success",
        _FILTERED: "content_filter content_filtered content_policy sensitive refusal guardrail_intervened safety image_safety"
        " recitation language blocklist prohibited_content spii error_toxic moderation",
        _AT_LIMIT: "length max_tokens max_length max_output_tokens max_completion_tokens max_new_tokens token_limit compaction"
        " continuation maxpredictedtokensreached",
        _WINDOW_END: "model_context_window_exceeded context_length_exceeded contextlengthreached model_length error_limit",
        _INTERRUPTED: "abort aborted cancel canceled cancelled user_cancel interrupted disconnected error failed failure"
        " internal_error server_error internal_server_error upstream_error network_error connection_error timeout"
        " time_limit deadline_exceeded insufficient_system_resource overloaded unavailable service_unavailable load unload",
    }.items()
    for reason in reasons.split()
}
"""Finish reasons of vLLM, SGLang, TGI, llama.cpp, Ollama, LM Studio, OpenAI, Anthropic, Bedrock, Gemini, Cohere,
    Mistral, Z.ai, Baidu, Titan and watsonx. Any other reason, such as `repetition`, means a completion that is not
    whole."""


_TAIL_CHARS = 2_000
"""Last characters of a completion that are checked for repetition."""
_REPETITION_RATIO = 0.1
"""Compression ratio below which a text repeats itself; English has 0.4 to 0.5, indented JSON 0.2 to 0.3."""
_TOKEN_STEP = 256
"""Tokens of which every context length, and most limits of a completion, are a multiple."""


def _repeats(text: str) -> bool:
    tail = text[-_TAIL_CHARS:].encode(errors="replace")
    return len(tail) >= _TAIL_CHARS // 4 and len(zlib.compress(tail)) < _REPETITION_RATIO * len(tail)


def _fills_context(total: int, answer: int, max_tokens: int | None) -> bool:
    """Return True if a truncated completion filled the server's context and did not reach its own limit."""
    if max_tokens is not None:
        return answer + 1 < max_tokens and total >= _TOKEN_STEP
    return -total % _TOKEN_STEP <= 1 and answer % _TOKEN_STEP != 0


def _ending(reason: str | None) -> str | None:
    if reason is None:
        return _COMPLETE
    plain = reason.strip().casefold().replace("-", "_").replace(" ", "_")
    return _ENDINGS.get(plain.rpartition(".")[2].removeprefix("finish_reason_"))


def _clean_text(value: object) -> str | None:
    """Return valid UTF-8 text, also from a list of text parts or a parsed JSON object; None for anything else."""
    if isinstance(value, str):
        # `check` rejects longer text; the journal stores only enough of it to repeat that.
        return scrub(value[:_MAX_CHARS])
    if isinstance(value, list | tuple):
        texts = [_clean_text(_text_field(part)) for part in cast("Sequence[object]", value)]
        return "".join(filter(None, texts))[:_MAX_CHARS] or None
    if isinstance(value, dict):
        # Some servers return requested JSON as a parsed object.
        return json.dumps(value)[:_MAX_CHARS]
    return None


def _text_field(part: object) -> object:
    return cast("dict[str, object]", part).get("text") if isinstance(part, dict) else getattr(part, "text", None)


def _clean_name(value: object) -> str | None:
    text = _clean_text(value)
    return None if text is None else text[:_MAX_NAME_CHARS]


_Text = Annotated[str | None, BeforeValidator(_clean_text)]
_Name = Annotated[str | None, BeforeValidator(_clean_name)]


class _Function(ServerObject):
    name: str
    arguments: _Text = None


class _Call(ServerObject):
    id: _Name = None
    function: _Function


class _ProviderFields(ServerObject):
    # litellm's place for fields that only some providers send.
    refusal: _Text = None
    native_finish_reason: _Name = None


class _Message(ServerObject):
    content: _Text = None
    reasoning_content: _Text = None
    reasoning: _Text = None
    thinking: _Text = None
    refusal: _Text = None
    provider_specific_fields: _ProviderFields | None = None
    tool_calls: tuple[_Call, ...] | None = None


class _Choice(ServerObject):
    message: _Message
    finish_reason: _Name = None
    provider_specific_fields: _ProviderFields | None = None


class _Bill(ServerObject):
    id: _Name = None
    model: _Name = None
    usage: Annotated[ReportedUsage, BeforeValidator(object_or_empty)] = ReportedUsage()


class _Completion(_Bill):
    choices: tuple[_Choice, ...] = Field(max_length=64)


@dataclass(frozen=True)
class ReadCompletion:
    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str, str | None], ...] = ()
    """Tool name, arguments as JSON text, call id."""
    finish_reason: str | None = None
    refusal: str | None = None
    usage: RequestUsage = field(default_factory=RequestUsage)
    model: str | None = None
    id: str | None = None
    end_mark: str | None = None
    """End mark of thoughts that the server left in the text; not written to the journal."""

    def to_json(self) -> bytes:
        """Return the completion without its usage, for the journal."""
        body = {"text": self.text, "thinking": self.thinking, "calls": self.calls, "finish_reason": self.finish_reason}
        metadata = {"refusal": self.refusal, "model": self.model, "id": self.id}
        return orjson.dumps({name: value for name, value in (body | metadata).items() if value})

    @classmethod
    def from_paid(cls, paid: PaidCompletion) -> "ReadCompletion":
        """Read the output of `to_json`, with its usage. Raises StorageError: the journal's answer is damaged."""
        try:
            return replace(_json_adapter().validate_json(paid.answer), usage=usage_of(paid))
        except ValidationError as error:
            raise StorageError(
                f"the journal's answer {paid.step} of {paid.role} in episode {paid.episode} is damaged; "
                f"put the original journal back, or start over (--fresh keeps the old folder)"
            ) from error

    def check(self, *, max_tokens: int | None) -> None:
        """Raise UnusableAnswer for a completion that is cut off, empty, too long, filtered or a refusal."""
        ending = _ending(self.finish_reason)
        if ending == _FILTERED or self.refusal:
            reason = f" ({self.refusal[:200]})" if self.refusal else ""
            raise UnusableAnswer(f"refuses to answer by its content policy{reason}", ErrorCategory.POLICY)
        if ending == _AT_LIMIT:
            raise UnusableAnswer(self._truncation_reason(max_tokens))
        if ending == _WINDOW_END:
            raise UnusableAnswer("cut its answer off at the end of its context window; serve a longer one")
        if self.finish_reason == NO_REASON:
            raise UnusableAnswer("gave no finish_reason, so its answer may be cut off; it has to give one")
        if ending == _INTERRUPTED:
            raise UnusableAnswer(f"broke off its answer (finish_reason {self.finish_reason!r})", ErrorCategory.SERVER)
        if ending != _COMPLETE:
            raise UnusableAnswer(f"gave no whole answer (finish_reason {self.finish_reason!r})")
        if not self.text.strip() and not self.calls:
            addition = ", only thoughts (its reasoning)" if self.thinking.strip() else ""
            raise UnusableAnswer(f"gave an empty answer{addition}")
        if max(len(self.text), *(len(arguments) for _, arguments, _ in self.calls), 0) > MAX_CHARACTERS:
            raise UnusableAnswer(f"gave an answer of more than {MAX_CHARACTERS:,} characters")

    def _truncation_reason(self, max_tokens: int | None) -> str:
        limit = "its limit" if max_tokens is None else f"max_tokens={max_tokens}"
        if _repeats(self.text or self.thinking):
            return f"repeated itself until it was cut off at {limit}; more tokens do not help: set another temperature or model"
        prompt, answer = self.usage.input_tokens, self.usage.output_tokens
        if ESTIMATED not in self.usage.details and answer and _fills_context(prompt + answer, answer, max_tokens):
            return (
                f"cut its answer off after {answer:,} tokens: with the prompt's {prompt:,} they fill a context of {prompt + answer:,} "
                "tokens; serve a longer one (llama.cpp shares -c among its -np slots)"
            )
        return f"cut its answer off at {limit}; raise max_tokens"

    def with_repaired_calls(self, parameters: ModelRequestParameters) -> tuple["ReadCompletion", str | None]:
        """Return the completion with repaired tool calls, and the artefact of the server's tool parser, if any."""
        schemas = {name: tool.parameters_json_schema for name, tool in parameters.tool_defs.items()}
        tools = {name: schema.get("properties", {}) for name, schema in schemas.items()}
        if not tools:
            return self, None
        calls, text, artefact, is_clear = repair_calls(self.calls, self.text, tools)
        if not is_clear:
            raise UnusableAnswer(
                f"gave a call that is none of its tools ({artefact}), as a server's "
                "tool parser leaves it; check the server's tool parser"
            )
        return (self if artefact is None else replace(self, calls=calls, text=text)), artefact

    def parts(self, parameters: ModelRequestParameters) -> list[ModelResponsePart]:
        """Return pydantic-ai's parts, with expected JSON repaired if possible.

        Irreparable JSON stays as it is; the model gets the validation error.
        """
        parts: list[ModelResponsePart] = []
        if self.thinking:
            parts.append(ThinkingPart(content=self.thinking))
        for name, arguments, call_id in self.calls:
            tool = parameters.tool_defs.get(name)
            part = ToolCallPart(tool_name=name, args=repaired(arguments, tool.parameters_json_schema if tool else {}))
            # pydantic-ai generates an id if the server sent none.
            parts.append(replace(part, tool_call_id=call_id) if call_id else part)
        if self.text.strip():
            parts.append(self._text_part(parameters))
        return parts

    def _text_part(self, parameters: ModelRequestParameters) -> ModelResponsePart:
        if parameters.output_object is not None:
            return TextPart(content=repaired(self.text, parameters.output_object.json_schema))
        tools = parameters.output_tools
        if self.calls or len(tools) != 1 or parameters.function_tools or parameters.allow_text_output:
            return TextPart(content=self.text)
        # Weaker models write the arguments of the only tool as text instead of calling it.
        arguments = repaired(self.text, tools[0].parameters_json_schema)
        return ToolCallPart(tool_name=tools[0].name, args=arguments) if _is_json(arguments) else TextPart(self.text)


@cache
def _json_adapter() -> TypeAdapter[ReadCompletion]:
    return TypeAdapter(ReadCompletion)


def read_completion(raw: object, *, max_tokens: int | None = None) -> ReadCompletion:
    """Read an OpenAI chat completion, given as a dict or as an object with its attributes.

    Lone surrogates become U+FFFD. Missing and impossible counts of tokens are 0. A completion of exactly `max_tokens`
    has the finish reason `length`, whatever the server reports. An unreadable completion with a usage is an empty one
    with the finish reason `unreadable at` and the path.

    Raises:
        UnusableAnswer: `raw` is no chat completion or has no choice, and has no usage.
    """
    try:
        completion = _Completion.model_validate(raw)
    except (ValidationError, RecursionError) as error:
        path = ".".join(str(key) for key in error.errors()[0]["loc"]) if isinstance(error, ValidationError) else "depth"
        return _unreadable(raw, path)
    if not completion.choices:
        return _unreadable(raw, "choices")
    usage = completion.usage.read()
    choice = completion.choices[0]
    calls = choice.message.tool_calls or ()
    reason, native = choice.finish_reason, choice.provider_specific_fields
    if native is not None and native.native_finish_reason is not None and _ending(reason) == _COMPLETE:
        # litellm reports unknown reasons as `stop`.
        reason = native.native_finish_reason
    if max_tokens in (usage.output_tokens, usage.output_tokens - usage.output_reasoning_tokens):
        # Some servers report `stop` or `tool_calls` for a truncated completion. Longer completions are whole: the server
        # ignores the limit, or does not count thoughts against it.
        reason = "length" if _ending(reason) == _COMPLETE else reason
    thinking = choice.message.reasoning_content or choice.message.reasoning or choice.message.thinking or ""
    split = split_thinking(choice.message.content or "")
    if split.thinking not in thinking:
        thinking = "\n\n".join(filter(None, (thinking, split.thinking)))
    specific = choice.message.provider_specific_fields
    refusal = choice.message.refusal or (specific.refusal if specific else None)
    return ReadCompletion(
        text=split.text,
        thinking=thinking,
        calls=tuple((call.function.name, call.function.arguments or "{}", call.id) for call in calls),
        finish_reason=reason,
        # Some servers quote the request, which may hold a key; the refusal goes into the journal.
        refusal=redact(refusal) if refusal else None,
        usage=usage,
        model=completion.model,
        id=completion.id,
        end_mark=split.form,
    )


def _unreadable(raw: object, path: str) -> ReadCompletion:
    try:
        bill = _Bill.model_validate(raw)
    except (ValidationError, RecursionError):
        bill = _Bill()
    usage = bill.usage.read()
    if not usage.total_tokens and not usage.details:
        raise UnusableAnswer(f"sent something that is no completion (at {path!r})", ErrorCategory.SERVER) from None
    return ReadCompletion(finish_reason=f"unreadable at {path!r}", usage=usage, model=bill.model, id=bill.id)


def repaired(text: str, schema: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the JSON of a model's text in strict form; the text itself if it is strict or irreparable.

    Truncated JSON with all properties that `schema` requires stays truncated: closed, it would pass for a short answer.
    If a required property is missing, the JSON is closed, and the validation error names that property.
    """
    if _is_json(text):
        return text
    value: Any
    try:
        try:
            value = read_json(text)
        except Truncated:
            value = read_json(text, close=True)
            if not isinstance(value, dict) or {*schema.get("required", ())} <= value.keys():
                return text
    except ValueError:
        return text
    return orjson.dumps(value).decode()


def _is_json(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict | list)
    except orjson.JSONDecodeError:
        return False
