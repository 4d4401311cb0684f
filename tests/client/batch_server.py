"""OpenAI's endpoints for files and batches on 127.0.0.1, whose answers are the rehearsal's."""

import asyncio
import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

from chat_server import ThreadServer
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from refinesynth.rehearsal import Rehearsal

Line = dict[str, Any]


@dataclass
class Manners:
    """How batches go; each list is taken from its beginning, one item a batch."""

    endings: list[str] = field(default_factory=list[str])
    """How the next batches end; `completed` when there are no more."""
    refusals: list[int] = field(default_factory=list[int])
    """Statuses for the next batches that are made, in the place of an answer."""
    lost_answers: int = 0
    """How many of the next batches are made, and that is not said."""
    broken_looks: int = 0
    """Number of the next looks at a batch that are answered with `look_status`."""
    look_status: int = 503
    failing: dict[int, int] = field(default_factory=dict[int, int])
    """Number of a line, over all batches, to the status that it gets."""
    hangs_at: str | None = None
    """What gets no answer: `make` (of a batch, which is made), `look` or `content`."""


class BatchServer(ThreadServer):
    """Keeps all that it was sent."""

    asked_as: ClassVar[dict[str, Any]] = {"model": "openai/rehearsal", "path": "direct"}
    """How it is asked: settings of a backend."""
    status = "status"
    """Under which a batch says how far it is."""

    def __init__(self) -> None:
        super().__init__(self._routes())
        self.manners = Manners()
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.asked: Counter[str] = Counter()
        """How often each request was worked on, by its id."""
        self.bodies: list[Line] = []
        self.downloads: Counter[str] = Counter()
        self.hanging = threading.Event()
        """Whether something has got no answer."""
        self.alone: list[Line] = []
        """Bodies that did not come in a batch."""
        self.rehearsal = Rehearsal()

    def _routes(self) -> list[Route]:
        return [
            Route("/v1/files", self._file, methods=["POST"]),
            Route("/v1/files/{id}/content", self._content),
            Route("/v1/batches", self._make, methods=["POST"]),
            Route("/v1/batches", self._list),
            Route("/v1/batches/{id}", self._look),
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
        ]

    @property
    def directly(self) -> int:
        """Requests that did not come in a batch."""
        return len(self.alone)

    @property
    def sent(self) -> int:
        """Requests of all batches."""
        return sum(len(self.lines(batch)) for batch in self.batches.values())

    async def _file(self, request: Request) -> Response:
        async with request.form() as form:
            assert form["purpose"] == "batch"
            upload: Any = form["file"]
            name = self._keep(await upload.read())
        about = {"id": name, "object": "file", "bytes": 1, "created_at": 0, "filename": "f", "purpose": "batch"}
        return JSONResponse({**about, "status": "processed"})

    def _keep(self, content: bytes) -> str:
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return name

    async def _content(self, request: Request) -> Response:
        name = request.path_params["id"]
        self.downloads[name] += 1
        await self._may_hang("content")
        return Response(self.files[name], media_type="application/jsonl")

    async def _make(self, request: Request) -> Response:
        asked = await request.json()
        if self.manners.refusals:
            return _error(self.manners.refusals.pop(0))
        batch = self._begun(f"batch_{len(self.batches)}", asked)
        self.batches[batch["id"]] = batch
        await self._may_hang("make")
        if self.manners.lost_answers:
            self.manners.lost_answers -= 1
            return _error(502)
        return JSONResponse(batch)

    def _begun(self, name: str, asked: Line) -> Line:
        common = {"id": name, "object": "batch", "created_at": 0, "status": "in_progress"}
        return {**common, **{key: asked[key] for key in ("completion_window", "endpoint", "input_file_id", "metadata")}}

    def lines(self, batch: Line) -> list[Line]:
        return [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]

    async def _list(self, request: Request) -> Response:
        latest, asked = list(reversed(self.batches.values())), request.query_params
        after = asked.get("after") or asked.get("after_id")
        start = next((at + 1 for at, one in enumerate(latest) if one["id"] == after), 0)
        # Pages of one, so that a client has to turn them.
        page = latest[start : start + 1]
        ends = dict.fromkeys(("first_id", "last_id"), page[0]["id"] if page else None)
        return JSONResponse({"object": "list", "data": page, "has_more": start + 1 < len(latest), **ends})

    async def _look(self, request: Request) -> Response:
        await self._may_hang("look")
        if self.manners.broken_looks:
            self.manners.broken_looks -= 1
            return _error(self.manners.look_status)
        batch = self.batches[request.path_params["id"]]
        if batch[self.status] == "in_progress":
            await self._end(batch)
        return JSONResponse(batch)

    async def _may_hang(self, at: str) -> None:
        if self.manners.hangs_at == at:
            self.hanging.set()
            await asyncio.sleep(60)

    async def _end(self, batch: dict[str, Any]) -> None:
        ending = self.manners.endings.pop(0) if self.manners.endings else "completed"
        batch["status"] = ending
        if ending == "failed":
            found = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached", "line": None}
            batch["errors"] = {"object": "list", "data": [found]}
            return
        lines = self.lines(batch)
        done = lines if ending == "completed" else lines[: len(lines) // 2]
        results = [await self._work(line) for line in done]
        for kind, wanted in (("output_file_id", True), ("error_file_id", False)):
            of_kind = [one for one in results if (one["response"]["status_code"] == 200) is wanted]
            if of_kind:
                batch[kind] = self._keep(b"".join(json.dumps(one).encode() + b"\n" for one in of_kind))

    async def _work(self, line: Line) -> Line:
        assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
        if (status := self._failing(line["custom_id"], line["body"])) is not None:
            answer = {"status_code": status, "body": {"error": {"message": "no", "type": "server_error"}}}
        else:
            answer = {"status_code": 200, "request_id": "r", "body": await self.rehearsal(**line["body"])}
        return {"id": "l", "custom_id": line["custom_id"], "response": answer, "error": None}

    def _failing(self, name: str, body: Line) -> int | None:
        """A request is worked on: the status that it is to get, if it fails."""
        self.asked[name] += 1
        self.bodies.append(body)
        return self.manners.failing.pop(len(self.bodies) - 1, None)

    async def _complete(self, request: Request) -> Response:
        self.alone.append(await request.json())
        return JSONResponse(await self.rehearsal(**self.alone[-1]))


def _error(status: int) -> Response:
    return JSONResponse({"error": {"message": "no", "type": "server_error"}}, status_code=status)
