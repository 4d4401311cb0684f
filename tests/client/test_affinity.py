"""The requests of a conversation are known by its episode and role, the same way on both paths, and a journal by none of
it."""

import json
from collections import Counter
from typing import Any

import pytest
from backend_doubles import Scripted
from chat_server import ChatServer, Reply
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart

from refinesynth import Backend
from refinesynth.backends import Role
from refinesynth.backends.backend import SESSION_PRESETS
from refinesynth.cli.backend_options import tuned_backend
from refinesynth.client import litellm_sdk, open_model
from refinesynth.client.model import BackendModel
from refinesynth.client.request_arguments import affinity_of
from refinesynth.client.session import Session
from refinesynth.errors import ConfigurationError

ROLES = (Role.SCRIPT_WRITER, Role.PLAYER, Role.DUNGEON_MASTER)
CONVERSATION: list[ModelMessage] = [
    ModelRequest.user_text_prompt("look", instructions="Play."),
    ModelResponse(parts=[TextPart("seen")]),
    ModelRequest.user_text_prompt("go", instructions="Play."),
]


async def asked(
    session_headers: str, model: str = "hosted_vllm/m", **extra: Any
) -> dict[tuple[str, Role], list[dict[str, Any]]]:
    """What two episodes ask, twice in each role."""
    call = Scripted()
    backend = Backend(model=model, session_headers=session_headers, extra=extra)
    answering = BackendModel(backend, call=call)
    found: dict[tuple[str, Role], list[dict[str, Any]]] = {}
    for session in (Session("000001-ab", seed=1), Session("000002-cd", seed=1)):
        for role in ROLES:
            for _ in range(2):
                await model_request(session.model(role, answering), CONVERSATION)
            found[session.id, role] = call.requests[-2:]
    return found


async def test_an_episodes_role_has_one_key_and_no_other_has_it() -> None:
    known: Counter[str] = Counter()
    for (episode, role), both in (await asked("openai")).items():
        first, second = (one.get("extra_body", {}).get("prompt_cache_key") for one in both)
        assert first == second == (None if role is Role.SCRIPT_WRITER else f"{episode}-{role}")
        assert len(first or "") <= 64
        known.update(filter(None, [first]))
    assert max(known.values()) == 1


async def test_what_the_user_says_stays() -> None:
    body = {"prompt_cache_key": "mine", "top_k": 5}
    for both in (await asked("openai", extra_body=body)).values():
        assert [one["extra_body"] for one in both] == [body] * 2


async def test_what_grows_is_marked_for_anthropic_and_what_changes_is_not() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    for (_, role), (request, _) in (await asked("auto", "anthropic/claude-sonnet-5-5")).items():
        first, *between, last = request["messages"]
        converses = role is not Role.SCRIPT_WRITER
        assert first["content"] == ([{"type": "text", "text": "Play.", **mark}] if converses else "Play.")
        assert last["content"] == ([{"type": "text", "text": "go", **mark}] if role is Role.PLAYER else "go")
        assert [one["content"] for one in between] == ["look", "seen"]


@pytest.mark.process
async def test_anthropic_gets_the_marks_and_its_bill_is_read(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-12345678")
    usage = {"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3}
    said = {"type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "ok"}]}
    server.replies.append(Reply(json.dumps({"id": "m", **said, "stop_reason": "end_turn", "usage": usage})))
    backend = Backend(model="anthropic/claude-sonnet-5-5", base_url=server.url, api_key_env="ANTHROPIC_API_KEY")
    session = Session("e1", seed=1)
    model = BackendModel(backend, call=litellm_sdk.completion)
    response = await model_request(session.model(Role.PLAYER, model), CONVERSATION)
    (body,) = server.bodies
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert [one["content"][-1].get("cache_control") for one in body["messages"]] == [None, None, {"type": "ephemeral"}]
    assert (response.usage.cache_read_tokens, response.usage.cache_write_tokens) == (4, 3)


@pytest.mark.process
@pytest.mark.parametrize("kind", SESSION_PRESETS)
async def test_both_paths_post_the_same(kind: str, server: ChatServer) -> None:
    for path in ("direct", "litellm"):
        backend = Backend.model_validate(
            {"model": "openai/served", "base_url": server.url, "path": path, "session_headers": kind}
        )
        model = open_model(backend)
        await model_request(Session("e1", seed=1).model(Role.PLAYER, model), CONVERSATION)
        await model.aclose()
    direct, through_litellm = server.bodies
    assert direct == through_litellm
    ours = [{name: value for name, value in one.items() if name.startswith("x-")} for one in server.headers]
    assert ours[0] == {name: value for name, value in ours[1].items() if not name.startswith("x-stainless")}


def test_a_key_is_sent_by_itself_to_those_alone_who_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    models = ["gpt-4o", "anthropic/claude-sonnet-5-5", "deepseek/deepseek-flash", "hosted_vllm/m", "rehearsal"]
    assert [affinity_of(Backend(model=one)) for one in models] == ["openai", "anthropic", "none", "none", "none"]
    assert affinity_of(Backend(model="openai/m", base_url="http://localhost/v1")) == "none"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost/v1")
    assert affinity_of(Backend(model="gpt-4o")) == "none"


@pytest.mark.parametrize("wrong", ["sgland", "5", "{}"])
def test_what_is_no_preset_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="session_headers"):
        tuned_backend("gpt-4o", [f"session_headers={wrong}"])
