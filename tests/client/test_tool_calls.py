"""Calls behind a server's tool parser: what is clear is put right, and nothing else is touched."""

import json
import time

import pytest

from refinesynth.client.tool_calls import Call, repair_calls

TOOLS = {"go_to": ("place",), "go": ("way",), "look": (), "call": ("name", "arguments"), "final_result": ("a",)}
ARGUMENTS = '{"place":"kitchen"}'
CALL = ("go_to", ARGUMENTS, None)


def calls(name: str, arguments: str = ARGUMENTS) -> tuple[Call, ...]:
    return ((name, arguments, "c1"),)


def test_a_name_in_a_parsers_clothes_is_the_tool_that_it_can_mean() -> None:
    names = (
        "functions.go_to", "functions.go_to:0", "go_to:3", "go_togo_to", "go_togo_togo_to", "go_to<|channel|>commentary",
        "functions.go_to<|channel|>json", "functions_go_to", "function::go_to", "default_api.go_to", "to=functions.go_to",
        "tools/go_to", "go_to()", "`go_to`", " go_to\n", "functions.go_tofunctions.go_to", "go to", "go_to#1",
    )  # fmt: skip
    for name in names:
        settled = repair_calls(calls(name), "I go.", TOOLS)
        assert (settled.calls, settled.text, settled.is_clear) == (calls("go_to"), "I go.", True), name
        assert settled.artefact


def test_a_tools_own_name_and_one_that_a_model_made_up_stay() -> None:
    for name in (*TOOLS, "fly", "Go_To", "go_too", "goto", "functions"):
        assert repair_calls(calls(name, '{"x": 1}'), "", TOOLS) == (calls(name, '{"x": 1}'), "", None, True)
    odd = {"a": ("x",), "aa": ("x",), "functions.a": ("x",)}
    for name in odd:
        assert repair_calls(calls(name, '{"x": 1}'), "", odd).calls == calls(name, '{"x": 1}')


def test_a_name_that_may_be_a_parsers_work_and_no_tools_is_no_use() -> None:
    for name in ("functions.fly", "flyfly", "fly:0", "fly<|channel|>commentary", "", "go.look.go_to.fly", "{"):
        assert not repair_calls(calls(name), "", TOOLS).is_clear, name
    assert not repair_calls(calls("go.look"), "", {"go_look": (), "look": ()}).is_clear


def test_arguments_lose_their_layers() -> None:
    wrapped = (
        json.dumps(ARGUMENTS), json.dumps(json.dumps(ARGUMENTS)), json.dumps({"name": "go_to", "arguments": ARGUMENTS}),
        '{"parameters": {"place": "kitchen"}}', '{"name": "go_to", "parameters": {"place": "kitchen"}}',
        json.dumps({"type": "function", "name": "go_to", "arguments": json.loads(ARGUMENTS)}),
        json.dumps("{'place': 'kitchen',}"),
    )  # fmt: skip
    for arguments in wrapped:
        settled = repair_calls(calls("go_to", arguments), "", TOOLS)
        assert settled.calls == calls("go_to"), arguments
        assert settled.artefact
    assert repair_calls(calls("look", "null"), "", TOOLS).calls == calls("look", "{}")


def test_arguments_that_are_a_tools_own_stay() -> None:
    own = '{"name": "x", "arguments": {"a": 1}}'
    for name, arguments in (
        ("call", own), ("go_to", '{"place": {"arguments": {}}}'), ("go_to", '{"arguments": {}, "other": 1}'),
        ("go_to", "[1]"), ("go_to", '"kitchen"'), ("go_to", "1"), ("go_to", '{"place": "[1"}'), ("go_to", "no JSON"),
        ("go_to", json.dumps('{"place": "kitch')), ("go_to", '{"place": "kitch'),
    ):  # fmt: skip
        assert repair_calls(calls(name, arguments), "", TOOLS) == (calls(name, arguments), "", None, True), arguments


