"""Classification of the faults of a completion: retry, abandon the episode, or stop the run.

litellm's exception classes are ambiguous: a 500 with `invalid_request_error` is a BadRequestError, a refused connection
an InternalServerError, a bug of litellm an APIConnectionError. Rules over the HTTP status, the chain of causes and the
text of an error decide instead. No rule needs litellm; they apply to any completion function.
"""

import json
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from socket import gaierror

from refinesynth.backends.backend import Backend
from refinesynth.backends.providers import key_of, key_variables, server_of, split_model
from refinesynth.client.http.reply import headers_of, retry_after_in
from refinesynth.text.formatting import redact

_QUOTED_CHARS = 400
"""Characters of the server's text that a message quotes."""
_MAX_CHARS = 20_000
"""Characters of a message that are examined: the decisive words may follow a long echo of the prompt."""
_STATUS_ALONE = re.compile(r"\bError code: \d{3}\W*$")
_REPR = re.compile(r" ?(\b\w{1,20}[:=])?<[^<>]{1,200} at 0x[0-9a-f]+>| ssl:(default|None|True|False)\b", re.IGNORECASE)
"""Representations of Python objects in a message, which do not help the reader."""


class FailureAction(StrEnum):
    """Reaction to a fault."""

    RETRY = "retry"
    ABANDON = "abandon"
    """Give up this episode; others continue."""
    STOP = "stop"
    """Stop the run; no episode can continue."""


class ErrorCategory(StrEnum):
    """Kind of a fault."""

    RATE_LIMIT = "rate_limit"
    TIMEOUT = "timeout"
    SERVER = "server"
    """The backend is down, is overloaded, drops the connection, or returns no completion."""
    LOADING = "loading"
    """The server is up and still loads its model."""
    UNREACHED = "unreached"
    """No connection: the server refuses it, the host name is unknown, or TLS fails."""
    CONTENT = "content"
    """The completion is billed, but empty, cut off, too long, or without a readable tool call."""
    POLICY = "policy"
    CONTEXT = "context"
    """The prompt is longer than the model's context."""
    REJECTED = "rejected"
    """The server rejects this request, because of the settings or the prompt."""
    AUTHENTICATION = "authentication"
    NOT_FOUND = "not_found"
    QUOTA = "quota"
    DEFECT = "defect"
    """The completion function itself failed, before the request or while it read the response."""


@dataclass(frozen=True)
class ClassifiedError:
    action: FailureAction
    category: ErrorCategory
    message: str
    """Description and advice, without keys."""
    retry_after: float | None = None
    """Seconds that the server asks to wait."""
    certain: bool = True
    """False for a STOP inferred only from the text of a response, which may quote the prompt."""
    status: int | None = None
    """HTTP status, if any; litellm invents a status for errors without one."""
    arguments: tuple[str, ...] = ()
    """Arguments of the request that the server names, in its order."""
    page: str | None = None
    """Title or beginning of a web page received instead of a completion. From a server that never answered, a page
    suggests a wrong URL. None if the status already explains the page: key, load or size."""


class UnusableAnswer(Exception):
    """An unusable completion. A refusal abandons the episode; after any other, the request is retried."""

    def __init__(self, message: str, category: ErrorCategory = ErrorCategory.CONTENT) -> None:
        super().__init__(message)
        self.action = FailureAction.ABANDON if category is ErrorCategory.POLICY else FailureAction.RETRY
        self.category = category


