"""A server that fails in many ways and repeats the key that it was sent each time."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from urllib.parse import quote

import anyio
from aiohttp import web

from refinesynth.serve import running

STATUSES = ("400", "401", "402", "403", "404", "422", "429", "500", "529")
MANNERS = (*STATUSES, "page", "header", "reason", "text", "error", "refusal", "redirect", "broken", "slow")
"""Ways to fail; each is a path: `/401/v1/chat/completions`."""


def spellings(key: str) -> set[str]:
    """The key as it is, and as JSON, URLs and Python may write it."""
    return {key, json.dumps(key)[1:-1], key.replace("/", "\\/"), quote(key, safe=""), quote(key), repr(key)[1:-1]}


@contextmanager
def echoing() -> Generator[str]:
    """The address of the server while the block runs."""
    app = web.Application()
    app.router.add_route("*", "/{manner}/{path:.*}", _answer)
    with running(app) as address:
        yield address


async def _answer(request: web.Request) -> web.StreamResponse:
    await request.read()
    manner = request.match_info["manner"]
    sent = request.headers.get("authorization", "")
    key = sent.removeprefix("Bearer ")
    echo = f"Incorrect API key provided: {' or '.join(sorted(spellings(key)))}. You sent {sent!r} in {dict(request.headers)}."
    if manner in STATUSES:
        return web.json_response(_error(echo), status=int(manner))
    if manner in {"broken", "slow"}:
        return await _unfinished(request, manner, json.dumps(_error(echo)).encode())
    return _WHOLE[manner](echo, key)


async def _unfinished(request: web.Request, manner: str, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": "100000"})
    await response.prepare(request)
    await response.write(body)
    if manner == "slow":
        await anyio.sleep(2)
    if request.transport is not None:
        request.transport.abort()
    return response


def _error(message: str) -> dict[str, object]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


def _refusal(echo: str) -> dict[str, object]:
    message = {"role": "assistant", "content": None, "refusal": echo}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": message}],
    }


_WHOLE: dict[str, Callable[[str, str], web.Response]] = {
    "page": lambda echo, _: web.Response(text=f"<html>{echo}</html>", content_type="text/html", status=500),
    "header": lambda _, key: web.Response(
        status=401, headers={"www-authenticate": f"Bearer {key}", "retry-after": key}
    ),
    "reason": lambda _, key: web.Response(status=500, reason=f"Bad key {key}"),
    "text": lambda echo, _: web.Response(text=f"not JSON: {echo}", content_type="application/json"),
    "error": lambda echo, _: web.json_response(_error(echo)),
    "refusal": lambda echo, _: web.json_response(_refusal(echo)),
    "redirect": lambda _, key: web.Response(
        status=307, headers={"location": f"http://127.0.0.1:1/{quote(key, safe='')}?key={key}"}
    ),
}
