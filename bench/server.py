"""A server of chat completions that costs its machine little: a bare asyncio protocol with answers made beforehand.

The first part of a request's path says how long its answer takes: `/500/v1/chat/completions` takes 500 ms, `/v1/...`
none.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from multiprocessing.connection import Connection
from typing import Any, Protocol, cast
from urllib.request import urlopen

import orjson

from bench.measuring import ask, pin, process

_HEAD_ENDS = b"\r\n\r\n"
_LENGTH = b"content-length"
_SESSION = b"x-session-id"
_NOTHING = b'"messages": []'


class Answers(Protocol):
    """What a server says."""

    @property
    def digests(self) -> bool:
        """Whether requests are to be told apart, which costs some microseconds each."""
        ...

    def answer(self, session: bytes, asked: bytes, /) -> bytes | None:
        """To a request in a session, by its digest; None is a 404."""
        ...


@dataclass(frozen=True)
class Canned:
    """One answer to everything."""

    body: bytes
    digests: bool = False

    def answer(self, session: bytes, asked: bytes, /) -> bytes:
        del session, asked
        return self.body


@dataclass(frozen=True)
class Recorded:
    """Answers by what they were given to; where a session asked the same twice, first the one and then the other."""

    bodies: Mapping[bytes, Sequence[bytes]]
    digests: bool = True
    _told: Counter[bytes] = field(default_factory=Counter[bytes])

    def answer(self, session: bytes, asked: bytes, /) -> bytes | None:
        known = self.bodies.get(asked)
        if known is None:
            return None
        if len(known) == 1:
            return known[0]
        self._told[session + asked] += 1
        return known[min(self._told[session + asked], len(known)) - 1]


def completion(content: str) -> bytes:
    """A chat completion as OpenAI's servers write it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 2000, "completion_tokens": 200, "total_tokens": 2200}
    about = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 0, "model": "bench"}
    return orjson.dumps({**about, "choices": [choice], "usage": usage})


def digest(messages: object, session: bytes = b"") -> bytes:
    """Of messages as they are sent, and of the persona that the end of a session's id stands for.

    Not of system messages: the examples in them are drawn by the episode's number, which a persona has several of.
    """
    said = [message for message in cast("list[dict[str, object]]", messages) if message.get("role") != "system"]
    persona = session.rpartition(b"-")[2]
    return blake2b(orjson.dumps(said, option=orjson.OPT_SORT_KEYS) + persona, digest_size=16).digest()


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    address: str
    """Without `/v1`."""

    def base_url(self, milliseconds: int = 0) -> str:
        """For an OpenAI client whose answers shall take so long."""
        return f"{self.address}/{milliseconds}/v1"

    def traffic(self) -> dict[str, float]:
        """Counts so far: requests, answered, in_flight, most_at_once, distinct, unknown; in seconds: cpu, seconds from
        the first to the last, and last_request since the epoch."""
        with urlopen(f"{self.address}/stats") as answer:
            return orjson.loads(answer.read())


@contextmanager
def served(answers: Answers) -> Generator[Served]:
    """Serve on 127.0.0.1, from a process on a core of its own, while the block runs."""
    with process(_serve, answers) as server:
        yield Served(f"http://127.0.0.1:{ask(server)}")


def _serve(parent: Connection, answers: Answers) -> None:
    pin("server")
    asyncio.run(_listen(parent, answers))


async def _listen(parent: Connection, answers: Answers) -> None:
    traffic = _Traffic()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Client(answers, traffic), "127.0.0.1", 0, backlog=4096)
    parent.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


@dataclass
class _Traffic:
    requests: int = 0
    answered: int = 0
    unknown: int = 0
    in_flight: int = 0
    most_at_once: int = 0
    first: float = 0.0
    last: float = 0.0
    last_request: float = 0.0
    seen: Counter[bytes] = field(default_factory=Counter[bytes])

    def report(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "answered": self.answered,
            "in_flight": self.in_flight,
            "distinct": len(self.seen),
            "unknown": self.unknown,
            "seconds": self.last - self.first,
            "last_request": self.last_request,
            "most_at_once": self.most_at_once,
            "cpu": time.process_time(),
        }


class _Client(asyncio.Protocol):
    """One connection, kept open; requests come one after the other."""

    def __init__(self, answers: Answers, traffic: _Traffic) -> None:
        self._answers = answers
        self._traffic = traffic
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (start := self._received.find(_HEAD_ENDS)) >= 0:
            head = bytes(self._received[:start]).lower()
            length = int(_header(head, _LENGTH) or 0)
            end = start + len(_HEAD_ENDS) + length
            if len(self._received) < end:
                return
            body = bytes(self._received[end - length : end])
            del self._received[:end]
            self._requested(head.split(b" ", 2)[1], _header(head, _SESSION), body)

    def _requested(self, path: bytes, session: bytes, body: bytes) -> None:
        if not body:
            self._write(orjson.dumps(self._traffic.report()))
            return
        if len(body) < 200 and _NOTHING in body:
            # Curator asks for nothing to read the rate limits in the headers.
            self._write(completion(""))
            return
        traffic = self._traffic
        traffic.last_request = time.time()
        traffic.first = traffic.first or time.perf_counter()
        traffic.requests += 1
        traffic.in_flight += 1
        traffic.most_at_once = max(traffic.most_at_once, traffic.in_flight)
        asked = b""
        if self._answers.digests:
            asked = digest(orjson.loads(body)["messages"], session)
            traffic.seen[session + asked] += 1
        milliseconds = path.split(b"/", 2)[1]
        delay = int(milliseconds) / 1000 if milliseconds.isdigit() else 0.0
        if delay:
            asyncio.get_running_loop().call_later(delay, self._answer, session, asked)
        else:
            self._answer(session, asked)

    def _answer(self, session: bytes, asked: bytes) -> None:
        self._traffic.in_flight -= 1
        if self._transport is None or self._transport.is_closing():
            # Nobody waits any more, so this was no answer.
            return
        answer = self._answers.answer(session, asked)
        if answer is None:
            self._traffic.unknown += 1
            self._write(b'{"error": {"message": "nobody recorded an answer to this"}}', status=b"404 Not Found")
        else:
            self._traffic.answered += 1
            self._traffic.last = time.perf_counter()
            self._write(answer)

    def _write(self, body: bytes, *, status: bytes = b"200 OK") -> None:
        if self._transport is not None and not self._transport.is_closing():
            head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
            self._transport.write(head + body)


def _header(head: bytes, name: bytes) -> bytes:
    """A header's value, empty if it is not there; `head` and `name` in lower case."""
    at = head.find(b"\r\n" + name + b":")
    return head[at + len(name) + 3 :].split(b"\r\n", 1)[0].strip() if at >= 0 else b""