_POLICY = re.compile(
    r"content[_ ]?(policy|filter|management|safety|moderation)|safety (system|setting|filter)|responsible ?ai|flagged|moderation"
    r"|data_?inspection|prohibited[_ ]content|violat\w{1,5} (our |the |any )?(\w{1,20} )?(polic|guideline)|content exists risk|high risk"
    r"|(unsafe|(?<!case[ -])sensitive|inappropriate|harmful|illegal) (or \w{1,20} )?(content|information|words?|input|output|prompt)"
    r"|new_sensitive|guardrail|blockReason|\"filtered\": ?true"
    # Error codes of z.ai, MiniMax and iFlytek, whose messages may be in any language.
    r"|code\"?: ?\"?(1301|1026|1027|10013|10014|10019)\b"
    r"|敏感(内容|信息|词)|不安全|违规|违反.{0,12}(政策|规定|法规|规范)|涉嫌|内容(安全|审核|风险)|(审核|审查)(未|不)通过",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context[_ ](length|window|size)|maximum (context|prompt|input)|max(imum)?[_ ]model[_ ]len|prompt is too long"
    r"|input( length| tokens?)? (is too long|exceed)|too many (input )?tokens|(reduce|exceed)\w{0,3} .{0,40}length|token limit"
    r"|(上下文|输入|长度|提示词).{0,20}(过长|太长|超长|超出|超过)|超(出|过).{0,20}(上下文|长度)",
    re.IGNORECASE,
)
_THROTTLED = re.compile(
    r"\brate[ _-]?limit|too[ _]many[ _]requests|throttl|too many tokens( per \w{1,10})?\W{1,3}(please )?(wait|try|slow|retry)|request rate (increased|exceed|is too)"
    r"|\b(qps|rpm|tpm|rpd|tpd)\b.{0,20}(limit|exceed)|concurrency (limit|exceed)|request limit reached"
    r"|请求(过于|太|过)(频繁|快|多)|(频率|速率|并发|次数|请求量?).{0,4}(过高|过快|超限|超出|超过|限制|上限|限额|达到)|限流|访问量过大",
    re.IGNORECASE,
)
"""Words of a rate limit, for any HTTP status; words that a story may contain are left out."""
_OVERLOADED = re.compile(
    r"overload|\bbusy\b|unavailable|try again|at capacity|internal|timed? ?out|server.?error|upstream|繁忙|过载|饱和|稍后(再|重)?试",
    re.IGNORECASE,
)
_INVALID = re.compile(
    r"invalid|unsupported|not support|bad request|malformed|unprocessable|validation|required|must be|not allowed"
    r"|unknown (field|param)|参数(错误|异常|非法)|不支持",
    re.IGNORECASE,
)
"""Words of an invalid request; with `_OVERLOADED`, classifies errors that have neither a status nor a code."""
_QUOTA = re.compile(
    r"insufficient[_ ](quota|balance|credit|fund)|exceeded[_ ](your )?current[_ ](\w{1,20}[_ ])?quota|check your plan and billing"
    r"|billing (hard )?limit|credit balance|out of credits|budget (has been )?exceeded|(exceeded|crossed) ?budget|budget_exceeded|spend(ing)? limit|payment required|arrear|account (is )?(deactivated|suspended)"
    # Anthropic's and z.ai's limits of a plan, and an account of OpenAI without billing.
    r"|API usage limit|usage[_ ]limit[_ ](has been )?(reached|exceeded)|account is not active|billing_not_active"
    r"|余额不足|欠费|无可用资源包|充值|(额度|配额).{0,4}(用尽|用完|耗尽)|额度不足",
    re.IGNORECASE,
)
_PER_MINUTE = re.compile(
    r"/rate-limits\b|please retry in \d|\bretryDelay\b|per[ _-]?(minute|second)|\bconcurren(t|cy)|并发", re.IGNORECASE
)
"""Words of a quota that refills: Google reports a limit per minute as `exceeded your current quota`, Scaleway one of
concurrent requests as `INSUFFICIENT QUOTA`."""
_KEY = re.compile(
    r"(incorrect|invalid|missing|no|wrong|expired)[ _](api[ _-]?key|authentication|credential)|api[ _-]?key[ _](not|is)"
    # litellm's proxy rejects a key that is not its master key with these words if it has no database of keys.
    r"|no connected db|no_db_connection|api_key client option|unauthori[sz]ed|permission[ _]denied"
    # Of Gemini and Bedrock with status 400; of Anthropic and Groq about a blocked organization.
    r"|api[ _]key[ _](expired|invalid)|security token .{0,40}(expired|invalid)"
    r"|(organization|workspace|subscription) (is|has been) (disabled|restricted|suspended|archived)"
    r"|(令牌|api[ _-]?key|密钥).{0,6}(无效|错误|不存在|过期|不正确|失效)|无效的(令牌|api|密钥)|(身份|鉴权|认证|密钥).{0,4}失败",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"model[ _](not|does)[ _](not )?(exist|found)|model `[^`]*` does not|not a valid model|unknown model|no such model|server is pinned to"
    r"|LLM Provider NOT provided|invalid model|model .{0,80}(deprecated|retired|decommissioned|not supported)"
    r"|模型.{0,40}(不存在|未找到|已下线|无可用渠道)",
    re.IGNORECASE,
)
_UNREADABLE = re.compile(
    r"body is no JSON|invalid response object|error converting to valid response|unable to get json|no 'choices'|'choices' that is not|empty or invalid response",
    re.IGNORECASE,
)
_PAGE_START = re.compile(r"^\W{0,4}(<!doctype html|<html\b)", re.IGNORECASE)
_QUOTED_PAGE = re.compile(r"(?:Original Response: |Received: '|beginning with )\W{0,4}(<[a-z!])", re.IGNORECASE)
"""Beginning of a page that came with status 200, as quoted by litellm and the direct client."""
_TITLE = re.compile(r"<title[^<>]{0,100}>([^<>]{1,100})", re.IGNORECASE)
_PAGE_CHARS = 80
"""Characters shown of a page without a title."""
_ARGUMENTS: Mapping[str, re.Pattern[str]] = {
    "response_format": re.compile(
        r"response[_ ]?format|json[_ ]?schema|structured[_ ]outputs?|\bgrammar", re.IGNORECASE
    ),
    "tool_choice": re.compile(r"tool[_ ]choice", re.IGNORECASE),
    "tools": re.compile(r"\btools?\b(?![_ ]choice)|function[_ ]call", re.IGNORECASE),
    "seed": re.compile(r"\bseed\b", re.IGNORECASE),
    # In quotes or after a colon: many messages contain the bare word.
    "stop": re.compile(r"""['"`]stop['"`]|: stop\b(?! )|\bstop[_ ]sequences?\b""", re.IGNORECASE),
    "temperature": re.compile(r"\btemperature\b", re.IGNORECASE),
    "top_p": re.compile(r"\btop_p\b", re.IGNORECASE),
    "max_tokens": re.compile(r"\bmax_(completion_)?tokens\b", re.IGNORECASE),
}
"""Servers' names for the arguments that follow from a backend's settings; arguments in `extra` keep their name."""
_PARSE_ERRORS = (json.JSONDecodeError, UnicodeError, RecursionError)
_NETWORK_LIBRARIES = frozenset({"httpx", "httpcore", "httpx2", "httpcore2", "aiohttp", "requests", "urllib3", "anyio"})
"""Libraries whose errors mean that the exchange with the server failed."""
_REFUSED_ERRORS = (ConnectionRefusedError, gaierror)
_CONNECT_ERRORS = frozenset({"ConnectError", "ClientConnectorError"})
"""httpx's and aiohttp's errors for a failed connection; operating systems word the reasons differently."""
_TLS = re.compile(r"\[SSL\b|\bSSL(Cert\w+)?Error|certificate_?verify_?failed|\bTLSV?1?_", re.IGNORECASE)
_CERTIFICATE = re.compile(r"certificate[ _]verify[ _]failed|certificate is not valid|self[- ]signed", re.IGNORECASE)
_PLAIN_HTTP = re.compile(r"wrong[ _]version[ _]number|record layer failure|http[ _]request", re.IGNORECASE)
"""OpenSSL's error messages about a server that speaks plain HTTP."""
_DROPPED_ERRORS = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
"""Errors of an established connection; litellm raises them, too, as httpx's ConnectError."""


