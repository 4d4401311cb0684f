"""Records in the forms that public data has: each is read as the same conversation, by training and by import, or refused
with what is not read.
"""

import json
from pathlib import Path
from typing import Any, cast

import datasets
import pytest
from samples import trajectory

from refinesynth.errors import InputError
from refinesynth.export.chat_shapes import Masking
from refinesynth.export.formats import FORMATS
from refinesynth.imports import import_trajectories
from refinesynth.imports import read_record as read_imported
from refinesynth.train.data import read_conversations, read_record
from refinesynth.train.labelled_conversation import Conversation, ToolCall, Turn, TurnLabel
from refinesynth.trajectory import PlayerTurn

FUNCTION: dict[str, Any] = {
    "name": "find",
    "description": "Find a user.",
    "parameters": {
        "type": "object",
        "properties": {"email": {"type": "string"}, "age": {"type": ["integer", "null"], "default": None}},
        "required": ["email"],
    },
}
CALL: dict[str, Any] = {"name": "find", "arguments": {"email": "kim"}}
WRITTEN = json.dumps(CALL)
CALLED = Turn("assistant", "", TurnLabel.CORRECT, (ToolCall("call00000", "find", {"email": "kim"}),))
ANSWER, END = Turn("tool", "kim_1", None, call_id="call00000"), Turn("assistant", "Done.", TurnLabel.CORRECT)
WHOLE = (Turn("system", "Be kind.", None), Turn("user", "Cancel.", None), CALLED, ANSWER, END)
SYSTEM, ASK = {"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Cancel."}
DONE = {"role": "assistant", "content": "Done."}


def talk(*messages: dict[str, Any], tools: Any = (FUNCTION,), **extra: Any) -> dict[str, Any]:
    return {"messages": [SYSTEM, ASK, *messages, DONE], "tools": list(tools), **extra}


def calling(arguments: Any, name: str = "find") -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}


NATIVE = {"role": "tool", "content": "kim_1"}
WRAPPED = {"type": "function", "function": FUNCTION}
FORMS: dict[str, dict[str, Any]] = {
    "without ids": talk(calling(CALL["arguments"]), NATIVE),
    "arguments in text": talk(calling('{"email": "kim"}'), NATIVE, tools=[WRAPPED]),
    "flat functions": talk(calling(CALL["arguments"]), NATIVE, tools=[{"type": "function", **FUNCTION}]),
    "functions in text": talk(calling(CALL["arguments"]), NATIVE) | {"tools": json.dumps([WRAPPED])},
    "ShareGPT's roles": {
        "conversations": [
            {"from": "human", "value": "Cancel."},
            {"from": "gpt", "value": "", "tool_calls": calling(CALL["arguments"])["tool_calls"]},
            {"from": "tool", "value": "kim_1"},
            {"from": "gpt", "value": "Done."},
        ],
        "system": "Be kind.",
        "tools": [FUNCTION],
    },
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_the_same_conversation_to_training_and_import(name: str) -> None:
    read = read_record(FORMS[name], "x:1")
    assert read.turns == WHOLE
    assert [*read.tools] == [WRAPPED]
    found = read_imported(FORMS[name], "agentinstruct" if "conversations" in FORMS[name] else "openai", "x:1")
    assert [turn.action for turn in found.turns if isinstance(turn, PlayerTurn)] == ["find(kim, )", "answer Done."]
    assert (found.script.introduction, found.script.goal) == ("Be kind.", "Cancel.")


def test_several_calls_are_answered_in_order_or_by_name() -> None:
    calls: list[dict[str, Any]] = [{"name": name, "arguments": {}} for name in ("look", "wait")]
    both: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [{"function": call} for call in calls]}
    one, two = ({"role": "tool", "content": text} for text in ("1", "2"))
    for messages in ([both, one, two], [both, {**two, "name": "wait"}, {**one, "name": "look"}]):
        turns = read_record(talk(*messages), "x:1").turns
        assert [call.id for call in turns[2].calls] == ["call00000", "call00001"]
        assert {turn.call_id: turn.content for turn in turns[3:5]} == {"call00000": "1", "call00001": "2"}
    with pytest.raises(InputError, match="x:1: message 5 is from 'assistant'"):
        read_record(talk(both, {"role": "tool", "content": "1 and 2"}), "x:1")


