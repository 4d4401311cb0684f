"""The direct client over sockets that anything may come out of: bounded, sorted, without keys; and when connections
end."""

import asyncio
import gzip
import socket
import struct
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress

import anyio
import anyio.abc
import orjson
import pytest
from chat_server import ChatServer, Reply, completion
from yarl import URL

from refinesynth.backends import Backend
from refinesynth.client.classify_error import ErrorCategory, FailureAction, classify_error
from refinesynth.client.http.direct_client import MAX_BYTES, DirectCompletion
from refinesynth.client.http.reply import HttpError

CANARY = "sk-canary-0123456789abcdef"
MESSAGES = [{"role": "user", "content": "hi"}]
ANSWER = orjson.dumps(completion())

Talk = Callable[[anyio.abc.SocketStream], Awaitable[None]]


def lean(url: str, monkeypatch: pytest.MonkeyPatch | None = None) -> DirectCompletion:
    if monkeypatch is not None:
        monkeypatch.setenv("MINE", CANARY)
    key = None if monkeypatch is None else "MINE"
    return DirectCompletion(Backend(model="hosted_vllm/m", base_url=url, api_key_env=key, name="mine"))


@asynccontextmanager
async def talking(talk: Talk, heard: list[bytes] | None = None) -> AsyncGenerator[str]:
    """A server that reads one request on each connection, and then does what it likes."""

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                request = await stream.receive(65_536)
                if heard is not None:
                    heard.append(request)
                await talk(stream)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        group.cancel_scope.cancel()


def http(body: bytes, *headers: str, length: int | None = None) -> bytes:
    named = [f"Content-Length: {len(body) if length is None else length}", "Content-Type: application/json", *headers]
    return "\r\n".join(["HTTP/1.1 200 OK", *named, "", ""]).encode() + body


def sends(*pieces: bytes) -> Talk:
    async def talk(stream: anyio.abc.SocketStream) -> None:
        for piece in pieces:
            await stream.send(piece)

    return talk


def floods(header: bytes, piece: bytes) -> Talk:
    async def talk(stream: anyio.abc.SocketStream) -> None:
        await stream.send(header)
        while True:
            await stream.send(piece)

    return talk


async def resets(stream: anyio.abc.SocketStream) -> None:
    # Closing without lingering sends a reset.
    raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MEBIBYTE = b"100000\r\n" + b"a" * 0x100000 + b"\r\n"
BOMB = gzip.compress(b" " * (MAX_BYTES * 8), compresslevel=9)


