"""What others wrote, in the released form, as messages of OpenAI, and as ATIF."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.actions.calls import call_of
from refinesynth.chat import to_messages
from refinesynth.errors import InputError
from refinesynth.export import export
from refinesynth.imports import FORMATS, read_record
from refinesynth.imports.conversations import ANY_ACTION, UNANSWERED
from refinesynth.trajectory import DungeonMasterTurn, PlayerTurn, Trajectory

RELEASED: dict[str, Any] = {
    "id": "household_7",
    "conversations": [
        {"from": "human", "loss": None, "value": "Interact with a household.\nThought:...\nAction:..."},
        {"from": "gpt", "loss": False, "value": "OK"},
        {"from": "human", "loss": None, "value": "Your task is to put a mug in the cabinet."},
        {"from": "gpt", "loss": False, "value": "Thought: There.\nAction: take mug"},
        {"from": "human", "loss": None, "value": "Nothing happens."},
        {
            "from": "gpt",
            "loss": True,
            "value": "**Thought:** It has a number.\n**Action:** take mug 1\n\nfrom the shelf",
        },
    ],
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather: of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
        },
    },
}


def call(name: str, arguments: Any, **message: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": function}], **message}


def asked(*messages: dict[str, Any], tools: Any = (WEATHER,)) -> dict[str, Any]:
    system = {"role": "developer", "content": "Be helpful."}
    return {"messages": [system, {"role": "user", "content": "How is Rome?"}, *messages], "tools": list(tools)}


def answered(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "a", "content": text}


def said(found: Trajectory) -> list[tuple[str, str] | tuple[str, bool]]:
    return [
        (turn.thought, turn.action) if isinstance(turn, PlayerTurn) else (turn.observation, turn.flagged)
        for turn in found.turns
    ]


def test_the_leading_ok_of_the_released_form_is_no_mistake() -> None:
    found = read_record(RELEASED, "agentinstruct", "file:1")
    assert found.id == "household_7"
    assert found.script.introduction == RELEASED["conversations"][0]["value"]
    assert found.script.goal == RELEASED["conversations"][2]["value"]
    assert found.script.actions == (ANY_ACTION,)
    assert said(found) == [
        ("There.", "take mug"),
        ("Nothing happens.", True),
        # Whole, as no reply of a model is read.
        ("It has a number.", "take mug 1\n\nfrom the shelf"),
        (UNANSWERED, False),
    ]


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20) | st.integers() | st.lists(st.integers()), max_size=4))
def test_a_right_call_is_read_back_or_refused(arguments: dict[str, Any]) -> None:
    try:
        found = read_record(asked(call("do", arguments), answered("x"), tools=()), "openai", "file:1")
    except InputError:
        return
    turn = found.turns[0]
    assert isinstance(turn, PlayerTurn)
    again = call_of(found.script, turn.action)
    assert again.name == "do"
    texts = [value.strip() for value in arguments.values() if isinstance(value, str)]
    assert set(texts) <= set(again.arguments.values())
    assert len(again.arguments) == len(arguments)


@given(
    st.lists(st.tuples(st.sampled_from(("Rome", "Oslo", "Bern")), st.integers(0, 9)), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_several_calls_of_a_message_are_turns_with_their_own_answers(
    cities: list[tuple[str, int]], chance: Any, right: bool
) -> None:
    calls = [
        {"id": f"c{at}", "function": {"name": "get_weather", "arguments": {"city": city, "days": days}}}
        for at, (city, days) in enumerate(cities)
    ]
    answers = [{"role": "tool", "tool_call_id": f"c{at}", "content": f"answer {at}"} for at in range(len(calls))]
    chance.shuffle(answers)
    speaker = {"role": "assistant", "content": "I ask.", "tool_calls": calls, "weight": int(right)}
    last = call("get_weather", {"city": "Rome"}, tool_calls=[{"id": "z", "function": calls[0]["function"]}])
    found = read_record({"id": "weather", **asked(speaker, *answers, last)}, "openai", "file:1")
    players = [turn for turn in found.turns if isinstance(turn, PlayerTurn)]
    masters = [turn for turn in found.turns if isinstance(turn, DungeonMasterTurn)]
    assert [turn.thought for turn in players] == ["I ask.", *[""] * len(cities)]
    asked_of = [call_of(found.script, turn.action).arguments for turn in players]
    assert [(one["city"], str(one["days"])) for one in asked_of[:-1]] == [(city, str(days)) for city, days in cities]
    assert [turn.observation for turn in masters] == [*(f"answer {at}" for at in range(len(cities))), UNANSWERED]
    assert [turn.mistake_kind is None for turn in masters] == [*[right] * len(cities), True]
    assert [turn.parallel for turn in players] == [False, *[True] * (len(cities) - 1), False]
    (record,) = export([found], "openai", form="tools")
    messages: Any = record["messages"]
    assert [len(one["tool_calls"]) for one in messages if one["role"] == "assistant"] == [len(cities), 1]


@pytest.mark.parametrize(
    ("name", "record", "why"),
    [
        ("agentinstruct", {"messages": []}, "expected `conversations` among the keys"),
        ("paper", {"script": "{}"}, "expected `script` and `trajectory`"),
        ("atif", {"schema_version": "ATIF-v1.8", "steps": []}, "this is no document that refinesynth wrote"),
        ("openai", asked({"role": "assistant", "content": "Hello."}, tools=()), 'no line that begins with "Action:"'),
        ("openai", asked(call("get_weather", {"city": "x", "unit": "K"})), "cannot be written as an action's text"),
        ("agentinstruct", {"conversations": RELEASED["conversations"][:2]}, "the assistant takes no turn"),
        ("openai", asked(call("do", '{"a":' * 900 + "1" + "}" * 900), tools=()), "nested too deeply"),
        (
            "openai",
            asked(call("do", {}), tools=[WEATHER["function"] | {"function": {"name": f"f{n}"}} for n in range(256)]),
            "257 functions",
        ),
    ],
)
def test_what_is_no_such_record_is_refused_in_words(name: str, record: Any, why: str) -> None:
    with pytest.raises(InputError, match=f"^file:1: .*{why}"):
        read_record(record, name, "file:1")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_KEYS = ("role", "from", "content", "value", "tool_calls", "id", "function", "name", "arguments", "weight", "loss")
_STEP = ("source", "message", "extra", "tool_calls", "observation", "results", "tool_call_id", "function_name")
_HOSTILE = st.fixed_dictionaries(
    {},
    optional={
        "messages": st.lists(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=4), max_size=4) | _JSON,
        "conversations": st.lists(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=4), max_size=4) | _JSON,
        "steps": st.lists(st.dictionaries(st.sampled_from(_STEP), _JSON, max_size=5), max_size=4) | _JSON,
        "schema_version": st.just("ATIF-v1.8") | _JSON,
        **dict.fromkeys(("tools", "extra", "agent", "id", "script", "trajectory", "persona", "system"), _JSON),
    },
)


@pytest.mark.parametrize("name", FORMATS)
@given(_HOSTILE)
def test_no_record_breaks_the_reader(name: str, record: dict[str, Any]) -> None:
    try:
        found = read_record(record, name, "file:1")
    except InputError as error:
        assert str(error).startswith("file:1: ")  # noqa: PT017
        return
    assert to_messages(found)


@given(st.lists(st.sampled_from((*RELEASED["conversations"], "x", {"from": "gpt", "value": ""})), max_size=6))
def test_every_message_of_the_assistant_but_the_ok_is_a_turn(messages: list[Any]) -> None:
    try:
        found = read_record({"id": "x", "conversations": messages}, "agentinstruct", "file:1")
    except InputError:
        return
    spoken = [one for one in messages if one["from"] == "gpt" and one["value"] != "OK"]
    assert len(spoken) == sum(isinstance(turn, PlayerTurn) for turn in found.turns)
    flagged = sum(isinstance(turn, DungeonMasterTurn) and turn.flagged for turn in found.turns)
    assert flagged == sum(one["loss"] is False for one in spoken)
