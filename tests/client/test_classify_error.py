"""Each fault in its row: retry, give up the episode, stop the run."""

import json
import socket
from collections.abc import Mapping

import httpx
import orjson
import pytest

from refinesynth.backends import Backend
from refinesynth.client.classify_error import ErrorCategory, FailureAction, UnusableAnswer, classify_error
from refinesynth.client.http.reply import HttpError, read_reply, status_error

BACKEND = Backend(name="mine", model="gpt-4o", base_url="http://h/v1")


# What a limit per minute is called there; the first sentence is what OpenAI says when the money is gone.
GOOGLES = (
    '{"error": {"code": 429, "message": "You exceeded your current quota, please check your plan and billing details. For '
    'more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.", '
    '"status": "RESOURCE_EXHAUSTED"}}'
)
CONTEXT = "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens"


class StatusError(Exception):
    """Shaped as litellm's and OpenAI's errors are."""

    def __init__(self, status: object, text: str = "no", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status_code = status
        self.litellm_response_headers = headers


class APIConnectionError(StatusError): ...


class UnsupportedParamsError(StatusError): ...


class ClientConnectorError(OSError):
    """Named as aiohttp's."""


class ClientConnectorDNSError(ClientConnectorError): ...


class BudgetExceededError(Exception): ...


class Timeout(StatusError): ...


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


SORTED: dict[tuple[FailureAction, ErrorCategory], tuple[Exception, ...]] = {
    (FailureAction.RETRY, ErrorCategory.RATE_LIMIT): (
        StatusError(429, "slow down"),
        StatusError(429, GOOGLES),
        StatusError(429, "Quota exceeded: tokens per minute"),
        StatusError(429, "Usage limit reached: 60 requests per minute"),
        StatusError(429, "INSUFFICIENT QUOTA: You exceeded your current limit of concurrent requests."),
        StatusError(429, "No deployments available for selected model, Try again in 5"),
        StatusError(429, "Rate limit exceeded for api_key: 1f. ConcurrencyLimit type: tokens."),
    ),
    (FailureAction.STOP, ErrorCategory.QUOTA): (
        StatusError(429, "You exceeded your current quota"),
        StatusError(402, "pay"),
        StatusError(400, "Your credit balance is too low"),
        StatusError(400, "You have reached your specified API usage limits. You will regain access on 2026-12-01."),
        StatusError(400, "API access is blocked: the organization has reached its spend limit"),
        StatusError(429, "Your account is not active, please check your billing details"),
        StatusError(429, "Usage limit reached for 5 hour."),
        BudgetExceededError("Budget has been exceeded!"),
        # What litellm's proxy says: of a user's budget, and of a provider's.
        StatusError(422, "ExceededBudget: User=u over budget. Spend=1.0, Budget=0.5"),
        StatusError(429, "No deployments available - crossed budget: 33.1 >= 20.0"),
    ),
    (FailureAction.STOP, ErrorCategory.AUTHENTICATION): (
        # What litellm's proxy says of a key where it knows no database.
        StatusError(400, "No connected db."),
        APIConnectionError(500, "The api_key client option must be set"),
        StatusError(401, "content policy"),
        StatusError(403, "forbidden"),
        StatusError(400, "API key not valid. Please pass a valid API key."),
        StatusError(400, "The security token included in the request is expired"),
        StatusError(400, "This organization has been disabled."),
    ),
    (FailureAction.STOP, ErrorCategory.NOT_FOUND): (
        StatusError(400, "Invalid model name passed in model=m. Call `/v1/models`"),
        StatusError(400, "{\"detail\":\"Server is pinned to 'a'; requested 'b'.\"}"),
        StatusError(404, "nothing here"),
        StatusError(400, "Model Not Exist"),
        StatusError(400, "LLM Provider NOT provided"),
    ),
    (FailureAction.RETRY, ErrorCategory.TIMEOUT): (
        TimeoutError(),
        Timeout(408, "late"),
        httpx.ReadTimeout("late"),
        StatusError(408),
        StatusError(504),
    ),
    (FailureAction.RETRY, ErrorCategory.SERVER): (
        StatusError(500),
        # It loads no more.
        StatusError(503, "model foo failed loading: CUDA out of memory"),
        StatusError(503, "Model x not loaded due to out of memory"),
        StatusError(529, "overloaded"),
        caused(httpx.ConnectError("x"), ConnectionResetError()),
        OSError("no route"),
        ConnectionResetError(),
        httpx.RemoteProtocolError("x"),
        StatusError(200, "Unable to get json response"),
        StatusError(422, "Error converting to valid response block"),
        caused(StatusError(500), json.JSONDecodeError("x", "", 0)),
        RecursionError("deep"),
    ),
    (FailureAction.RETRY, ErrorCategory.UNREACHED): (
        caused(StatusError(500, "Connection error."), ConnectionRefusedError()),
        caused(APIConnectionError(500), httpx.ConnectError("x")),
        caused(StatusError(500), caused(httpx.ConnectError("x"), socket.gaierror())),
        caused(StatusError(500), ClientConnectorError("Multiple exceptions: x")),
        caused(StatusError(500), ClientConnectorDNSError("x")),
    ),
    (FailureAction.RETRY, ErrorCategory.DEFECT): (caused(APIConnectionError(500, "'content'"), KeyError("content")),),
    (FailureAction.STOP, ErrorCategory.DEFECT): (
        APIConnectionError(500, "No module named 'mcp'"),
        caused(APIConnectionError(500, "x"), ImportError("x")),
        TypeError("a bug"),
    ),
    (FailureAction.ABANDON, ErrorCategory.POLICY): (
        StatusError(403, "Your input was flagged"),
        StatusError(400, "violates our usage policies"),
    ),
    (FailureAction.ABANDON, ErrorCategory.CONTEXT): (
        StatusError(400, "This model's maximum context length is 8192"),
        StatusError(413),
    ),
    (FailureAction.ABANDON, ErrorCategory.REJECTED): (StatusError(400, "bad schema"), StatusError(422)),
    (FailureAction.STOP, ErrorCategory.REJECTED): (UnsupportedParamsError(400, "gpt-5 does not support temperature"),),
    (FailureAction.RETRY, ErrorCategory.CONTENT): (UnusableAnswer("gave an empty answer"),),
}


def test_a_fault_is_in_its_row() -> None:
    for row, errors in SORTED.items():
        for error in errors:
            fault = classify_error(error, BACKEND)
            assert (fault.action, fault.category) == row, error
            assert fault.message.startswith("mine "), error


Z_AI = "系统检测到输入或生成内容可能包含不安全或敏感内容"
SPRING = {"status": 503, "error": "Service Unavailable", "path": "/v1/chat/completions"}
AZURES: object = [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": True, "severity": "high"}}}]
REFUSALS: dict[ErrorCategory, tuple[tuple[int, object], ...]] = {
    ErrorCategory.POLICY: (
        (400, {"error": {"code": "1301", "message": Z_AI}, "contentFilter": [{"level": 1}]}),
        (400, {"code": "DataInspectionFailed", "message": "Output data may contain inappropriate content."}),
        (400, {"error": {"message": "The system detected potentially unsafe or sensitive content"}}),
        (400, {"error": {"message": "The request was rejected because it was considered high risk"}}),
        (403, {"error": "Content violates usage guidelines."}),
        (400, {"error": {"message": "输入内容违反了相关法律法规"}}),
        (200, {"base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}, "choices": None}),
        (200, {"base_resp": {"status_code": 1027, "status_msg": "?"}, "choices": [{"message": {"content": "x"}}]}),
        (200, {"choices": [], "prompt_filter_results": AZURES}),
        (200, {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}),
        (200, {"error": {"code": "content_filter", "message": "no"}}),
        (400, {"error": {"code": "content_filter", "message": "The response was"}}),
    ),
    ErrorCategory.RATE_LIMIT: (
        (400, {"message": "Too many tokens, please wait before trying again."}),
        (200, {"__type": "ThrottlingException", "message": "Too many tokens per day, please wait"}),
        (400, {"code": "Throttling.BurstRate", "message": "Request rate increased too quickly"}),
        (403, {"error": {"message": "您的账户已达到速率限制"}}),
        (429, {"error": {"code": "1302", "message": "您当前使用该API的并发数过高"}}),
        (200, {"error": {"message": "Provider returned error", "code": "429"}}),
        (200, {"error": {"message": "no", "code": "rate_limit_exceeded"}}),
        (200, [{"error": {"code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED"}}]),
        (200, {"detail": "Rate limit exceeded"}),
        (200, {"base_resp": {"status_code": 1039, "status_msg": "token limit"}}),
        (200, {"choices": [{"error": {"code": 429, "message": "x"}, "finish_reason": "error"}]}),
    ),
    ErrorCategory.CONTEXT: (
        (400, {"message": "Too many input tokens"}),
        (413, {"error": {"message": "Request too large on tokens per minute (TPM)", "code": "rate_limit_exceeded"}}),
        (400, {"error": {"message": "输入长度超过模型最大上下文"}}),
        (200, {"object": "error", "message": CONTEXT, "type": "BadRequestError", "code": 400}),
        (200, {"error": {"code": "context_length_exceeded", "message": "no"}}),
    ),
    ErrorCategory.QUOTA: (
        (429, {"error": {"code": "1113", "message": "余额不足或无可用资源包,请充值。"}}),
        (200, {"base_resp": {"status_code": 1008, "status_msg": "no"}}),
        (403, {"error": {"message": "该令牌额度已用尽"}}),
    ),
    ErrorCategory.AUTHENTICATION: (
        (200, {"error": {"type": "authentication_error", "message": "no"}, "type": "error"}),
        (200, {"base_resp": {"status_code": 2049, "status_msg": "invalid api key"}}),
        (200, {"code": 401, "msg": "无效的令牌", "success": False}),
    ),
    ErrorCategory.NOT_FOUND: ((200, {"error": {"code": "model_not_found", "message": "no"}}),),
    ErrorCategory.SERVER: (
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        (200, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        (200, {"error": "model is overloaded", "choices": None}),
        (200, {"code": 500, "message": "internal", "success": False}),
        (200, {"success": False, "errors": [{"code": 7003, "message": "no"}, {"code": 1}], "result": None}),
        (200, {"error": True}),
        (500, {"error": {"message": "rate limit reached upstream"}}),
        (200, SPRING),
    ),
    ErrorCategory.TIMEOUT: ((200, {"error": {"code": 504, "message": "late"}}),),
    ErrorCategory.REJECTED: (
        (200, {"detail": [{"loc": ["body", "seed"], "msg": "extra inputs are not allowed"}]}),
        (400, {"detail": "Stream must be set to true"}),
    ),
}


def choice(text: str) -> dict[str, object]:
    """A whole answer in a completion."""
    return {"message": {"content": text}, "finish_reason": "stop"}


def of_server(status: int, body: object) -> Exception:
    """What the direct client raises for an answer."""
    sent = orjson.dumps(body)
    if status != 200:
        return status_error(status, sent, {})
    with pytest.raises(HttpError) as caught:
        read_reply(sent, {})
    return caught.value


def test_what_servers_say_is_sorted_by_what_it_means_in_an_error_and_in_a_success() -> None:
    for kind, status, body in ((kind, *one) for kind, several in REFUSALS.items() for one in several):
        fault = classify_error(of_server(status, body), BACKEND)
        assert fault.category is kind, body
        assert status != 200 or (fault.status is None and "HTTP" not in fault.message), body


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": [choice("hi")], "error": {"message": "", "code": None}},
        {"choices": [choice("hi") | {"error": None}], "base_resp": {"status_code": 0, "status_msg": ""}},
        {"choices": [choice("Too many requests")], "prompt_filter_results": AZURES},
        {"type": "message", "content": [{"type": "text", "text": "rate limit"}]},
        {"message": {"role": "assistant", "content": "rate limit"}, "done": True},
        {"object": "response", "status": "completed", "error": None, "output": []},
    ],
)
def test_what_says_nothing_of_an_error_is_none(body: dict[str, object]) -> None:
    assert read_reply(orjson.dumps(body), {}) == body


def test_the_variable_that_is_named_is_the_one_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEEPSEEK_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "MY_LOGIN"):
        monkeypatch.delenv(name, raising=False)

    def said(status: int = 401, **settings: str) -> str:
        return classify_error(StatusError(status), Backend.model_validate(settings)).message

    assert "DEEPSEEK_API_KEY holds none: set it" in said(model="deepseek/deepseek-chat")
    assert "MY_LOGIN holds none: set it" in said(model="deepseek/deepseek-chat", api_key_env="MY_LOGIN")
    for name in ("DEEPSEEK_API_KEY", "GOOGLE_API_KEY", "MY_LOGIN"):
        monkeypatch.setenv(name, "canary-0123456789")
    for status in (401, 403):
        assert "check the key in DEEPSEEK_API_KEY" in said(status, model="deepseek/deepseek-chat")
    assert "check the key in GOOGLE_API_KEY" in said(model="gemini/gemini-3-flash")
    assert "check the key in MY_LOGIN" in said(model="gpt-4o", base_url="http://h/v1", api_key_env="MY_LOGIN")
    # A key for one provider is not sent to another server.
    assert "none was sent to this server" in said(model="deepseek/deepseek-chat", base_url="http://h/v1")
    # Where litellm looks itself.
    assert "the credentials that litellm reads for bedrock" in said(model="bedrock/any")


PAGE = "<!DOCTYPE html> <html><head><title>Sign in</title></head><body>Hello</body></html>"
HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.mark.parametrize(
    ("error", "page"),
    [
        (StatusError(404, PAGE), "Sign in"),
        (StatusError(405, "<html><h1>405 Not Allowed</h1>"), "<html><h1>405 Not Allowed</h1>"),
        (StatusError(404, "<h1>Nothing here</h1>", HTML), "<h1>Nothing here</h1>"),
        (
            StatusError(
                200, "its body is no JSON: JSONDecodeError in 9 bytes of text/html, beginning with hello", HTML
            ),
            "its",
        ),
        (StatusError(200, f"Unable to get json response - Expecting value, Original Response: {PAGE}"), "Sign in"),
        (StatusError(500, f"Empty or invalid response from LLM endpoint. Received: '{PAGE}'"), "Sign in"),
        (StatusError(400, "bad schema", HTML), None),
        (StatusError(400, f"cannot parse {PAGE}"), None),
        *((StatusError(status, PAGE, HTML), None) for status in (401, 402, 403, 408, 413, 429, 500, 502, 503)),
        (StatusError(404, "no such model"), None),
        (ConnectionResetError(), None),
    ],
)
def test_a_web_page_is_told_from_an_answer(error: Exception, page: str | None) -> None:
    found = classify_error(error, BACKEND).page
    assert found is None if page is None else found is not None and found.startswith(page)


def test_the_backends_own_key_is_in_no_message_whatever_its_variable_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_LOGIN", "canary.0123456789")
    backend = BACKEND.model_copy(update={"api_key_env": "MY_LOGIN"})
    faults = (
        StatusError(401, "canary.0123456789 is no key"),
        UnusableAnswer("canary.0123456789", ErrorCategory.SERVER),
    )
    for fault in faults:
        assert "canary" not in classify_error(fault, backend).message


def test_messages_are_one_short_line_without_tracebacks() -> None:
    text = 'litellm.APIError: APIError: FooException - said no\nTraceback (most recent call last):\n  File "x"'
    assert classify_error(StatusError(400, text), BACKEND).message == "mine rejects the request with HTTP 400 (said no)"
    assert len(classify_error(StatusError(400, "x" * 10_000), BACKEND).message) < 500


def test_what_decides_may_stand_behind_a_long_echo() -> None:
    fault = classify_error(StatusError(400, f"{'echo ' * 1_000} {CONTEXT}"), BACKEND)
    assert fault.category is ErrorCategory.CONTEXT
    assert len(fault.message) < 500


@pytest.mark.long
def test_long_texts_are_sorted_and_shown_shortened() -> None:
    # Where a pattern takes quadratic time, this goes on for minutes.
    parts = ("<title", "<html>", "Received: '", "violat", "exceed", "reduce ", "model ", "model `", "sk-", "ssl:<")
    for part in (*parts, "Error: ", "<a at 0"):
        assert len(classify_error(StatusError(400, part * 100_000), BACKEND).message) < 600, part


UNCERTAIN = (
    StatusError(400, "cannot parse: 'Insufficient funds.'"),
    StatusError(422, "cannot parse: 'Unauthorized!'"),
    StatusError(500, "cannot parse: 'Insufficient funds.'"),
    StatusError(400, "Model Not Exist"),
)
CERTAIN = (
    StatusError(401, "Insufficient funds"),
    StatusError(402),
    StatusError(403),
    StatusError(404, "Unauthorized"),
    StatusError(429, "You exceeded your current quota"),
    BudgetExceededError("Budget has been exceeded!"),
    UnsupportedParamsError(400, "no temperature"),
    APIConnectionError(500, "The api_key client option must be set"),
    TypeError("a bug"),
)


def test_a_stop_is_certain_unless_only_the_words_of_an_answer_say_so() -> None:
    for error in (*UNCERTAIN, *CERTAIN):
        fault = classify_error(error, BACKEND)
        assert (fault.action, fault.certain) == (FailureAction.STOP, error in CERTAIN), error


def test_chains_that_bite_their_tail_end() -> None:
    first, second = StatusError(None, "a"), StatusError(None, "b")
    first.__cause__, second.__cause__ = second, first
    assert classify_error(first, BACKEND).action is FailureAction.STOP