@pytest.mark.parametrize(
    ("talk", "kind"),
    [
        (sends(), ErrorCategory.SERVER),
        (resets, ErrorCategory.SERVER),
        (sends(http(ANSWER, length=len(ANSWER) + 10)), ErrorCategory.SERVER),
        (sends(CHUNKED, b'5\r\n{"id"\r\n'), ErrorCategory.SERVER),
        (sends(CHUNKED, b"zzz\r\n"), ErrorCategory.SERVER),
        (sends(b"SSH-2.0-OpenSSH_9.6\r\n"), ErrorCategory.SERVER),
        (sends(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n"), ErrorCategory.SERVER),
        (sends(http(b"", length=MAX_BYTES + 1)), ErrorCategory.SERVER),
        (floods(CHUNKED, MEBIBYTE), ErrorCategory.SERVER),
        (floods(b"HTTP/1.1 200 OK\r\n\r\n", b"a" * 65_536), ErrorCategory.SERVER),
        (sends(http(BOMB, "Content-Encoding: gzip")), ErrorCategory.SERVER),
        (sends(http(b"no gzip", "Content-Encoding: gzip")), ErrorCategory.SERVER),
        (sends(http(ANSWER, "Content-Encoding: odd")[:-20]), ErrorCategory.SERVER),
        (sends(http(b"\xff\xfe{}")), ErrorCategory.SERVER),
        (sends(http(b'{"choices": [{"message": {"content": "\xed\xa0\x80"}}]}')), ErrorCategory.SERVER),
        (sends(http(b'{"a": 1' + b"0" * 5_000 + b"}")), ErrorCategory.SERVER),
    ],
    ids=[
        "closed", "reset", "cut", "cut in a chunk", "no chunk", "not HTTP", "long header", "long by its own word",
        "endless chunks", "endless", "bomb", "no gzip", "unknown encoding", "no UTF-8", "surrogate in UTF-8", "long number",
    ],
)  # fmt: skip
async def test_whatever_comes_is_sorted(talk: Talk, kind: ErrorCategory, monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking(talk) as url, aclosing(lean(url, monkeypatch)) as asked:
        with pytest.raises(Exception) as caught:
            await asked(messages=MESSAGES)
    fault = classify_error(caught.value, Backend(model="hosted_vllm/m", base_url=url))
    assert (fault.category, fault.action) == (kind, FailureAction.RETRY), fault
    assert CANARY not in told(caught.value)


def told(error: BaseException) -> str:
    """All that a log could say of an error, with the locals of every frame."""
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format()) + repr(error)


async def test_a_server_that_is_not_there_is_unreached(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("http://127.0.0.1:9/v1", "http://nowhere.invalid/v1"):
        async with aclosing(lean(url, monkeypatch)) as asked:
            with pytest.raises(OSError) as caught:
                await asked(messages=MESSAGES)
        assert (
            classify_error(caught.value, Backend(model="hosted_vllm/m", base_url=url)).category
            is ErrorCategory.UNREACHED
        )
        assert CANARY not in told(caught.value)


async def test_a_packed_answer_is_unpacked() -> None:
    packed = gzip.compress(ANSWER)
    async with talking(sends(http(packed, "Content-Encoding: gzip"))) as url, aclosing(lean(url)) as asked:
        assert await asked(messages=MESSAGES) == completion()


async def test_a_redirect_is_not_followed(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Reply("", status=307, headers={"location": f"{server.url}/elsewhere"})
    server.replies.append(elsewhere)
    async with aclosing(lean(server.url, monkeypatch)) as asked:
        with pytest.raises(HttpError, match=r"redirects to .*/elsewhere"):
            await asked(messages=MESSAGES)
    assert len(server.bodies) == 1


async def test_an_answer_that_drips_ends_with_the_callers_patience() -> None:
    async def drips(stream: anyio.abc.SocketStream) -> None:
        await stream.send(CHUNKED)
        while True:
            await stream.send(b"1\r\n \r\n")
            await anyio.sleep(0.005)

    async with talking(drips) as url, aclosing(lean(url)) as asked:
        with pytest.raises(TimeoutError), anyio.fail_after(0.1):
            await asked(messages=MESSAGES)


async def test_calls_that_are_cancelled_leave_the_next_one_well(server: ChatServer) -> None:
    async with aclosing(lean(server.url)) as asked:
        server.replies.extend(Reply("", delay=0.2) for _ in range(5))
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(lambda: asked(messages=MESSAGES))
            await anyio.sleep(0.05)
            group.cancel_scope.cancel()
        server.forget()
        assert await asked(messages=MESSAGES) == completion()


def test_one_completion_serves_several_loops_and_leaves_nothing_open(server: ChatServer) -> None:
    asked = lean(server.url)

    async def ask() -> object:
        return (await asked(messages=MESSAGES))["choices"]

    # Nobody closes it: each loop does when it ends. What stays open would be a ResourceWarning, and so an error.
    assert asyncio.run(ask()) == asyncio.run(ask()) == completion()["choices"]


async def test_a_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []
    async with talking(sends(http(ANSWER)), heard) as url:
        monkeypatch.setenv("http_proxy", url.replace("//", "//me:secret@"))
        async with aclosing(lean("http://far.invalid/v1")) as asked:
            assert await asked(messages=MESSAGES) == completion()
    (request,) = heard
    assert request.startswith(b"POST http://far.invalid/v1/chat/completions HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" in request


def test_hosts_that_need_no_proxy_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "near.invalid")
    near, far = lean("http://near.invalid/v1"), lean("http://far.invalid/v1")
    assert near.proxy is None
    assert far.proxy == URL("http://proxy.invalid:3128")
