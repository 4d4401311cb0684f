"""An answer means the same on both paths: what is read of it, and what kind of fault it is if it is one."""

import json
from contextlib import aclosing
from typing import Any

import pytest
from chat_server import ChatServer, Reply, calls_tool, completion, fails, says

from refinesynth.backends import Backend, Completion
from refinesynth.client import litellm_sdk
from refinesynth.client.classify_error import classify_error
from refinesynth.client.completion_parsing import read_completion
from refinesynth.client.http.direct_client import DirectCompletion
from refinesynth.client.http.reply import HttpError, read_reply

pytestmark = pytest.mark.process

BILL = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def error(status: int, message: str, kind: str | None = None, code: object = None) -> Reply:
    return Reply(json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}), status=status)


def vllm_error(status: int, message: str, kind: str) -> Reply:
    return Reply(
        json.dumps({"object": "error", "message": message, "type": kind, "param": None, "code": status}), status=status
    )


def choice(**values: Any) -> Reply:
    return Reply(json.dumps({**completion(), "choices": [{"index": 0, "finish_reason": "stop", **values}]}))


CONTEXT = "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens"
QUOTA = "You exceeded your current quota, please check your plan and billing details."
PAGE = Reply("<html><body>Bad Gateway</body></html>", headers={"content-type": "text/html"})