def classify_error(error: Exception, backend: Backend) -> ClassifiedError:
    """Classify an error that the completion function of `backend` raised, or that its response caused.

    Every exception is classified. An unexplained one counts as a defect of the completion function; without a status
    it stops the run, because every episode would fail the same way.
    """
    key, in_body = key_of(backend), getattr(error, "in_body", False)
    if isinstance(error, UnusableAnswer):
        return ClassifiedError(error.action, error.category, f"{backend.label} {redact(str(error), key=key)}")
    status, text = _status_of(error), _text_of(error, key)
    page = _page_excerpt(error, status, text)
    # Servers report a missing model in JSON; a page comes from a gateway.
    rule = _BROKEN if page is not None and status == _NOT_FOUND else _matching_rule(error, status, text)
    retry_after = retry_after_in(headers_of(error)) if rule.action is FailureAction.RETRY else None
    text = text if page is None else f"a web page: {page!r}"
    description = rule.template.format(
        text=text if len(text) <= _QUOTED_CHARS else f"{text[:_QUOTED_CHARS]}...",
        how="an error in its answer" if in_body else f"HTTP {status}",
        model=backend.model,
        key=_key_advice(backend),
        trust=_trust_advice(),
        server=f" at {backend.base_url}" if backend.base_url else "",
        timeout=f"{backend.timeout:g} s",
        error=type(error).__name__,
    )
    by_text_alone = rule.pattern is not None and status not in rule.statuses | _ACCOUNT_STATUSES
    certain = rule.action is not FailureAction.STOP or not by_text_alone or not _has_answer(error, status)
    message = redact(f"{backend.label} {description}", key=key)
    status = None if in_body else status
    return ClassifiedError(
        rule.action, rule.category, message, retry_after, certain, status, _named_arguments(text, backend), page
    )


