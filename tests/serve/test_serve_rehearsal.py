"""The rehearsal over HTTP: the same answers as in process, for any OpenAI client."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from refinesynth import rules
from refinesynth.chat import parse_player, render_task
from refinesynth.prompts.data_blocks import block
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.serve import create_app, running
from refinesynth.text.json_reader import read_json
from refinesynth.trajectory import Draft, Script

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


def test_a_script_and_a_first_turn_come_through_openais_client(client: openai.OpenAI) -> None:
    written = complete(client, messages=ASKED, seed=3)
    script = Script.from_llm(read_json(content(written)))
    assert rules.verify(Draft(script=script), rules.script()).accepted
    acted = complete(client, messages=[{"role": "user", "content": render_task(script)}], seed=3)
    assert parse_player(content(acted)).action
