"""Tokens of a completion: as its server reports them in any shape, or estimated; and of a text, by a tokenizer."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel
from pydantic_ai.usage import RequestUsage

if TYPE_CHECKING:
    from tiktoken import Encoding

TOKENIZER = "cl100k_base"
"""OpenAI's tokenizer of GPT-4, litellm's default. Others differ by about a tenth, and more in other languages than
English."""
ESTIMATED = "estimated"
"""Key in the `details` of a usage of which a part is estimated."""
_TOTAL = "total"
"""Key in the `details` of a usage that is reported as a total alone."""
_MOST = 10**7
"""Larger token counts are garbage: no model reads or writes as many."""
_LONGEST = 64
"""Most characters per token over a whole text; a lower count of tokens is garbage."""
_BYTES = 3.5
"""ASCII characters of a token: below English's 4 to 4.5, so a budget is not exceeded."""
_OTHER_BYTES = 2
"""Bytes of other characters in UTF-8 per token: a Chinese character has 3, and takes 0.6 to 1.5 tokens."""

# Names without underscores, in lower case.
_PROMPT = ("prompttokens", "inputtokens", "prompttokencount", "inputtokencount", "promptevalcount", "tokensevaluated", "promptn")  # fmt: skip
_ANSWER = (
    "completiontokens", "outputtokens", "candidatestokencount", "completiontokencount", "outputtokencount", "evalcount",
    "tokenspredicted", "predictedn", "generatedtokens", "generatedtokencount",
)  # fmt: skip
_WHOLE = ("totaltokens", "totaltokencount")
_READ = ("cachedtokens", "cachereadinputtokens", "promptcachehittokens", "cachedcontenttokencount", "cachen")
_WRITTEN = ("cachecreationtokens", "cachewritetokens", "cachecreationinputtokens", "cachewriteinputtokens")
_THOUGHT = ("reasoningtokens", "thoughtstokencount")
_BESIDE = frozenset({"inputtokens", "promptn"})
"""Names that exclude cached tokens if those have one of the names in `_APART`."""
_APART = ("cachereadinputtokens", "cachecreationinputtokens", "cachewriteinputtokens", "cachen")
_PLACES = (
    ("usage",), ("usage", "billed_units"), ("usage", "tokens"), ("usageMetadata",), ("usage_metadata",), ("x_groq", "usage"),
    ("meta", "billed_units"), ("meta", "tokens"), ("timings",), (),
)  # fmt: skip
"""Keys under which a completion may hold its usage; the first with a number of tokens counts."""
_DETAILS = tuple(f"{kind}_tokens_details" for kind in ("prompt", "input", "completion", "output"))
_READ_BY_MODELS = ("messages", "tools", "response_format")
"""Arguments of a request that are part of its prompt."""


def billed(completion: object) -> RequestUsage:
    """Return the usage that a completion reports, given as a dict or an object; missing counts are 0."""
    for place in _PLACES:
        usage = _read(reduce(member, place, completion))
        if usage.input_tokens or usage.output_tokens or usage.details:
            return usage
    return RequestUsage()


def completed(usage: RequestUsage, request: Mapping[str, Any], said: Sequence[str]) -> RequestUsage:
    """Return the usage with estimates for missing and impossible counts: no prompt has 0 tokens, and no answer with a
    word.

    `said` are all texts of the answer: thoughts, tool calls and arguments included. An estimate is marked with
    `ESTIMATED` in the details.
    """
    words = [message.get("content") or "" for message in request["messages"]]
    prompt_fits, answer_fits = _credible(usage.input_tokens, words), _credible(usage.output_tokens, said)
    if prompt_fits and answer_fits:
        return usage
    asked = [json.dumps(request[name], ensure_ascii=False, default=str) for name in _READ_BY_MODELS if name in request]
    prompt, answer = _estimate(asked), _estimate(said)
    total = usage.details.get(_TOTAL, 0)
    if total and _credible(total, [*asked, *said]):
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


def _read(bill: object) -> RequestUsage:
    counts = dict(_counts(bill))
    details = {key: count for name in _DETAILS for key, count in _counts(member(bill, name))}
    named = next((name for name in _PROMPT if counts.get(name)), "")
    prompt, answer = counts.get(named, 0), _first(_ANSWER, counts)
    if named in _BESIDE:
        prompt += sum(counts.get(name, 0) for name in _APART)
    thoughts = _first(_THOUGHT, details | counts)
    if "candidatestokencount" in counts:
        answer += thoughts
    total = _first(_WHOLE, counts)
    if prompt and total > prompt + answer:
        # Thoughts that the other figure leaves out, and that are paid for.
        answer = total - prompt
    return RequestUsage(
        input_tokens=prompt,
        cache_read_tokens=min(_first(_READ, details | counts), prompt),
        cache_write_tokens=min(_first(_WRITTEN, details | counts), prompt),
        output_tokens=answer,
        output_reasoning_tokens=min(thoughts, answer),
        details={_TOTAL: total} if total and not prompt and not answer else {},
    )


def _counts(bill: object) -> Iterator[tuple[str, int]]:
    if isinstance(bill, BaseModel):
        bill = dict(bill)
    if isinstance(bill, Mapping):
        for name, value in cast("Mapping[object, object]", bill).items():
            if (count := _count(value)) is not None:
                yield str(name).replace("_", "").lower(), count


def _count(value: object) -> int | None:
    """Return a number of tokens, also from text or a fraction; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value[:32] if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return math.ceil(number) if 0 <= number <= _MOST else None


def _first(names: Sequence[str], counts: Mapping[str, int]) -> int:
    return next((count for name in names if (count := counts.get(name))), 0)


def _credible(tokens: int, texts: Sequence[str]) -> bool:
    return tokens * _LONGEST >= sum(map(len, texts))


def _estimate(texts: Sequence[str]) -> int:
    plain = sum(len(text.encode("ascii", "ignore")) for text in texts)
    other = sum(len(text.encode("utf-8", "ignore")) for text in texts) - plain
    return math.ceil(plain / _BYTES + other / _OTHER_BYTES)


def member(value: object, name: str) -> object:
    """Return a key of a dict, or an attribute of another object; None if there is none."""
    return cast("Mapping[str, object]", value).get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def count_tokens(text: str) -> int:
    """Return the tokens of a text by `TOKENIZER`; control tokens are counted as text."""
    return len(_encoding().encode(text, disallowed_special=()))


@cache
def _encoding() -> "Encoding":
    import tiktoken

    folder = "TIKTOKEN_CACHE_DIR"
    # litellm brings the file along; importing litellm itself would take seconds.
    found = find_spec("litellm")
    before = os.environ.get(folder)
    if found is not None and found.origin is not None:
        os.environ[folder] = str(Path(found.origin).parent / "litellm_core_utils" / "tokenizers")
    try:
        return tiktoken.get_encoding(TOKENIZER)
    finally:
        os.environ.pop(folder, None)
        if before is not None:
            os.environ[folder] = before