@dataclass(frozen=True)
class _Rule:
    action: FailureAction
    category: ErrorCategory
    template: str
    """Text after the backend's name; `{text}` is the server's message."""
    statuses: frozenset[int] = frozenset()
    """HTTP statuses that decide by themselves."""
    pattern: re.Pattern[str] | None = None
    """Words in the text that decide, for any status."""

    def matches(self, status: int, text: str) -> bool:
        return status in self.statuses or (self.pattern is not None and self.pattern.search(text) is not None)


_retry, _abandon, _stop = (partial(_Rule, step) for step in FailureAction)

_LOADING = _retry(
    ErrorCategory.LOADING,
    "is loading its model ({text})",
    frozenset({503}),
    re.compile(
        r"\A(?!.{0,500}\b(fail|out of memory)).*?(loading (the )?model|model .{0,80}\b(loading|not loaded|warming up))",
        re.IGNORECASE | re.DOTALL,
    ),
)
"""llama.cpp, text-generation-inference and others. Requires both status and words, and no words of a failure."""
_TIMEOUT = _retry(ErrorCategory.TIMEOUT, "gave no answer within {timeout}")
_UNREACHED = _retry(ErrorCategory.UNREACHED, "cannot be reached{server} ({text})")
_UNTRUSTED = _stop(
    ErrorCategory.UNREACHED, "shows a TLS certificate{server} that is not trusted here; {trust} ({text})"
)
_NO_TLS = _stop(
    ErrorCategory.UNREACHED,
    "does not speak TLS{server}, as https:// says; give a base_url that begins with http:// ({text})",
)
_TLS_FAILED = _retry(ErrorCategory.UNREACHED, "cannot be reached{server}, because TLS failed ({text})")
_DROPPED = _retry(ErrorCategory.SERVER, "broke off the connection{server} ({text})")
_BROKEN = _retry(ErrorCategory.SERVER, "sent something that is no completion ({text})")
_DEFECT = _stop(ErrorCategory.DEFECT, "cannot be asked: {error}: {text}")
# litellm failed on an unexpected response or on a bug of its own. A few retries show which.
_CONFUSED = _retry(ErrorCategory.DEFECT, "cannot be asked, or sent something odd ({text})")
_SETTINGS = _stop(ErrorCategory.REJECTED, "does not take these settings; change them in the backend ({text})")
_REJECTED = _abandon(ErrorCategory.REJECTED, "rejects the request with {how} ({text})")
_NO_CREDIT = "has no credit left for this key; top it up or choose another backend ({text})"
_WRONG_KEY = "does not accept the key; {key} ({text})"
_WRONG_MODEL = "has no model {model!r}{server}; check the model string and base_url ({text})"

_BUSY = _retry(ErrorCategory.RATE_LIMIT, "says that there are too many requests ({text})", frozenset({429}))
_FAILED = _retry(ErrorCategory.SERVER, "failed with {how} ({text})", frozenset({409, 425, *range(500, 600)}))
_TOO_LONG = "cannot read a prompt of this length ({text})"

