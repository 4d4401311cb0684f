"""The wire: what counts in a request, which form an answer takes, and that nothing else matters."""

import os
import subprocess
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rehearsal_stage import PERFECT, SEEDS, ask, play, text, user, write

from refinesynth.prompts.data_blocks import block
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.rehearsal.replayed_history import clear_scenes
from refinesynth.text.json_reader import read_json
from refinesynth.trajectory import Script

PERSONA = user(block("a lighthouse keeper", "persona"))
SCHEMA = {"type": "json_schema", "json_schema": {"name": "script", "schema": {"type": "object"}}}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def test_a_completion_has_openai_s_shape() -> None:
    answer = ask(PERFECT, PERSONA, seed=1)
    assert set(answer) == {"id", "object", "created", "model", "choices", "usage"}
    assert (answer["object"], answer["created"], answer["model"]) == ("chat.completion", 0, "rehearsal")
    assert answer["id"].startswith("chatcmpl-")
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop"]
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == -(-len(answer["choices"][0]["message"]["content"]) // 4)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


def test_a_json_schema_is_answered_with_json_and_nothing_else() -> None:
    for seed in range(10):
        content = text(PERFECT, PERSONA, seed=seed, response_format=SCHEMA)
        assert Script.from_llm(orjson.loads(content)).actions


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        (None, "first"),
        ("auto", "first"),
        ("required", "first"),
        ({"type": "function", "function": {"name": "second"}}, "second"),
        ({"type": "function", "function": {"name": "third"}}, "first"),
    ],
)
def test_tools_are_called(choice: object, called: str) -> None:
    answer = ask(PERFECT, PERSONA, tools=[tool("first"), tool("second")], tool_choice=choice)["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["content"] is None
    (call,) = answer["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["function"]["name"] == called
    assert Script.from_llm(orjson.loads(call["function"]["arguments"])).goal


def test_an_answer_is_cut_at_max_tokens() -> None:
    whole = ask(PERFECT, PERSONA)
    for name in ("max_tokens", "max_completion_tokens"):
        answer = ask(PERFECT, PERSONA, **{name: 5})
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["choices"][0]["message"]["content"] == whole["choices"][0]["message"]["content"][:20]
        assert answer["usage"]["completion_tokens"] == 5
    assert ask(PERFECT, PERSONA, max_tokens=100_000) == whole
    called = ask(PERFECT, PERSONA, max_tokens=5, tools=[tool("first")])["choices"][0]
    assert called["finish_reason"] == "length"
    assert len(called["message"]["tool_calls"][0]["function"]["arguments"]) == 20


@given(SEEDS, st.text(max_size=40))
def test_the_same_request_gets_the_same_answer_whatever_came_before(seed: int, persona: str) -> None:
    messages = user(block(persona, "persona"))
    first = orjson.dumps(ask(Rehearsal(), messages, seed=seed))
    clear_scenes()
    ask(Rehearsal(), user("something else"))
    assert orjson.dumps(ask(Rehearsal(), messages, seed=seed)) == first


@pytest.mark.long
@given(SEEDS)
def test_a_play_is_the_same_with_and_without_what_is_remembered(seed: int) -> None:
    faulty = Rehearsal(Faults.none().model_copy(update={"natural_mistake": 0.4, "false_alarm": 0.1}))
    script = write(faulty, "a lighthouse keeper", seed=seed)
    first = play(faulty, script, seed=seed)
    clear_scenes()
    assert play(faulty, script, seed=seed) == first
    assert play(faulty, script, seed=seed) == first


def test_seed_persona_and_setting_decide_the_scene() -> None:
    def goal(rehearsal: Rehearsal, persona: str, seed: int | None, note: str = "") -> str:
        return Script.from_llm(read_json(text(rehearsal, user(note, block(persona, "persona")), seed=seed))).goal

    plain = goal(PERFECT, "a judge", 1)
    assert goal(PERFECT, "a judge", 1, note="Other words around it.") == plain
    assert len({plain, goal(PERFECT, "a cook", 1), goal(PERFECT, "a judge", 2), goal(PERFECT, "a judge", None)}) == 4
    assert goal(Rehearsal(Faults.none(), seed=1), "a judge", 1) != plain


_PROGRAM = """
import asyncio, sys
from refinesynth.rehearsal import Rehearsal
from refinesynth.prompts.data_blocks import block
from refinesynth.chat import render_task
from refinesynth.text.json_reader import read_json
from refinesynth.trajectory import Script
import orjson

rehearsal = Rehearsal()
for seed in range(12):
    persona = [{"role": "user", "content": block("a diver", "persona")}]
    answer = asyncio.run(rehearsal(messages=persona, seed=seed, response_format={"type": "json_object"}))
    print(orjson.dumps(answer).decode())
    script = rehearsal.answer("m", [{"role": "user", "content": block(f"diver {seed}", "persona")}], {})
    content = script["choices"][0]["message"]["content"]
    blocks = [block(read_json(content), "script"), block([], "verified"), block(3, "minimum")] if content.endswith("}") else []
    print(orjson.dumps(rehearsal.answer("m", [{"role": "user", "content": "\\n".join(blocks)}], {})).decode())
print(sorted({name.partition(".")[0] for name in sys.modules} & {"litellm", "pydantic_ai", "openai", "httpx", "jinja2"}))
"""


@pytest.mark.process
def test_answers_are_the_same_in_every_process_and_need_no_llm_library() -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert printed[0].endswith("\n[]\n")
