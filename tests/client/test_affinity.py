"""Cache marks for Anthropic."""

import json

import pytest
from backend_doubles import Scripted
from chat_server import ChatServer, Reply
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart

from refinesynth import Backend
from refinesynth.backends import Role
from refinesynth.client import litellm_sdk
from refinesynth.client.model import BackendModel
from refinesynth.client.session import Session

CONVERSATION: list[ModelMessage] = [
    ModelRequest.user_text_prompt("look", instructions="Play."),
    ModelResponse(parts=[TextPart("seen")]),
    ModelRequest.user_text_prompt("go", instructions="Play."),
]


async def test_what_grows_is_marked_for_anthropic_and_what_changes_is_not() -> None:
    mark, call = {"cache_control": {"type": "ephemeral"}}, Scripted()
    answering = BackendModel(Backend(model="anthropic/claude-sonnet-5-5"), call=call)
    for role in (Role.SCRIPT_WRITER, Role.PLAYER, Role.DUNGEON_MASTER):
        await model_request(Session("000001-ab", seed=1).model(role, answering), CONVERSATION)
        first, *between, last = call.requests[-1]["messages"]
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