_RULES = (
    _stop(ErrorCategory.QUOTA, _NO_CREDIT, frozenset({402}), _QUOTA),
    _BUSY,
    _retry(ErrorCategory.TIMEOUT, "gave no answer in time and says so with {how} ({text})", frozenset({408, 504})),
    _FAILED,
    _stop(ErrorCategory.AUTHENTICATION, _WRONG_KEY, frozenset({401})),
    _abandon(ErrorCategory.CONTEXT, _TOO_LONG, frozenset({413})),
    _retry(ErrorCategory.RATE_LIMIT, _BUSY.template, pattern=_THROTTLED),
    _stop(ErrorCategory.AUTHENTICATION, _WRONG_KEY, pattern=_KEY),
    # Before 403 and 404: some gateways send these statuses for a prompt that their moderation flags.
    _abandon(ErrorCategory.POLICY, "refuses this prompt by its content policy ({text})", pattern=_POLICY),
    _stop(ErrorCategory.AUTHENTICATION, _WRONG_KEY, frozenset({403})),
    _stop(ErrorCategory.NOT_FOUND, _WRONG_MODEL, frozenset({404}), _MODEL),
    _abandon(ErrorCategory.CONTEXT, _TOO_LONG, pattern=_CONTEXT),
    _REJECTED,
)
"""Rows for a status from 400 on, or 0 for an error without a code; the first that fits counts, else the last."""

_TIMEOUTS = frozenset({"Timeout", "APITimeoutError", "ReadTimeout", "WriteTimeout", "ConnectTimeout", "PoolTimeout"})
_SERVER_ERROR = 500
"""Also litellm's status for an unreachable server, a broken body and its own failure."""
_SUCCESS = 200
"""litellm's status for a body that is no JSON."""
_NOT_FOUND = 404
_PAGE_STATUSES = frozenset({401, 402, 403, 408, 413, 429})
"""Statuses below 500 that keep their meaning when the body is a web page."""
_ACCOUNT_STATUSES = frozenset({401, 402, 403, 404, 429})
"""Statuses sent before the server reads the prompt; their text is about the account or the model."""


def _matching_rule(error: Exception, status: int | None, text: str) -> _Rule:
    name = type(error).__name__
    special_cases = (
        (_TIMEOUT, isinstance(error, TimeoutError) or name in _TIMEOUTS),
        (_SETTINGS, name == "UnsupportedParamsError"),
        (_LOADING, status in _LOADING.statuses and _LOADING.matches(0, text)),
        (_BUSY, _BUSY.matches(status or 0, text) and _PER_MINUTE.search(text) is not None),
        (_BROKEN, _UNREADABLE.search(text) is not None),
    )
    chosen = next((rule for rule, applies in special_cases if applies), None)
    if chosen is None and status in {None, _SUCCESS, _SERVER_ERROR}:
        chosen = _rule_without_answer(error, status, text)
    number = _SERVER_ERROR if status is None else status
    chosen = chosen or next((rule for rule in _RULES if rule.matches(number, text)), _REJECTED)
    if chosen is _REJECTED and not number and (_OVERLOADED.search(text) or not _INVALID.search(text)):
        # Without a status and a code: a failure of the server, unless the text blames the request.
        return _FAILED
    return chosen


def _rule_without_answer(error: Exception, status: int | None, text: str) -> _Rule | None:
    """Return the row for a fault whose status is invented or missing; None if a server may have sent the 500."""
    if _is_network_error(error):
        return _tls_fault(error, text) or (_UNREACHED if _is_unconnected(error) else _DROPPED)
    if status == _SUCCESS or any(isinstance(cause, _PARSE_ERRORS) for cause in causes_of(error)):
        return _BROKEN
    if _has_answer(error, status):
        return None
    known = next((rule for rule in _RULES if rule.action is FailureAction.STOP and rule.matches(0, text)), None)
    is_module_missing = "No module named" in text or any(isinstance(cause, ImportError) for cause in causes_of(error))
    return known or (_DEFECT if status is None or is_module_missing else _CONFUSED)


def _named_arguments(text: str, backend: Backend) -> tuple[str, ...]:
    extra = {name: re.compile(rf"\b{re.escape(name)}\b") for name in backend.extra}
    matches = ((pattern.search(text), name) for name, pattern in {**extra, **_ARGUMENTS}.items())
    return tuple(name for _, name in sorted((match.start(), name) for match, name in matches if match is not None))


