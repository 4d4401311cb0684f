"""Page of an audit: shows one turn after another, takes right or wrong by a key, and appends the answer to a file."""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel, JsonValue, ValidationError

from refinesynth.errors import StorageError
from refinesynth.report.audited_turns import Answers, AuditedTurn, Rating
from refinesynth.report.html_page import render_page, script_data, shorten
from refinesynth.text.json_reader import write_json


class _RatingBody(BaseModel, frozen=True):
    turn: str
    right: bool


def audit_app(turns: Sequence[AuditedTurn], answers: Answers, rater: str) -> web.Application:
    """Return the application. It gives ratings to `answers`, whose file must be open; the page holds no verdicts."""
    ids = {turn.id for turn in turns}

    async def page(_request: web.Request) -> web.Response:
        ratings = answers.by_rater.get(rater, {})
        data = [{"id": turn.id, "given": ratings.get(turn.id), "parts": [*_parts(turn.content())]} for turn in turns]
        return web.Response(
            text=render_page("audit.html.jinja", rater=rater, data=script_data(data)), content_type="text/html"
        )

    async def answer(request: web.Request) -> web.Response:
        # Browsers let a page of another origin send this content type only with the server's consent (CORS).
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType
        try:
            rating = _RatingBody.model_validate_json(await request.read())
        except ValidationError as error:
            raise web.HTTPBadRequest(text="expected an object with turn and right") from error
        if rating.turn not in ids:
            raise web.HTTPNotFound(text="this turn is not in the sample")
        try:
            answers.append(Rating(turn=rating.turn, rater=rater, right=rating.right))
        except StorageError as error:
            raise web.HTTPInsufficientStorage(text=str(error)) from error
        return web.Response(status=204)

    @web.middleware
    async def refuse_other_hosts(request: web.Request, handler: Any) -> web.StreamResponse:
        # The host name of another site may resolve to this address (DNS rebinding).
        if request.url.host not in {"127.0.0.1", "localhost"}:
            raise web.HTTPForbidden
        return await handler(request)

    app = web.Application(middlewares=[refuse_other_hosts])
    app.router.add_get("/", page)
    app.router.add_post("/answer", answer)
    return app


def _parts(content: Any) -> Iterator[tuple[str, str]]:
    """Yield the labelled texts of a turn: task, world, history, and the turn itself last."""
    task = content["task"]
    if "goal" in task:
        yield "goal", shorten(task["goal"])
        yield "place", shorten(task["introduction"].strip())
        yield "actions", shorten("\n".join(action["name"] for action in task["actions"]))
        world = {name: task[name] for name in ("environment", "completion_conditions", "actions")}
    else:
        yield from map(_speaker_and_text, task["messages"])
        world = {"tools": task["tools"]}
    yield "world", shorten(write_json(world, option=orjson.OPT_INDENT_2).decode())
    yield from map(_speaker_and_text, content["history"])
    yield "turn", _speaker_and_text(content["turn"])[1]


def _speaker_and_text(entry: dict[str, JsonValue]) -> tuple[str, str]:
    # A message of labelled data may have these keys among others.
    if entry.keys() == {"observation"}:
        return "environment", shorten(str(entry["observation"]))
    if entry.keys() == {"thought", "action"}:
        return "player", shorten(f"{entry['thought']}\n> {entry['action']}")
    texts = [
        part if isinstance(part, str) else write_json(part).decode()
        for part in (entry.get("content"), entry.get("tool_calls"))
        if part
    ]
    return str(entry.get("role")), shorten("\n".join(texts))
