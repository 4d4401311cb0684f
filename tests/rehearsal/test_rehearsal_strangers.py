"""Requests that are nobody's, and hostile ones: always an answer, never an exception."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from rehearsal_stage import PERFECT, STRANGE, ask, text, user, write

from refinesynth.chat import parse_player, render_task
from refinesynth.prompts.data_blocks import block
from refinesynth.rehearsal import Rehearsal
from refinesynth.rehearsal.rehearsal import GREETING
from refinesynth.trajectory import ActionSpec


def test_an_unknown_tool_is_called_but_not_after_its_result() -> None:
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    call = ask(PERFECT, user("Where?"), tools=tools)["choices"][0]["message"]["tool_calls"][0]
    assert orjson.loads(call["function"]["arguments"]) == {"answer": GREETING}
    went_on = [
        *user("Where?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "Over there."},
    ]
    assert ask(PERFECT, went_on, tools=tools)["choices"][0]["message"] == {"role": "assistant", "content": GREETING}
    insisted = ask(PERFECT, went_on, tools=tools, tool_choice="required")["choices"][0]
    assert insisted["finish_reason"] == "tool_calls"


def test_anybody_gets_a_friendly_answer() -> None:
    assert text(PERFECT, user("What is the capital of France?")) == GREETING
    assert text(Rehearsal(), []) == GREETING
    for form in ("json_object", "json_schema"):
        assert orjson.loads(text(PERFECT, user("Hi"), response_format={"type": form})) == {"answer": GREETING}


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [
        "persona",
        "previous",
        "violations",
        "script",
        "history",
        "action",
        "verified",
        "minimum",
        "trajectory",
        "private",
        "ruling",
    ]
)
SCRIPT: dict[str, Any] = write(PERFECT, "a lighthouse keeper").model_dump(mode="json")
SCRIPTS: list[Any] = [
    SCRIPT,
    STRANGE.model_dump(mode="json"),
    {**SCRIPT, "actions": [[]]},
    {**SCRIPT, "actions": 3},
    SCRIPT["introduction"],
]
PIECES = JSON | st.sampled_from(SCRIPTS)
ENTRIES: st.SearchStrategy[Any] = st.lists(
    st.fixed_dictionaries(
        {}, optional={"role": PIECES, "action": PIECES, "observation": PIECES, "mistake": PIECES, "thought": PIECES}
    ),
    max_size=3,
)


@given(st.dictionaries(NAMES, PIECES | ENTRIES, max_size=5), st.integers(0, 3))
def test_whatever_is_in_the_blocks_there_is_an_answer(blocks: dict[str, object], seed: int) -> None:
    content = "\n\n".join(_block(value, name) for name, value in blocks.items())
    for form in ({}, {"response_format": {"type": "json_object"}}, {"tools": [{"function": {"name": "f"}}]}):
        answer = ask(Rehearsal(), user(content), seed=seed, **form)
        assert answer["choices"][0]["finish_reason"] in {"stop", "tool_calls"}
        assert orjson.dumps(answer)


def _block(value: object, name: str) -> str:
    try:
        return block(value, name)
    except TypeError:
        # An integer that orjson does not write; so it cannot be in a block either.
        return f"<{name}>\n99999999999999999999999\n</{name}>"


@given(JSON | st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), JSON)), st.dictionaries(
    st.sampled_from(["seed", "tools", "tool_choice", "response_format", "max_tokens", "stream", "n"]), JSON))  # fmt: skip
def test_whatever_the_arguments_are_there_is_an_answer(messages: object, options: dict[str, Any]) -> None:
    assert orjson.dumps(PERFECT.answer(3, messages, options))


TASK = render_task(write(PERFECT, "a lighthouse keeper"))


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "system", "tool"]), st.text(max_size=60)), max_size=8))
def test_whatever_the_chat_is_the_player_takes_an_action(chat: list[tuple[str, str]]) -> None:
    messages = [*user(TASK), *({"role": role, "content": said} for role, said in chat)]
    assert parse_player(text(PERFECT, messages)).action


def test_values_that_are_told_once_fill_every_action_that_takes_them() -> None:
    pot = ("copper pot", "pot (old)")
    actions = [ActionSpec(name=f"{verb} {{pot}}", pattern="p", parameters={"pot": pot}) for verb in ("fill", "empty")]
    task = render_task(write(PERFECT, "a cook").model_copy(update={"introduction": "", "actions": tuple(actions)}))
    taken = {parse_player(text(PERFECT, user(task), seed=seed)).action for seed in range(40)}
    assert taken == {f"{verb} {one}" for verb in ("fill", "empty") for one in pot}


def test_lone_surrogates_are_answered() -> None:
    broken = "a \ud800 b"
    for messages in (
        user(broken),
        user(TASK, broken),
        [*user(TASK), {"role": "assistant", "content": f"Action: {broken}"}],
    ):
        assert orjson.dumps(ask(PERFECT, messages, seed=broken))
    assert text(PERFECT, user(block(SCRIPT, "script"), '<action>\n"\\ud800"\n</action>')) == GREETING