def _is_network_error(error: Exception) -> bool:
    return any(
        isinstance(cause, OSError) or type(cause).__module__.partition(".")[0] in _NETWORK_LIBRARIES
        for cause in causes_of(error)
        # These report an error status: the network worked.
        if type(cause).__name__ not in {"HTTPStatusError", "MaskedHTTPStatusError"}
    )


def _tls_fault(error: Exception, text: str) -> _Rule | None:
    message = " ".join([text, *(str(cause) for cause in causes_of(error))])
    if not _TLS.search(message) and not any(isinstance(cause, ssl.SSLError) for cause in causes_of(error)):
        return None
    if _CERTIFICATE.search(message):
        return _UNTRUSTED
    return _NO_TLS if _PLAIN_HTTP.search(message) else _TLS_FAILED


def _trust_advice() -> str:
    file = os.environ.get("SSL_CERT_FILE")
    if file and not Path(file).exists():
        return f"SSL_CERT_FILE names {file!r}, and no such file is there"
    return "name the file with its authority's certificate in the variable SSL_CERT_FILE"


def _is_unconnected(error: Exception) -> bool:
    causes = list(causes_of(error))
    is_connect_error = any(kind.__name__ in _CONNECT_ERRORS for cause in causes for kind in type(cause).__mro__)
    is_refused = is_connect_error or any(isinstance(cause, _REFUSED_ERRORS) for cause in causes)
    return is_refused and not any(isinstance(cause, _DROPPED_ERRORS) for cause in causes)


def _has_answer(error: Exception, status: int | None) -> bool:
    """Return True if a server responded. The error's class counts as well: litellm invents a status without one."""
    return status is not None and type(error).__name__ != "APIConnectionError"


def _page_excerpt(error: Exception, status: int | None, text: str) -> str | None:
    unread = _UNREADABLE.search(text) is not None
    # litellm reports a page that came with status 200 as a 500.
    if not unread and (status in _PAGE_STATUSES or (status or 0) >= _SERVER_ERROR):
        return None
    start = (_QUOTED_PAGE if unread else _PAGE_START).search(text)
    is_html = "text/html" in headers_of(error).get("content-type", "").casefold() and (unread or text.startswith("<"))
    if start is None and not is_html:
        return None
    if (title := _TITLE.search(text)) is not None:
        return title[1].strip()
    excerpt = text[0 if start is None else start.start(1) :][:_PAGE_CHARS]
    # Up to the last tag: litellm may append text to the page.
    return excerpt[: excerpt.rfind(">") + 1] or excerpt


def _key_advice(backend: Backend) -> str:
    names = key_variables(backend)
    if names:
        variable = next((name for name in names if os.environ.get(name)), None)
        return f"check the key in {variable}" if variable else f"{names[0]} holds none: set it"
    if server_of(backend) is not None:
        return "none was sent to this server: name the variable that holds one in api_key_env"
    return f"check the credentials that litellm reads for {split_model(backend.model)[0]}, or name a variable in api_key_env"


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then its causes."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _status_of(error: Exception) -> int | None:
    response = getattr(error, "response", None)
    codes = [str(getattr(source, "status_code", None)) for source in (error, response)]
    return next((int(code) for code in codes if code.isdecimal()), None)


def _text_of(error: Exception, key: str | None) -> str:
    """Return the error's message in one line, without keys, class names and tracebacks; its class if that is empty."""
    text = " ".join(redact(_message_of(error)[: 2 * _MAX_CHARS], key=key).split())
    # litellm repeats class names and appends tracebacks; neither helps to fix the fault.
    text = re.sub(r"^((litellm\.)?\w+(Error|Exception): ?|\w+Exception - )+", "", text).partition(" Traceback (")[0]
    return _REPR.sub("", text[:_MAX_CHARS]) or type(error).__name__


def _message_of(error: Exception) -> str:
    """Return the error's message; the response body if the message only names the status, as openai's for a page."""
    text = str(error)
    if _STATUS_ALONE.search(text) is None:
        return text
    try:
        body: object = getattr(getattr(error, "response", None), "text", None)
    except Exception:  # noqa: BLE001 - the response may never have been read
        return text
    return body if isinstance(body, str) and body.strip() else text