STATUSES = (400, 401, 402, 403, 404, 405, 408, 409, 413, 422, 425, 429, 500, 502, 503, 504, 520, 529)
REFUSALS = {
    **{f"{status}": error(status, "no good", "some_error") for status in STATUSES},
    **{
        f"{status} page": Reply(PAGE.body, status=status, headers=PAGE.headers)
        for status in (400, 403, 404, 405, 502, 504)
    },
    **{f"{status} empty": Reply("", status=status) for status in (401, 429, 500)},
    **{f"{status} invalid": fails(status, "no good") for status in (400, 401, 404, 429, 500)},
    "rate limit": fails(429, "slow down", kind="rate_limit_error", retry_after="7"),
    "quota": error(429, QUOTA, "insufficient_quota", "insufficient_quota"),
    "quota that fills up": error(429, "You exceeded your current quota. Please retry in 5s"),
    "context": error(400, CONTEXT, "invalid_request_error", "context_length_exceeded"),
    "context of vLLM": vllm_error(400, CONTEXT, "BadRequestError"),
    "model": error(
        404, "The model `x` does not exist or you do not have access.", "invalid_request_error", "model_not_found"
    ),
    "model of vLLM": vllm_error(404, "The model `x` does not exist.", "NotFoundError"),
    "policy": error(
        400,
        "Your request was rejected as a result of our safety system.",
        "invalid_request_error",
        "content_policy_violation",
    ),
    "flagged": error(403, "Your chosen model requires moderation and your input was flagged"),
    "key": error(401, "Incorrect API key provided: sk-abc.", "invalid_request_error", "invalid_api_key"),
    "balance": error(402, "Insufficient Balance", "unknown_error", "invalid_request_error"),
    "country": error(403, "Country, region, or territory not supported", "request_forbidden", "unsupported_country"),
    "detail": Reply(json.dumps({"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}), status=422),
    "upstream": error(429, "Provider returned error", code=429),
}
BROKEN = {
    "empty": Reply(""),
    "page": PAGE,
    "cut": Reply('{"id": "x", "choices": [{"ind'),
    "list": Reply("[1, 2]"),
    "object": Reply("{}"),
    "deep": Reply("[" * 100_000 + "]" * 100_000),
    "no choices": Reply(json.dumps({**completion(), "choices": []})),
    "choices text": Reply(json.dumps({**completion(), "choices": "x"})),
    "choice of no kind": Reply(json.dumps({**completion(), "choices": [1]})),
    "no message": choice(message=None),
    "error with a number": Reply(json.dumps({"error": {"message": "boom", "code": 500}})),
    "rate limit with a number": Reply(json.dumps({"error": {"message": "too many", "code": 429}})),
    "key with a number": Reply(json.dumps({"error": {"message": "no", "code": 401}})),
    "error in words": Reply(json.dumps({"error": "boom"})),
    "rate limit with a code as text": Reply(
        json.dumps({"error": {"message": "no", "code": "429", "metadata": {"raw": "x"}}})
    ),
    "rate limit in a code of words": Reply(json.dumps({"error": {"message": "no", "code": "rate_limit_exceeded"}})),
    "server's error in a code of words": Reply(json.dumps({"error": {"message": "boom", "code": "server_error"}})),
    "overloaded in words": Reply(json.dumps({"error": "model is overloaded", "choices": None})),
    "detail": Reply(json.dumps({"detail": "Rate limit exceeded"})),
    "MiniMax's": Reply(json.dumps({"base_resp": {"status_code": 1002, "status_msg": "rate limit"}, "choices": None})),
    "MiniMax's moderation": Reply(json.dumps({**completion(), "base_resp": {"status_code": 1027, "status_msg": "x"}})),
    "in a wrapper": Reply(json.dumps({"code": 500, "message": "internal", "success": False})),
    "vLLM's": Reply(json.dumps({"object": "error", "message": CONTEXT, "type": "BadRequestError", "code": 400})),
    "Anthropic's": Reply(json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})),
    "in a choice": choice(error={"code": 429, "message": "x"}, message={"role": "assistant", "content": "ha"}),
    "in a choice without a message": choice(error={"code": 429, "message": "x"}),
    "Azure's moderation": Reply(
        json.dumps({**completion(), "choices": [], "prompt_filter_results": [{"filtered": True}]})
    ),
    "Gemini's moderation": Reply(json.dumps({"promptFeedback": {"blockReason": "SAFETY"}})),
    "refusal": says(None, refusal="no"),
    "nothing": says(None),
    "cut off": says("hi", finish_reason="length"),
    "filtered": says("hi", finish_reason="content_filter"),
    "filtered, by Gemini": says("hi", finish_reason="SAFETY"),
    "error": says("hi", finish_reason="error"),
    "window": says("hi", finish_reason="model_context_window_exceeded"),
    "no reason": says("hi", finish_reason=None),
    "reason of no kind": says("hi", finish_reason=7),
    "missing reason": Reply(
        json.dumps({**completion(), "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]})
    ),
    "tool of no kind": Reply(json.dumps(completion("hm", tool_calls=[5]))),
}
READ = {
    "plain": says(),
    "empty error": Reply(json.dumps({**completion(), "error": {}})),
    "null error": Reply(json.dumps({**completion(), "error": None})),
    "lone surrogate": Reply(json.dumps(completion("h\ud800i"))),
    "controls": says("h\x00i\u202e\u2028"),
    "keys twice": Reply('{"choices": [], ' + json.dumps(completion())[1:]),
    "thought": says("hi", reasoning_content="hm"),
    "thought of vLLM": says("hi", reasoning="hm"),
    "thought aloud": says("<think>hm</think>hi"),
    "thought unfinished": says("<think>hm"),
    "thought without a beginning": says("hm</think>hi"),
    "thought in other marks": says(" <seed:think>hm</seed:think>hi", reasoning_content="so"),
    "odd reason": says("hi", finish_reason="eos"),
    "tool": Reply(json.dumps(calls_tool("f", "{}"))),
    "tool with an object": Reply(json.dumps(completion("hm", tool_calls=[{"id": "t", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]))),
    "tools null": Reply(json.dumps(completion("hm", tool_calls=None))),
    "cached": says(usage={**BILL, "prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2}}),
    "cached at DeepSeek": says(usage={**BILL, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}),
    "cached at Anthropic": says(usage={**BILL, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}),
    "no bill": says(usage=None),
    "bill as text": says(usage={"prompt_tokens": "12", "completion_tokens": "5"}),
    "bill of other names": says(usage={"input_tokens": 12, "output_tokens": 5}),
    "bill of a total": says(usage={"total_tokens": 17}),
    "bill of Ollama": Reply(json.dumps({**completion(usage=None), "prompt_eval_count": 12, "eval_count": 5})),
    "bill of llama.cpp": Reply(json.dumps({**completion(usage=None), "timings": {"prompt_n": 2, "cache_n": 10, "predicted_n": 5}})),
    "bill of Gemini": Reply(json.dumps({**completion(usage=None), "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 5, "thoughtsTokenCount": 3}})),
    "bill of Cohere": Reply(json.dumps({**completion(usage=None), "meta": {"billed_units": {"input_tokens": 12, "output_tokens": 5}}})),
    "thoughts in the total alone": says(usage={"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 35}),
    "senseless bill": says(usage={"prompt_tokens": -5, "completion_tokens": 5, "total_tokens": 0}),
}  # fmt: skip


def opened(backend: Backend) -> aclosing[DirectCompletion]:
    completion = DirectCompletion(backend)
    return aclosing(completion)


async def outcome(call: Completion, backend: Backend, **request: object) -> tuple[object, ...]:
    """What is read of an answer, or the kind of fault."""
    try:
        answer = read_completion(
            await call(model=backend.model, messages=[{"role": "user", "content": "hi"}], timeout=20, **request)
        )
        answer.check(max_tokens=None)
    except Exception as failed:  # noqa: BLE001
        fault = classify_error(failed, backend)
        return fault.category, fault.action, fault.retry_after, fault.page
    return answer.text, answer.thinking, answer.calls, answer.usage, answer.model, answer.id


async def outcomes(server: ChatServer, model: str, reply: Reply) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Over the direct client, and through litellm."""
    backend = Backend(model=model, base_url=server.url, name="mine")
    server.replies.extend((reply, reply))
    async with opened(backend) as lean:
        return await outcome(lean, backend), await outcome(
            litellm_sdk.completion, backend, api_base=server.url, api_key="none"
        )


@pytest.mark.parametrize(
    ("model", "replies"),
    [
        ("hosted_vllm/served", REFUSALS),
        ("hosted_vllm/served", BROKEN),
        ("hosted_vllm/served", READ),
        # litellm asks these through OpenAI's client.
        ("openai/served", REFUSALS),
        ("openai/served", BROKEN),
        ("openai/served", READ),
    ],
)
async def test_an_answer_is_the_same_on_both_paths(model: str, replies: dict[str, Reply], server: ChatServer) -> None:
    for name, reply in replies.items():
        lean, through_litellm = await outcomes(server, model, reply)
        assert lean == through_litellm, name


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (choice(message={"content": "hi"}), "hi"),
        (says([{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]), "hi"),
        (says({"a": 1}), '{"a": 1}'),
        (Reply(json.dumps({**completion("hi"), "usage": None})[:-1] + ', "x": [NaN, 1e400, 1' + "0" * 30 + "]}"), "hi"),
        (Reply(json.dumps(completion("hi")), headers={"content-type": "text/html"}), "hi"),
    ],
)
async def test_some_answers_are_read_that_litellm_refuses(reply: Reply, text: str, server: ChatServer) -> None:
    lean, _ = await outcomes(server, "openai/served", reply)
    assert lean[0] == text


def test_an_error_has_its_headers_and_what_the_server_said() -> None:
    with pytest.raises(HttpError) as caught:
        read_reply(b'{"error": {"message": "busy", "code": 503, "metadata": {"raw": "x"}}}', {"retry-after": "2"})
    assert (caught.value.status_code, caught.value.headers) == (503, {"retry-after": "2"})
    assert str(caught.value) == 'busy {"code":503,"metadata":{"raw":"x"}}'
