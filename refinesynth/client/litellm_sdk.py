"""The litellm SDK, imported in one place, with its downloads, `.env` file and output switched off."""

import os
import warnings
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

import orjson
from pydantic_ai.models import check_allow_model_requests

from refinesynth.backends.backend import NO_REASON
from refinesynth.client.http.reply import HttpError, Reply, read_reply

if TYPE_CHECKING:
    import httpx

_CONNECTIONS = "4096"
"""Maximum sockets of litellm, in total and per host; its default per host caps a run at 500 requests in flight."""
_IGNORED_WARNINGS = ("Pydantic serializer warnings", ".*`ReadOnly` qualifier")
"""Warnings of pydantic about responses with wrong types, which become faults, and about litellm's classes."""
_BODY = "original_response"
"""litellm's name for the body of a response."""
_CANCELLED_WARNING = r"coroutine '(BaseLLM|OpenAI|AsyncHTTP)\w*\.\w+' was never awaited"
"""Warning about a call cancelled between the creation of litellm's coroutine and its await; nothing was sent."""


@cache
def litellm() -> ModuleType:
    """Import litellm with its environment set, and silence it. The first call takes seconds."""
    defaults = {
        # Otherwise litellm downloads the price map and a list of Anthropic's headers, and reads ./.env into the
        # environment.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOG": "CRITICAL",
        # litellm's search for secrets takes minutes for an error of megabytes; `classify_error` removes keys.
        "LITELLM_DISABLE_REDACT_SECRETS": "true",
        "AIOHTTP_CONNECTOR_LIMIT": _CONNECTIONS,
        "AIOHTTP_CONNECTOR_LIMIT_PER_HOST": _CONNECTIONS,
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        # Users cannot act on pydantic's warnings about litellm's classes. Its schemas are built here, not at first use.
        warnings.simplefilter("ignore")
        import litellm as module

        module.ModelResponse()
    for message in _IGNORED_WARNINGS:
        warnings.filterwarnings("ignore", message=message, category=UserWarning)
    warnings.filterwarnings("ignore", message=_CANCELLED_WARNING, category=RuntimeWarning)

    # Otherwise litellm prints advice to stdout, into the user's pipe.
    module.suppress_debug_info = True
    return module


async def completion(**request: object) -> object:
    """Call `litellm.acompletion` without its retries and its `mcp` handler; keep the server's finish reason.

    Raises:
        HttpError: The server reports an error with status 200; litellm loses the error's text and code.
        Exception: Any error of litellm.
    """
    check_allow_model_requests()
    record: dict[str, object] = {}
    # litellm passes its record of the call, with the response body, to `logger_fn` before it parses the body.
    call = litellm().acompletion(**request, max_retries=0, _skip_mcp_handler=True, logger_fn=record.update)
    try:
        response = await call
    except Exception:
        if (response := _read_without_litellm(record)) is None:
            raise
    else:
        # The substring search spares most responses the parsing in `_read_without_litellm`.
        body = str(record.get(_BODY))
        reason = _finish_reason_in(record.get(_BODY))
        for choice in response.choices[:1] if reason else ():
            fields = getattr(choice, "provider_specific_fields", None)
            choice.provider_specific_fields = {**(fields or {}), "native_finish_reason": reason}
        may_hold_error = '"choices"' in body and ('"error"' in body or '"base_resp"' in body)
        if (may_hold_error or not response.choices) and isinstance(error := _read_without_litellm(record), HttpError):
            response = error
    # Outside of the handler, where litellm's exception would become the context of this one.
    if isinstance(response, HttpError):
        raise response
    return response


def _read_without_litellm(record: Mapping[str, object]) -> Reply | HttpError | None:
    """Return the completion or error in an OpenAI response that litellm may misread; None if it has neither."""
    body = record.get(_BODY)
    # The direct client rejects invalid UTF-8 as well.
    if not isinstance(body, str) or "\ufffd" in body:
        return None
    try:
        reply = read_reply(body.encode(errors="replace"), {})
    except HttpError as error:
        return error if error.in_body else None
    has_choices = isinstance(reply.get("choices"), list) and reply["choices"]
    # Without choices, a usage still has to be paid for.
    return reply if has_choices or reply.get("usage") else None


def _finish_reason_in(body: object) -> str | None:
    """Return the server's finish reason; `NO_REASON` if it sent none; None for an unknown form of response."""
    try:
        response = orjson.loads(body) if isinstance(body, str | bytes) else None
    except orjson.JSONDecodeError:
        return None
    match response:
        case {"choices": [{"finish_reason": str(reason)}, *_]} if reason:
            return reason
        case {"choices": [{"finish_details": dict()}, *_]}:
            return None
        case {"choices": [{}, *_]}:
            return NO_REASON
        case {"stop_reason": reason} | {"stopReason": reason} | {"done_reason": reason}:
            return reason if isinstance(reason, str) and reason else NO_REASON
        case _:
            return None


def http_client(transport: "httpx.AsyncBaseTransport") -> object:
    """Return a `client` for `completion` over this transport."""
    litellm()
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    return AsyncHTTPHandler(transport=transport)


def accepts(model: str, parameter: str) -> bool:
    """Return True if a model accepts an OpenAI parameter; False for models unknown to litellm."""
    try:
        return parameter in (litellm().get_supported_openai_params(model) or ())
    except Exception:  # noqa: BLE001 - litellm raises its BadRequestError for models it cannot place
        return False
