"""Anthropic's endpoints for messages and batches on 127.0.0.1, whose answers are the rehearsal's."""

import json
import re
from datetime import UTC, datetime
from typing import Any, ClassVar

from batch_server import BatchServer, Line
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

_ERRORS = {400: "invalid_request_error", 500: "api_error", 529: "overloaded_error"}
_KEY = 32
"""Characters of a batch's key, with which the ids of its requests begin."""
_ENDINGS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class AnthropicServer(BatchServer):
    """Keeps all that it was sent."""

    # At one price, in a batch and alone.
    asked_as: ClassVar[dict[str, Any]] = {"model": "anthropic/claude-sonnet-5-5", "input_price": 1, "output_price": 1}
    status = "processing_status"

    def __init__(self) -> None:
        super().__init__()
        self.betas: set[str] = set()
        """Named by batches."""
        self.betas_alone: set[str] = set()
        """Named by requests that did not come in a batch."""
        self.strangers = 0
        """How many batches are begun by others before the next one, each with as many requests."""

    def _routes(self) -> list[Route]:
        return [
            Route("/v1/messages/batches", self._make, methods=["POST"]),
            Route("/v1/messages/batches", self._list),
            Route("/v1/messages/batches/{id}", self._look),
            Route("/v1/messages/batches/{id}/results", self._content),
            Route("/v1/messages", self._complete, methods=["POST"]),
        ]

    @property
    def url(self) -> str:
        return super().url.removesuffix("/v1")

    async def _make(self, request: Request) -> Response:
        assert request.headers["x-api-key"]
        self.betas |= _betas(request)
        lines: list[Line] = (await request.json())["requests"]
        for _ in range(self.strangers):
            name = f"stranger_{len(self.batches)}"
            others = [{"custom_id": f"other-{at}"} for at in range(len(lines))]
            self.batches[name] = self._begun(name, {"requests": others})
            self._over(self.batches[name], [{**one, "result": {"type": "canceled"}} for one in others])
        self.strangers = 0
        return await super()._make(request)

    def _begun(self, name: str, asked: Line) -> Line:
        lines: list[Line] = asked["requests"]
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", line["custom_id"]) for line in lines)
        assert len({line["custom_id"] for line in lines}) == len(lines) > 0
        self.files[f"{name}-requests"] = json.dumps(lines).encode()
        now = datetime.now(UTC).isoformat()
        counts = dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0)
        common = {"id": name, "type": "message_batch", "created_at": now, "expires_at": now, "results_url": None}
        return {**common, "processing_status": "in_progress", "request_counts": {"processing": len(lines), **counts}}

    def lines(self, batch: Line) -> list[Line]:
        return json.loads(self.files[f"{batch['id']}-requests"])

    async def _end(self, batch: Line) -> None:
        ending = self.manners.endings.pop(0) if self.manners.endings else "completed"
        lines = self.lines(batch)
        done = lines if ending == "completed" else lines[: len(lines) // 2]
        results = [await self._work(line) for line in done]
        results += [{"custom_id": line["custom_id"], "result": {"type": ending}} for line in lines[len(done) :]]
        self._over(batch, results)

    def _over(self, batch: Line, results: list[Line]) -> None:
        # In no order, and with what other languages take for the end of a line.
        lines = [json.dumps(one, ensure_ascii=False) for one in reversed(results)]
        self.files[batch["id"]] = "".join(f"{line}\n" for line in lines).encode()
        batch["results_url"] = f"{self.url}/v1/messages/batches/{batch['id']}/results"
        batch["processing_status"] = "ended"

    async def _work(self, line: Line) -> Line:
        if (status := self._failing(line["custom_id"][_KEY:], line["params"])) is not None:
            error = {"type": "error", "error": {"type": _ERRORS[status], "message": "no"}, "request_id": "r"}
            return {"custom_id": line["custom_id"], "result": {"type": "errored", "error": error}}
        message = await self._message(line["params"])
        return {"custom_id": line["custom_id"], "result": {"type": "succeeded", "message": message}}

    async def _complete(self, request: Request) -> Response:
        self.betas_alone |= _betas(request)
        self.alone.append(await request.json())
        return JSONResponse(await self._message(self.alone[-1]))

    async def _message(self, body: Line) -> Line:
        assert body["max_tokens"] > 0
        return _message(await self.rehearsal(**_chat(body)))


def _betas(request: Request) -> set[str]:
    return set(filter(None, request.headers.get("anthropic-beta", "").split(",")))


def _chat(body: Line) -> Line:
    """What is asked, in OpenAI's form."""
    messages: list[Line] = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    tools = [
        {"type": "function", "function": {"name": tool["name"], "parameters": tool["input_schema"]}}
        for tool in body.get("tools", ())
    ]
    chat: Line = {"model": body["model"], "max_tokens": body["max_tokens"], "messages": messages + body["messages"]}
    if tools:
        choice = body.get("tool_choice", {})
        named = {"type": "function", "function": {"name": choice.get("name")}}
        chat |= {"tools": tools, "tool_choice": named if choice.get("type") == "tool" else "required"}
    form = body.get("output_format") or body.get("output_config", {}).get("format")
    if form:
        chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "out", "schema": form["schema"]}}
    return chat


def _message(completion: Line) -> Line:
    """The same completion as a message of Anthropic's."""
    choice, usage = completion["choices"][0], completion["usage"]
    said = choice["message"]
    content: list[Line] = [{"type": "text", "text": said["content"]}] if said["content"] else []
    for call in said.get("tool_calls", ()):
        arguments = json.loads(call["function"]["arguments"])
        content.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
    return {
        "id": completion["id"],
        "type": "message",
        "role": "assistant",
        "model": completion["model"],
        "content": content,
        "stop_reason": _ENDINGS[choice["finish_reason"]],
        "stop_sequence": None,
        "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
    }