OBJECT = json.dumps({"name": "go_to", "arguments": {"place": "kitchen"}})
AS_TEXT = (
    f"<tool_call>\n{OBJECT}\n</tool_call>", f"<tool_call>{OBJECT}", f"[TOOL_CALLS][{OBJECT}]", f"[TOOL_CALLS] [{OBJECT}]</s>",
    f"[TOOL_CALLS]go_to[ARGS]{ARGUMENTS}", f"[TOOL_CALLS]go_to{ARGUMENTS}", f"<function=go_to>{ARGUMENTS}</function>",
    f"<function=go_to>\n{ARGUMENTS}\n</function>", f"```json\n{OBJECT}\n```", OBJECT, f"<|python_tag|>{OBJECT}",
    '{"name": "go_to", "parameters": {"place": "kitchen"}}', '{"type": "function", "function": ' + OBJECT + "}",
    '<|START_ACTION|>[{"tool_name": "go_to", "parameters": {"place": "kitchen"}}]<|END_ACTION|>',
    '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "go_to", "parameters": {"place": "kitchen"}}]<|END_ACTION|>',
    f"<|channel|>commentary to=functions.go_to <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
    f"to=functions.go_to<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>", f"to=functions.go_to json{ARGUMENTS}",
    f"<|start|>assistant<|channel|>commentary to=functions.go_to<|message|>{ARGUMENTS}",
    "<tool_call>\n<function=go_to>\n<parameter=place>\nkitchen\n</parameter>\n</function>\n</tool_call>",
    '<minimax:tool_call><invoke name="go_to"><parameter name="place">kitchen</parameter></invoke></minimax:tool_call>',
    "<tool_call>go_to\n<arg_key>place</arg_key>\n<arg_value>kitchen</arg_value>\n</tool_call>",
    f"<|tool_calls_section_begin|><|tool_call_begin|>functions.go_to:0<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|>",
    f"<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>go_to\n```json\n{ARGUMENTS}\n```",
    f"<\uff5ctool\u2581call\u2581begin\uff5c>go_to<\uff5ctool\u2581sep\uff5c>{ARGUMENTS}<\uff5ctool\u2581call\u2581end\uff5c>",
    f"<|tool_call|>[{OBJECT}]<|/tool_call|>", json.dumps({"name": "functions.go_to", "arguments": ARGUMENTS}),
)  # fmt: skip


def test_a_call_that_was_left_in_the_text_is_a_call() -> None:
    for written in AS_TEXT:
        for thought in ("", "I am hungry {really} [so].\n\n"):
            settled = repair_calls((), thought + written, TOOLS)
            assert (settled.calls, settled.text, settled.is_clear) == ((CALL,), thought.strip(), True), written
            # A parser may have read it, and left it in the text too.
            assert repair_calls(calls("go_to"), thought + written, TOOLS)[:2] == (calls("go_to"), thought.strip()), (
                written
            )
    assert repair_calls((), "I see.<tool_call>look</tool_call>", TOOLS)[:2] == ((("look", "{}", None),), "I see.")
    two = repair_calls((), f"<tool_call>{OBJECT}</tool_call>\n<tool_call>{OBJECT}</tool_call>", TOOLS)
    assert two.calls == (CALL, CALL)


def test_a_call_in_the_text_that_cannot_be_read_is_no_use() -> None:
    for written in (
        "<tool_call>fly</tool_call>", '<tool_call>{"name": "fly", "arguments": {}}</tool_call>', "<function=go_to>kitchen",
        '<tool_call>{"name": "go_to", "arguments": {"pla', "[TOOL_CALLS]go_to[ARGS]{'place'", "to=functions.fly json{}",
    ):  # fmt: skip
        for beside in ((), calls("go_to")):
            assert not repair_calls(beside, f"Thought. {written}", TOOLS).is_clear, written
    assert not repair_calls(calls("look", "{}"), f"<tool_call>{OBJECT}</tool_call>", TOOLS).is_clear


def test_words_are_no_calls() -> None:
    for text in (
        "", "I go_to the kitchen.", 'Thought: {"name": "Bob", "arguments": []}', "to=kitchen", "{}", "[1]", '{"place": "x"}',
        "look", "I would call look().", '{"name": 7}', '{"type": "function"}',
    ):  # fmt: skip
        assert repair_calls((), text, TOOLS) == ((), text, None, True), text


@pytest.mark.parametrize(
    "piece", ["<tool_call>", "{", '{"name":', '{"name": "go_to", ', "[TOOL_CALLS]go_to", "<", "[", " ", "to=functions.",
              "<tool_call>go_to<parameter=a>", "```", "<function=go_to>", "json", '{"name":"fly"}', "<|x|>"]
)  # fmt: skip
def test_hostile_text_takes_linear_time(piece: str) -> None:
    began = time.process_time()
    for text in (piece * (100_000 // len(piece)), "<tool_call>go_to" + piece * (100_000 // len(piece))):
        repair_calls((), text, TOOLS)
        repair_calls(calls(text[:200], json.dumps(text)), "", TOOLS)
    assert time.process_time() - began < 0.5
