"""Default bounds of answers in a run, and the requests in flight that a server's slots allow."""

from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from aiohttp import web
from server_manners import Mannered

from refinesynth import synthesize
from refinesynth.backends import Backend
from refinesynth.client.http.reply import HttpError
from refinesynth.errors import RunStopped
from refinesynth.serve import create_app
from refinesynth.serve import running as serving
from refinesynth.synthesis.concurrency import MIN_IN_FLIGHT, min_in_flight_for


def bounds(server: Mannered) -> set[tuple[str, int | None]]:
    """The role of each request, by its prompt, with its bound."""
    found = set[tuple[str, int | None]]()
    for request in server.requests:
        text = str(request["messages"])
        role = (
            "writer"
            if "You design small text worlds" in text
            else "master"
            if "You are the environment" in text
            else "player"
        )
        found.add((role, request.get("max_tokens")))
    return found


REFUSALS = (
    (400, "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
    (422, '{"detail":[{"type":"extra_forbidden","loc":["body","max_tokens"],"msg":"Extra inputs are not permitted"}]}'),
    (400, "Request rejected."),
)
TOO_LONG = (
    "'max_tokens' or 'max_completion_tokens' is too large: 512. This model's maximum context length is 4096 tokens and your "
    "request has 3700 input tokens (512 > 4096 - 3700)."
)


@pytest.mark.parametrize(("status", "words"), REFUSALS)
async def test_a_server_that_refuses_the_default_bound_is_asked_without_it(
    tmp_path: Path, status: int, words: str
) -> None:
    def manner(request: dict[str, Any]) -> None:
        if "max_tokens" in request:
            raise HttpError(status, words)

    server = Mannered(manner)
    free = Backend(model="openai/any")
    found = await synthesize(n=4, backend=free, call=server, output=tmp_path / "run", concurrency=1)
    assert len(found) == 4
    assert server.refused <= 2  # once for each role that has a bound
    asked = Mannered(manner)
    given = Backend(model="openai/any", max_tokens=100_000)  # a bound of the user's stays
    with pytest.raises(RunStopped, match=r"max_tokens|HTTP 400"):
        await synthesize(n=1, backend=given, call=asked, output=tmp_path / "given")


async def test_a_bound_that_does_not_fit_the_context_is_left_out_of_that_request_alone(tmp_path: Path) -> None:
    def manner(request: dict[str, Any]) -> None:
        if "max_tokens" in request and len(request["messages"]) > 4:
            raise HttpError(400, TOO_LONG)

    server = Mannered(manner)
    found = await synthesize(n=3, backend=Backend(model="openai/any"), call=server, output=tmp_path / "run")
    assert len(found) == 3
    assert server.refused
    assert ("player", 512) in bounds(server)


def recorded(folder: Path) -> dict[str, Any]:
    models = orjson.loads((folder / "config.json").read_bytes())["models"]
    return {role: model["max_tokens"] for role, model in models.items()}


async def play(folder: Path, n: int, **settings: Any) -> Mannered:
    server = Mannered(lambda _: None)
    backend = Backend.model_validate({"model": "openai/any", **settings})
    await synthesize(n=n, backend=backend, call=server, output=folder)
    return server


async def test_turns_have_their_bounds_and_the_config_records_them(tmp_path: Path) -> None:
    server = await play(tmp_path / "run", 1)
    assert bounds(server) == {("writer", None), ("master", 768), ("player", 512)}
    assert recorded(tmp_path / "run") == {"script_writer": None, "dungeon_master": 768, "player": 512}
    assert bounds(await play(tmp_path / "run", 3)) == bounds(server)


async def test_a_run_that_was_begun_without_bounds_goes_on_without(tmp_path: Path) -> None:
    await play(tmp_path, 1)
    config = orjson.loads((tmp_path / "config.json").read_bytes())
    for model in config["models"].values():
        model["max_tokens"] = None
    (tmp_path / "config.json").write_bytes(orjson.dumps(config))
    assert bounds(await play(tmp_path, 3)) == {("writer", None), ("master", None), ("player", None)}
    assert set(recorded(tmp_path).values()) == {None}


def test_a_small_run_begins_with_what_it_needs() -> None:
    assert [min_in_flight_for(n) for n in (1, 3, 8, 12, 13, 10_000)] == [3, 5, 10, 15, MIN_IN_FLIGHT, MIN_IN_FLIGHT]


@pytest.mark.process
@pytest.mark.parametrize(("given", "most"), [({}, 2), ({"max_in_flight": 3}, 3)])
async def test_no_more_requests_are_in_flight_than_a_server_has_slots(
    given: dict[str, Any], most: int, tmp_path: Path
) -> None:
    class Counting(Mannered):
        now = peak = 0

        async def __call__(self, **request: Any) -> object:
            self.now += 1
            self.peak = max(self.peak, self.now)
            try:
                await anyio.sleep(0.02)
                return await super().__call__(**request)
            finally:
                self.now -= 1

    async def props(_request: web.Request) -> web.Response:
        return web.json_response({"total_slots": 2, "default_generation_settings": {"n_ctx": 65_536}})

    server = Counting(lambda _: None)
    there = create_app(server)
    there.add_routes([web.get("/props", props)])
    with serving(there) as address:
        backend = Backend.model_validate({"model": "openai/any", "base_url": f"{address}/v1", **given})
        await synthesize(n=6, backend=backend, output=tmp_path)
    assert server.peak == most