THOUGHTS: list[dict[str, Any]] = [
    {"reasoning_content": " Two hens.\n"},
    {"reasoning": "Two hens.", "reasoning_content": "Two hens."},
    {"thinking": "Two hens."},
    {"content": [{"type": "text", "text": "Six."}], "reasoning": "Two hens."},
    {"content": "<think>\nTwo hens.\n</think>\n\nSix.", "reasoning_content": "Two hens."},
    {"content": "<think></think>Six.", "thinking": "Two hens."},
]


def test_a_thought_is_read_once_wherever_it_stands() -> None:
    for place in THOUGHTS:
        said = {"role": "assistant", "content": "Six.", **place}
        (_, turn) = read_record({"messages": [ASK, said]}, "x:1").turns
        assert (turn.thinking, turn.content) == ("Two hens.", "Six."), place
    differing = {"role": "assistant", "content": "<think>\nThree each.\n</think>\n\nSix.", "reasoning": "Two hens."}
    (_, turn) = read_record({"messages": [ASK, differing]}, "x:1").turns
    assert (turn.thinking, turn.content) == ("Two hens.\n\nThree each.", "Six.")
    marked = {"role": "assistant", "content": "[THINK]Two hens.[/THINK]Six."}
    (_, turn) = read_record({"messages": [ASK, marked]}, "x:1").turns
    assert (turn.thinking, turn.content) == ("", marked["content"])  # As its model writes it, until it is asked for.


def test_an_import_has_what_was_thought_before_what_was_said() -> None:
    act = "Thought: So go.\nAction: go"
    for said, thought in (
        ({"reasoning": "Far.", "content": act}, "Far.\n\nSo go."),
        ({"content": f"<think>Far.</think>\n{act}"}, "Far.\n\nSo go."),
    ):
        found = read_imported({"messages": [ASK, {"role": "assistant", **said}]}, "openai", "x:1")
        assert found.turns[0] == PlayerTurn(thought=thought, action="go")
    for said, thought in (({"thinking": "Far."}, "Far."), ({"content": "<think>Far.</think>\nI go."}, "Far.\n\nI go.")):
        found = read_imported(talk({**calling({}), **said}, NATIVE), "openai", "x:1")
        assert found.turns[0] == PlayerTurn(thought=thought, action="find(, )")
    answer = {"role": "assistant", "content": "<think>Far.</think>\nYes."}
    found = read_imported({"messages": [ASK, answer], "tools": [FUNCTION]}, "openai", "x:1")
    assert found.turns[0] == PlayerTurn(thought="Far.", action="answer Yes.")


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (
            talk({"role": "assistant", "function_call": CALL, "content": ""}),
            "message 3 calls a function in a form that is not",
        ),
        *(
            (talk({"role": "assistant", "content": text}), "message 3 calls a function in a form that")
            for text in (
                f"<tool_call>{CALL}</tool_call>",
                f"<tool_call>\n{CALL}\n</tool_call>\n",
                f"<think>Far.</think>I go. <tool_call>{CALL}</tool_call> Now.",
                f"<tool_call>{CALL}",
            )
        ),
        (talk(functions=[FUNCTION]), "`functions` of a record is not read; replace it by `tools`"),
        (talk({"role": "assistant", "content": "x", "loss_mask": 1}), "`loss_mask` of message 3 is not read"),
        (talk(NATIVE), "message 3 is from 'tool'"),
        (
            talk({"role": "assistant", "content": [{"type": "tool_use"}]}),
            "content of the type 'tool_use', which is not",
        ),
        (talk({"role": "assistant", "content": "x", "reasoning": 5}), "message 3 has a `reasoning` of int"),
        (
            talk(calling("[1]"), NATIVE),
            "`tool_calls` of message 3 cannot be read: a call of 'find' with arguments of list",
        ),
        (
            talk(calling(json.loads('{"a":' * 200 + "1" + "}" * 200)), NATIVE),
            "arguments of 'find' are nested too deeply",
        ),
        (talk(tools=[{"type": "function"}]), "`tools` is not a list"),
    ],
)
def test_what_is_not_read_is_named(record: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=f"^x:1: .*{problem}"):
        read_record(record, "x:1")


