"""What a server sends is an answer or a fault that says what to do; nothing else comes of it."""

import json
from random import Random
from typing import Any

import orjson
from fuzzing import json_values, thoroughly
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.models import ModelRequestParameters
from spoiling import SPOILING, spoil

from refinesynth.backends.backend import Backend
from refinesynth.client.classify_error import ClassifiedError, UnusableAnswer, classify_error
from refinesynth.client.completion_parsing import ReadCompletion, read_completion
from refinesynth.testing import texts

BACKEND = Backend(model="openai/any", base_url="http://127.0.0.1:1/v1")

contents: st.SearchStrategy[Any] = (
    st.none() | texts() | st.just('{"turns": [{"thought": "Hm.", "n": 3}]}') | json_values(texts())
)
counts: st.SearchStrategy[Any] = st.integers() | st.floats() | st.none() | texts()
calls: st.SearchStrategy[Any] = st.lists(
    st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": texts(), "arguments": contents})}), max_size=2
)
messages: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": contents},
    optional={"refusal": contents, "reasoning_content": contents, "tool_calls": calls | contents},
)
completions: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {
        "id": texts(),
        "object": st.just("chat.completion"),
        "model": texts(),
        "choices": st.lists(
            st.fixed_dictionaries(
                {"message": messages},
                optional={"index": counts, "finish_reason": st.sampled_from(("stop", "length", "error")) | texts()},
            ),
            max_size=3,
        ),
    },
    optional={"usage": st.dictionaries(st.sampled_from(("prompt_tokens", "completion_tokens")), counts) | texts()},
)


def survives(raw: Any) -> None:
    """Read a raw answer, use it as the model does, keep it in the journal and take it from there."""
    try:
        answer = read_completion(raw)
        assert 0 <= answer.usage.input_tokens <= 10**9
        assert "\ud800" not in answer.text
        kept = answer.to_json()
        assert isinstance(orjson.loads(kept), dict)
        answer.check(max_tokens=100)
        parts = answer.parts(ModelRequestParameters())
        assert parts
        assert isinstance(answer, ReadCompletion)
    except UnusableAnswer as error:
        fault = classify_error(error, BACKEND)
        assert fault.message.startswith("openai/any ")


@thoroughly
@given(completions | json_values(texts()))
def test_any_value_is_an_answer_or_a_fault(raw: Any) -> None:
    survives(raw)


@thoroughly
@given(st.sampled_from(sorted(SPOILING - {"huge"})), st.integers(0, 10**6), st.booleans())
def test_whatever_the_server_spoils_is_an_answer_or_a_fault(fault: str, seed: int, structured: bool) -> None:
    content = '{"turns": [{"thought": "Hm.", "parameter_error": false}], "goal": "g"}' if structured else "Action: look"
    message = {"role": "assistant", "content": content}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    completion = {"id": "c", "model": "m", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    body = spoil(fault, completion, Random(seed)).content
    assert isinstance(body, bytes)
    for read in (json.loads, orjson.loads):
        try:
            raw = read(body)
        except (ValueError, RecursionError):
            continue
        survives(raw)


@thoroughly
@given(texts(), st.none() | st.integers() | texts(), json_values(texts()))
def test_any_error_is_sorted_and_its_words_are_bounded(text: str, status: Any, headers: Any) -> None:
    error = RuntimeError(text * 500)
    error.status_code = status  # type: ignore[attr-defined]
    error.litellm_response_headers = headers  # type: ignore[attr-defined]
    fault = classify_error(error, BACKEND)
    assert isinstance(fault, ClassifiedError)
    assert len(fault.message) < 1_000
    assert fault.retry_after is None or 0 <= fault.retry_after < float("inf")
