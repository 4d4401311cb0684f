"""A chat-completion server on 127.0.0.1 that says what a test tells it to."""

import asyncio
import json
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


@dataclass(frozen=True)
class Reply:
    """One HTTP answer."""

    body: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    delay: float = 0.0


def completion(content: object = "hello", **message: Any) -> dict[str, Any]:
    """A chat completion; `finish_reason`, `usage` and `model` may be given, the rest is the message's."""
    finish_reason = message.pop("finish_reason", "stop")
    usage = message.pop("usage", {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12})
    model = message.pop("model", "served")
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content, **message},
        "finish_reason": finish_reason,
    }
    return {"id": "c1", "object": "chat.completion", "created": 0, "model": model, "choices": [choice], "usage": usage}


def says(content: object = "hello", **message: Any) -> Reply:
    return Reply(json.dumps(completion(content, **message)))


def calls_tool(name: str, arguments: str) -> dict[str, Any]:
    return completion(
        None,
        tool_calls=[{"id": "t1", "type": "function", "function": {"name": name, "arguments": arguments}}],
        finish_reason="tool_calls",
    )


def fails(status: int, message: str = "no", *, kind: str = "invalid_request_error", **headers: str) -> Reply:
    body = {"error": {"message": message, "type": kind, "param": None, "code": None}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(json.dumps(body), status=status, headers=named)


class ThreadServer:
    """Serves these routes on 127.0.0.1, from a thread of its own, in a `with` block."""

    def __init__(self, routes: list[Route]) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="critical", lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(timeout=10)
        self._socket.close()


class ChatServer(ThreadServer):
    """Answers with `replies` in order and then with `says()`; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__([Route("/{path:path}", self._answer, methods=["POST"])])
        self.replies: deque[Reply] = deque()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    def forget(self) -> None:
        self.replies.clear()
        self.bodies.clear()
        self.headers.clear()

    async def _answer(self, request: Request) -> Response:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        reply = self.replies.popleft() if self.replies else says()
        await asyncio.sleep(reply.delay)
        return Response(
            reply.body, status_code=reply.status, headers={"content-type": "application/json", **reply.headers}
        )