@pytest.mark.parametrize(
    "text", ["<think>No <tool_call> is needed.</think>Six.", "Thought: as <tool_call>x</tool_call>.\nAction: go"]
)
def test_a_call_that_a_thought_or_an_action_mentions_is_text(text: str) -> None:
    assert text in [
        turn.content for turn in read_record(talk({"role": "assistant", "content": text}, ASK), "x:1").turns
    ]


BIG = 12345678901234567890123


def arguments_of(one: Conversation) -> dict[str, Any]:
    return dict(next(turn for turn in one.turns if turn.calls).calls[0].arguments)


def test_values_that_a_model_wrote_stay(tmp_path: Path) -> None:
    cases: list[tuple[Any, dict[str, Any]]] = [
        (f'{{"email": "kim", "age": {BIG}}}', {"email": "kim", "age": BIG}),
        ('{"email": null, "age": null, "x": [null]}', {"email": None, "age": None, "x": [None]}),
        ({"email": "kim", "age": BIG}, {"email": "kim", "age": BIG}),
    ]
    for given, kept in cases:
        path = tmp_path / "one.jsonl"
        path.write_text(json.dumps(talk(calling(given), NATIVE)))
        (read,) = read_conversations([path])
        assert arguments_of(read) == kept, given
        assert [tool["function"] for tool in read.tools] == [FUNCTION]


def test_null_with_which_a_table_pads_is_refused() -> None:
    wait = {"name": "wait", "parameters": {"type": "object", "properties": {"hours": {"type": "number"}}}}
    rows = [talk(calling(CALL["arguments"]), NATIVE), talk(calling({"hours": 2}, "wait"), NATIVE)]
    texts = [row | {"tools": json.dumps([FUNCTION, wait])} for row in rows]
    for given, problem in (
        ([row | {"tools": [FUNCTION, wait]} for row in rows], "`tools` holds null"),
        (texts, "the arguments of 'find' hold null"),
    ):
        with pytest.raises(InputError, match=problem):
            list(read_conversations([cast("Any", datasets.Dataset).from_list(given)]))


def test_an_import_writes_every_digit_and_null_down() -> None:
    found = read_imported(talk(calling(f'{{"email": null, "age": {BIG}}}'), NATIVE), "openai", "x:1")
    assert found.turns[0] == PlayerTurn(thought="", action=f"find(null, {BIG})")


def test_an_id_with_a_number_sign_is_ours_only_where_the_task_is() -> None:
    turns = [ASK, DONE, ASK, DONE]
    for name in ("example/project#12", "a#1", "x#correct"):
        read = read_record({"id": name, "messages": turns}, "x:1")
        assert [turn.label for turn in read.turns[1::2]] == [TurnLabel.CORRECT] * 2
        assert (read.id, read.group, read.marked) == (name, f"record {name}", False)
    split = [record.data for record in FORMATS["sharegpt"].records(trajectory(), Masking.SPLIT)]
    labels = [[turn.label for turn in read_record(one, "x:1").turns if turn.label] for one in split]
    assert all({*each[:-1]} <= {TurnLabel.HISTORY} and each[-1] is TurnLabel.CORRECT for each in labels)
    assert len(labels) > 1


async def test_records_of_one_id_are_numbered(tmp_path: Path) -> None:
    record = {"id": "a", "messages": [ASK, {"role": "assistant", "content": "Action: go"}]}
    other = {**record, "id": "a-2"}
    assert [one.id for one in read_conversations([[record, other], [record]])] == ["a", "a-2", "a-3"]
    path, names = tmp_path / "all.jsonl", ["a", "a-2", "a-2-2", "a-3"]
    lines = [json.dumps(one) + "\n" for one in (record, record, other, record)]
    path.write_text("".join(lines))
    result = await import_trajectories(path, format="openai", output=tmp_path / "run")
    assert [one.id for one in result] == names


def test_a_list_in_a_file_is_refused_with_what_makes_lines_of_it(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    for indent, problem in (
        (1, r"chat.json:1: .*as `jq -c '.\[\]'` makes of a list"),
        (None, "expected a JSON object, got list"),
    ):
        path.write_text(json.dumps([{"messages": [ASK, DONE]}] * 2, indent=indent))
        with pytest.raises(InputError, match=problem):
            list(read_conversations([path]))
