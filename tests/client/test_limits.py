"""Default bounds of answers, and what a server on this machine states of itself."""

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web
from backend_doubles import Scripted, Waits
from chat_server import completion
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
from pydantic_ai.models import ModelRequestParameters

from refinesynth.backends import Backend, Role
from refinesynth.backends.backend import Mixed
from refinesynth.client.completion_parsing import read_completion
from refinesynth.client.default_limits import ServerFacts, bound_of, bounded_by_slots, server_facts_of
from refinesynth.client.model import BackendModel
from refinesynth.client.session import Session
from refinesynth.errors import EpisodeAbandoned
from refinesynth.serve import running as serving

HIDDEN = {
    "prompt_tokens": 10,
    "completion_tokens": 512,
    "total_tokens": 522,
    "completion_tokens_details": {"reasoning_tokens": 512},
}
"""Usage of thoughts that are not shown."""
BOUNDED = frozenset({Role.PLAYER, Role.DUNGEON_MASTER})


@pytest.mark.parametrize(
    ("settings", "player", "master"),
    [
        ({"model": "hosted_vllm/any"}, 512, 768),
        ({"model": "gpt-4o"}, 512, 768),
        ({"model": "hosted_vllm/any", "max_tokens": 90}, 90, 90),
        ({"model": "hosted_vllm/any", "extra": {"max_tokens": None}}, None, None),
        ({"model": "hosted_vllm/any", "extra": {"max_completion_tokens": 9}}, None, None),
        ({"model": "hosted_vllm/any", "extra": {"reasoning_effort": "low"}}, None, None),
        ({"model": "hosted_vllm/Qwen/Qwen3-8B"}, None, None),
        ({"model": "ollama_chat/qwen3:8b"}, None, None),
        ({"model": "openai/o3"}, None, None),
        ({"model": "hosted_vllm/deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"}, None, None),
        (
            {
                "model": "hosted_vllm/Qwen/Qwen3-8B",
                "extra": {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
            },
            512,
            768,
        ),
        ({"model": "rehearsal"}, None, None),
    ],
)
def test_a_turn_is_bounded_unless_the_model_thinks(settings: dict[str, Any], player: int, master: int) -> None:
    backend = Backend.model_validate(settings)
    assert (bound_of(Role.PLAYER, backend), bound_of(Role.DUNGEON_MASTER, backend)) == (player, master)
    assert bound_of(Role.SCRIPT_WRITER, backend) == bound_of(Role.NARRATOR, backend) == backend.max_tokens


async def asked(*answers: object, role: Role = Role.PLAYER, **settings: Any) -> tuple[list[int | None], str]:
    """The bounds that were sent, and the answer."""
    call = Scripted(*answers)
    model = BackendModel(Backend.model_validate({"model": "hosted_vllm/any", **settings}), call=call, sleep=Waits())
    role_model = Session(id="e", seed=1, bounded=BOUNDED).model(role, model)
    said = ""
    for _ in range(2):
        response: ModelResponse = await role_model.request(
            [ModelRequest.user_text_prompt("Hello")], None, ModelRequestParameters()
        )
        said = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    assert len({request["seed"] for request in call.requests}) == 2
    return [request.get("max_tokens") for request in call.requests], said


@pytest.mark.parametrize(
    "cut",
    [
        completion("<think>Hm", finish_reason="length"),
        completion("", reasoning="Hm", finish_reason="length"),
        completion("", finish_reason="length", usage=HIDDEN),
    ],
)
async def test_a_bound_that_cuts_thoughts_is_left_out_from_then_on(cut: object) -> None:
    assert await asked(cut, content_retries=0) == ([512, None, None], "hello")


async def test_a_bound_that_cuts_anything_else_stays() -> None:
    cut = completion("So it goes", finish_reason="length")
    with pytest.raises(EpisodeAbandoned, match="cut its answer off at max_tokens=512"):
        await asked(cut, cut, content_retries=1)


async def test_an_answer_that_fills_its_bound_is_cut_off_and_a_replayed_one_is_what_it_was() -> None:
    full = completion("Action: take the blue fla", usage={"prompt_tokens": 9, "completion_tokens": 90})
    bounds: list[dict[str, Any]] = [{"max_tokens": 90}, {"extra": {"max_completion_tokens": 90}}]
    for settings in bounds:
        with pytest.raises(EpisodeAbandoned, match="cut its answer off"):
            await asked(full, content_retries=0, **settings)
    replayed = read_completion(full)
    assert await asked(replayed, replayed, max_tokens=90) == ([90, 90], "Action: take the blue fla")


@contextmanager
def stating(props: object, models: object) -> Generator[str]:
    """A server that answers these two questions; None is a 404."""

    def answering(found: object) -> web.Response:
        if isinstance(found, bytes):
            return web.Response(body=found)
        return web.Response(status=404) if found is None else web.json_response(found)

    async def of_props(_request: web.Request) -> web.Response:
        return answering(props)

    async def of_models(_request: web.Request) -> web.Response:
        return answering(models)

    there = web.Application()
    there.add_routes([web.get("/props", of_props), web.get("/v1/models", of_models)])
    with serving(there) as address:
        yield f"{address}/v1"


LLAMA = {"total_slots": 4, "default_generation_settings": {"n_ctx": 4096}}


@pytest.mark.process
@pytest.mark.parametrize(
    ("props", "models", "facts"),
    [
        (LLAMA, {"data": [{"id": "m"}]}, ServerFacts(slots=4, context=4096)),
        (None, {"data": [{"id": "m", "max_model_len": 8192}]}, ServerFacts(context=8192)),
        (None, {"data": []}, ServerFacts()),
        ([], None, ServerFacts()),
        (b"<html>", b"<html>", ServerFacts()),
        ({**LLAMA, "total_slots": 0}, None, ServerFacts(context=4096)),
        ({**LLAMA, "total_slots": -1}, None, ServerFacts(context=4096)),
        ({**LLAMA, "total_slots": 10**30}, None, ServerFacts(context=4096)),
        (b"[" * 200_000, None, ServerFacts()),
        ({"total_slots": "4"}, {"data": [{"max_model_len": None}]}, ServerFacts()),
    ],
)
async def test_a_server_on_this_machine_is_asked(props: object, models: object, facts: ServerFacts) -> None:
    with stating(props, models) as base_url:
        backend = Backend(model="openai/m", base_url=base_url)
        assert await server_facts_of(backend) == facts
        bounded = backend.model_copy(update={"max_in_flight": 2})
        found = await bounded_by_slots(
            {Role.PLAYER: Mixed.of([backend, bounded]), Role.JUDGE: Backend(model="rehearsal")}
        )
        assert [one.max_in_flight for one in found[Role.PLAYER].members] == [facts.slots or None, 2]
        assert found[Role.JUDGE] == Backend(model="rehearsal")


@pytest.mark.process
async def test_a_server_that_loads_its_model_is_asked_for_its_slots_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    depths: list[int] = []

    async def sleep(_: float) -> None:
        depths.append(len(inspect.stack(0)))

    monkeypatch.setattr("refinesynth.client.default_limits._RETRY_S", 0.05)
    monkeypatch.setattr("refinesynth.client.default_limits.anyio.sleep", sleep)

    async def of_props(request: web.Request) -> web.Response:
        asked.append(request.path)
        loading = web.json_response({"error": {"message": "Loading model"}}, status=503)
        return loading if len(asked) < 4 else web.json_response(LLAMA)

    there = web.Application()
    there.add_routes([web.get("/props", of_props)])
    with serving(there) as address:
        backend = Backend(model="openai/m", base_url=f"{address}/v1", outage=60)
        assert (await server_facts_of(backend)) == ServerFacts()  # a look at once
        assert (await bounded_by_slots({Role.PLAYER: backend}))[Role.PLAYER].max_in_flight == 4
        # An hour of loading needs no deeper stack than a moment.
        assert len(depths) > 1
        assert len(set(depths)) == 1
        del asked[:]
        impatient = backend.model_copy(update={"outage": 0.1})
        assert (await bounded_by_slots({Role.PLAYER: impatient}))[Role.PLAYER].max_in_flight is None


async def test_no_other_server_is_asked() -> None:
    assert await server_facts_of(Backend(model="openai/m", base_url="http://elsewhere.invalid/v1")) == ServerFacts()
    assert await server_facts_of(Backend(model="openai/m", base_url="http://127.0.0.1:1/v1")) == ServerFacts()
    assert (await server_facts_of(Backend(model="gpt-4o"))).context == 128_000
