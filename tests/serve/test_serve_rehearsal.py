"""The rehearsal over HTTP: the same answers as in process, for any OpenAI client."""

from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from refinesynth import rules
from refinesynth.chat import parse_player, render_task
from refinesynth.prompts.blocks import block
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.serve import create_app, running
from refinesynth.text.jsontext import read_json
from refinesynth.trajectory import Draft, Script

STRANGE = Script.model_validate(
    {"environment": {"lamp": "off"}, "goal": "Light.", "completion_conditions": ["The lamp is on."], "actions": []}
)
PERSONA = "a lighthouse keeper who repairs clocks"
ASKED: list[dict[str, Any]] = [{"role": "user", "content": f"Write a script.\n{block(PERSONA, 'persona')}"}]


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with (
        running(create_app(Rehearsal(faults=Faults.none()))) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def complete(client: openai.OpenAI, **request: Any) -> Any:
    create: Any = client.chat.completions.create
    return create(model="rehearsal", **request)


def content(completion: Any) -> str:
    return str(completion.choices[0].message.content)


async def test_an_answer_over_http_is_the_answer_in_process(client: openai.OpenAI) -> None:
    for seed in (1, 2):
        request: dict[str, Any] = {"messages": ASKED, "seed": seed, "temperature": 0.7}
        inside = await Rehearsal(faults=Faults.none())("rehearsal", **request)
        outside = complete(client, **request)
        assert content(outside) == inside["choices"][0]["message"]["content"]
        assert outside.usage.total_tokens == inside["usage"]["total_tokens"] > 0


WANTED = {"step": "all", "features": ["hidden"], "actions": [4, 12]}


def grounded_requests(script: Script) -> list[list[dict[str, Any]]]:
    """One request of each kind that only grounded play makes, and the player's."""
    told = {"introduction": script.introduction, "goal": script.goal, "actions": [one.name for one in script.actions]}
    ruling: dict[str, object] = {
        "accepted": True,
        "mistake": None,
        "transient": False,
        "text": "It is open.",
        "visible": [],
        "done": False,
    }
    world = script.model_dump(mode="json", exclude={"goal", "completion_conditions"})
    asked = [
        [block(PERSONA, "persona"), block(WANTED, "wanted")],
        [block(PERSONA, "persona"), block({**WANTED, "step": "world"}, "wanted")],
        [block(PERSONA, "persona"), block({**WANTED, "step": "goal"}, "wanted"), block(world, "world")],
        [block(told, "script"), block([], "history"), block("look around", "action"), block(ruling, "ruling")],
        [render_task(script)],
    ]
    return [[{"role": "user", "content": "\n\n".join(parts)}] for parts in asked]


async def test_grounded_play_is_answered_over_http_as_in_process(client: openai.OpenAI) -> None:
    rehearsal = Rehearsal(faults=Faults.none())
    written = await rehearsal("rehearsal", messages=grounded_requests(STRANGE)[0], seed=1)
    script = Script.from_llm(read_json(written["choices"][0]["message"]["content"]))
    assert script.grounded
    for messages in grounded_requests(script):
        inside = await rehearsal("rehearsal", messages=messages, seed=1)
        assert content(complete(client, messages=messages, seed=1)) == inside["choices"][0]["message"]["content"]


def test_a_script_and_a_first_turn_come_through_openais_client(client: openai.OpenAI) -> None:
    written = complete(client, messages=ASKED, seed=3)
    script = Script.from_llm(read_json(content(written)))
    assert rules.verify(Draft(script=script), rules.script()).accepted
    acted = complete(client, messages=[{"role": "user", "content": render_task(script)}], seed=3)
    assert parse_player(content(acted)).action


class Order(BaseModel):
    dish: str
    size: Literal["small", "large"]
    guests: int


def test_any_schema_is_answered_in_its_form(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(
        model="rehearsal", messages=[{"role": "user", "content": "What would you like?"}], response_format=Order
    )
    assert isinstance(parsed.choices[0].message.parsed, Order)


def test_a_tool_is_called_in_its_form(client: openai.OpenAI) -> None:
    tool = openai.pydantic_function_tool(Order, name="order")
    called = client.chat.completions.parse(
        model="rehearsal",
        messages=[{"role": "user", "content": "Order something."}],
        tools=[tool],
        tool_choice={"type": "function", "function": {"name": "order"}},
    )
    calls = called.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].function.name == "order"
    assert isinstance(calls[0].function.parsed_arguments, Order)
