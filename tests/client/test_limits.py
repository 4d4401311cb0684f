"""Default bounds of answers."""

from typing import Any

import pytest
from backend_doubles import Scripted, Waits
from chat_server import completion
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
from pydantic_ai.models import ModelRequestParameters

from refinesynth.backends import Backend, Role
from refinesynth.client.completion_parsing import read_completion
from refinesynth.client.default_limits import bound_of
from refinesynth.client.model import BackendModel
from refinesynth.client.session import Session
from refinesynth.errors import EpisodeAbandoned

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
        ({"model": "openai/o3"}, 512, 768),
        ({"model": "rehearsal"}, None, None),
    ],
)
def test_a_turn_is_bounded(settings: dict[str, Any], player: int, master: int) -> None:
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


async def test_a_role_has_its_bound_and_a_setting_of_the_backend_comes_first() -> None:
    assert await asked() == ([512, 512], "hello")
    assert await asked(role=Role.SCRIPT_WRITER) == ([None, None], "hello")
    assert await asked(max_tokens=90) == ([90, 90], "hello")
    assert await asked(extra={"max_tokens": None}) == ([None, None], "hello")


@pytest.mark.parametrize(
    "cut",
    [
        completion("<think>Hm", finish_reason="length"),
        completion("", reasoning="Hm", finish_reason="length"),
        completion("", finish_reason="length", usage=HIDDEN),
        completion("", finish_reason="length"),
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
