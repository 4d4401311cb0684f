"""Token usage of a completion: the counts that a server reports, and estimates for missing or impossible ones."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_ai.usage import RequestUsage

from refinesynth.journal.journal_values import PaidCompletion

ESTIMATED = "estimated"
"""Key in the `details` of a partly estimated usage."""
TOTAL = "total"
"""Key in the `details` of a usage that was reported only as a total."""
_MAX_TOKENS = 10**7
"""Largest credible token count: no model reads or writes more."""
_MAX_CHARS_PER_TOKEN = 64
"""Maximum characters per token over a whole text; a report of fewer tokens is impossible."""
_ASCII_PER_TOKEN = 3.5
"""ASCII characters per token; below English's 4 to 4.5, to overestimate rather than exceed a budget."""
_OTHER_BYTES_PER_TOKEN = 2
"""UTF-8 bytes of other characters per token: a Chinese character has 3 bytes and takes 0.6 to 1.5 tokens."""

_SCHEMA_ARGUMENTS = ("tools", "response_format")
"""Arguments of a request that are part of its prompt, besides its messages."""


def _token_count(value: object) -> int:
    """Return a token count, also from text or a fraction; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0
    try:
        number = float(value[:32] if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return 0
    return math.ceil(number) if 0 <= number <= _MAX_TOKENS else 0


def object_or_empty(value: object) -> object:
    """Return the value if it may have fields, or an empty dict."""
    return cast("object", value) if isinstance(value, dict | BaseModel) else {}


_Count = Annotated[int, BeforeValidator(_token_count)]


class ServerObject(BaseModel):
    """A part of a server's unchecked answer."""

    # `from_attributes` reads litellm's objects like dicts, without dumping them first.
    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)


class _Details(ServerObject):
    cached_tokens: _Count = 0
    cache_write_tokens: _Count = 0
    cache_creation_tokens: _Count = 0
    reasoning_tokens: _Count = 0


class ReportedUsage(ServerObject):
    """Usage of a server's completion, of any form; missing and impossible counts are 0."""

    # OpenAI's shape, to which litellm converts other providers' counts, and the additional counts of some servers.
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    total_tokens: _Count = 0
    cached_tokens: _Count = 0
    prompt_cache_hit_tokens: _Count = 0
    cache_read_input_tokens: _Count = 0
    cache_creation_input_tokens: _Count = 0
    reasoning_tokens: _Count = 0
    prompt_tokens_details: Annotated[_Details, BeforeValidator(object_or_empty)] = _Details()
    completion_tokens_details: Annotated[_Details, BeforeValidator(object_or_empty)] = _Details()

    def read(self) -> RequestUsage:
        """Return the counts in tokens; the thoughts are part of the output."""
        prompt, answer, total = self.prompt_tokens, self.completion_tokens, self.total_tokens
        details = self.prompt_tokens_details
        cache_read = (
            self.cached_tokens or details.cached_tokens or self.cache_read_input_tokens or self.prompt_cache_hit_tokens
        )
        cache_written = details.cache_creation_tokens or details.cache_write_tokens or self.cache_creation_input_tokens
        cache = cache_read + cache_written
        if 0 < prompt < cache or total == prompt + answer + cache:
            # Some gateways pass on Anthropic's prompt count, which leaves out cached tokens.
            prompt += cache
        if prompt and total > prompt + answer:
            # Billed thinking tokens that `completion_tokens` leaves out.
            answer = total - prompt
        thoughts = self.reasoning_tokens or self.completion_tokens_details.reasoning_tokens
        return RequestUsage(
            input_tokens=prompt,
            cache_read_tokens=min(cache_read, prompt),
            cache_write_tokens=min(cache_written, prompt),
            output_tokens=answer,
            output_reasoning_tokens=min(thoughts, answer),
            details={TOTAL: total} if total and not prompt and not answer else {},
        )


def usage_of(paid: PaidCompletion) -> RequestUsage:
    """Return the usage of a journaled completion."""
    return RequestUsage(
        input_tokens=paid.input_tokens,
        cache_read_tokens=paid.cached_tokens,
        cache_write_tokens=paid.cache_write_tokens,
        output_tokens=paid.output_tokens,
    )


def with_estimates(usage: RequestUsage, request: Mapping[str, Any], answers: Sequence[str]) -> RequestUsage:
    """Return the usage with estimates for missing and impossible counts, such as 0 tokens for a non-empty text.

    `answers` holds all texts of the completion: thoughts, tool names and arguments included. The details of an
    estimated usage contain `ESTIMATED`.
    """
    words = [message.get("content") or "" for message in request["messages"]]
    prompt_fits, answer_fits = _credible(usage.input_tokens, words), _credible(usage.output_tokens, answers)
    if prompt_fits and answer_fits:
        return usage
    texts = [_json(request[name]) for name in ("messages", *_SCHEMA_ARGUMENTS) if name in request]
    prompt, answer = estimated_tokens(texts), estimated_tokens(answers)
    total = usage.details.get(TOTAL, 0)
    if total and _credible(total, [*texts, *answers]):
        prompt = min(prompt, total - 1)
        answer = total - prompt
    return RequestUsage(
        input_tokens=usage.input_tokens if prompt_fits else prompt,
        output_tokens=usage.output_tokens if answer_fits else answer,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_reasoning_tokens=usage.output_reasoning_tokens if answer_fits else 0,
        details={ESTIMATED: 1},
    )


def message_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the estimated tokens of messages, tool calls included."""
    values = [value for message in messages for value in message.values() if value is not None]
    return estimated_tokens([value if isinstance(value, str) else _json(value) for value in values])


def schema_tokens(request: Mapping[str, Any]) -> int:
    """Return the estimated tokens of the schemas of a request's tools and of its answer."""
    return estimated_tokens([_json(request[name]) for name in _SCHEMA_ARGUMENTS if name in request])


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _credible(tokens: int, texts: Sequence[str]) -> bool:
    return tokens * _MAX_CHARS_PER_TOKEN >= sum(map(len, texts))


def estimated_tokens(texts: Sequence[str]) -> int:
    """Return the estimated tokens of texts, a little more than most tokenizers make of English."""
    plain = sum(map(len, texts))
    other = 0
    # Most texts are ASCII, which `isascii` knows without a scan.
    for text in [text for text in texts if not text.isascii()]:
        ascii_chars = len(text.encode("ascii", "ignore"))
        plain += ascii_chars - len(text)
        other += len(text.encode("utf-8", "ignore")) - ascii_chars
    return math.ceil(plain / _ASCII_PER_TOKEN + other / _OTHER_BYTES_PER_TOKEN)
