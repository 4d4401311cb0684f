"""Trajectories as tool calls: the same turns as ReAct text, and back."""

import re
from collections.abc import Sequence
from itertools import pairwise, takewhile
from keyword import iskeyword

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import accepted, dm, in_messages, player

from refinesynth.actions.calls import Call, Tool, call_of, python_call, text_of, tools_of
from refinesynth.actions.matching import action_key, match_in
from refinesynth.chat import TOOL_INSTRUCTIONS, Message, render_tool_task, render_tool_turns, render_turns, to_react
from refinesynth.testing import scripts, texts, turns, valid_drafts, valid_grounded_drafts
from refinesynth.trajectory import ActionSpec, Draft, DungeonMasterTurn, MalformedTurn, PlayerTurn, Script

SCRIPT = Script(
    introduction="You are in a kitchen.",
    environment={"mug": "shelf"},
    goal="Wash the mug.",
    completion_conditions=("The mug is clean.",),
    actions=(
        ActionSpec(
            name="take {item} from {place}",
            description="Pick up",
            pattern=r"take (?:the )?(.+) from (.+)",
            parameters={"item": ("mug", "cup"), "place": ()},
        ),
        ActionSpec(name="look around", pattern="look around"),
        ActionSpec(name="look around {もの}", pattern="look around (.+)"),
        ActionSpec(name="洗う {もの}", pattern="洗う (.+)", parameters={"もの": ("mug",)}),
    ),
)

PLAYED = (
    player("take mug from shelf", thought="It is there."),
    dm("You have it."),
    player("wash mug", thought="Wash it."),
    dm("There is no such action.", "parameter"),
    player("洗う mug", thought="In other words."),
    dm("Clean."),
)


def functions(tools: Sequence[Tool]) -> list[dict[str, object]]:
    return [tool.definition()["function"] for tool in tools]


def test_an_action_is_a_function() -> None:
    take, look, look_at, wash = functions(tools_of(SCRIPT))
    assert take == {
        "name": "take_from",
        "description": "take {item} from {place}: Pick up",
        "parameters": {
            "type": "object",
            "properties": {"item": {"type": "string", "enum": ["mug", "cup"]}, "place": {"type": "string"}},
            "required": ["item", "place"],
        },
    }
    assert [one["name"] for one in (look, look_at, wash)] == ["look_around", "look_around_2", "act"]
    assert wash["parameters"] == {
        "type": "object",
        "properties": {"value": {"type": "string", "enum": ["mug"]}},
        "required": ["value"],
    }


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("take mug from shelf", Call("take_from", {"item": "mug", "place": "shelf"})),
        ("take knife from shelf", Call("take_from", {"item": "knife", "place": "shelf"})),
        ("look around", Call("look_around", {})),
        ("洗う mug", Call("act", {"value": "mug"})),
        ("dance a jig", Call("dance", {"action": "dance a jig"})),
        ("act", Call("act_2", {"action": "act"})),
        ("look", Call("look", {"action": "look"})),
    ],
)
def test_a_text_is_a_call_and_back(text: str, call: Call) -> None:
    assert call_of(SCRIPT, text) == call
    assert text_of(SCRIPT, call) == text


def test_what_a_pattern_allows_beside_its_template_is_said_in_the_templates_words() -> None:
    call = call_of(SCRIPT, "take the mug from shelf")
    assert call == Call("take_from", {"item": "mug", "place": "shelf"})
    assert text_of(SCRIPT, call) == "take mug from shelf"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (Call("take_from", {"item": "mug"}), "take mug from {place}"),
        (Call("take_from", {"item": 3, "place": ["a"], "with": "care"}), 'take 3 from ["a"]'),
        (Call("grab_it", {"what": "mug", "hard": True}), "grab it mug true"),
        (Call("", {}), ""),
    ],
)
def test_a_call_that_a_model_gets_wrong_is_a_text_that_is_no_action(call: Call, text: str) -> None:
    assert text_of(SCRIPT, call) == text
    assert match_in(SCRIPT, text) is None or call.name == "take_from"


@given(scripts(), texts() | st.text())
def test_every_text_is_some_call_and_means_the_same(script: Script, text: str) -> None:
    call = call_of(script, text)
    again = text_of(script, call)
    assert again == text or action_key(script, again) == action_key(script, text)
    assert re.fullmatch(r"[A-Za-z0-9_]{1,64}", call.name)
    known = {tool.name: tool for tool in tools_of(script)}
    assert len(known) == len(script.actions)
    if match_in(script, text) is None and call.name not in known:
        assert again == text
    for tool in known.values():
        assert re.fullmatch(r"[A-Za-z0-9_]{1,64}", tool.name)
        assert all(re.fullmatch(r"[A-Za-z0-9_]{1,64}", name) for name in tool.properties.values())


@given(scripts(), texts() | st.integers(-5, 5) | st.booleans())
def test_a_call_in_pythons_syntax_is_that_call(script: Script, value: str | int) -> None:
    for tool in tools_of(script):
        names = [*tool.properties.values()]
        written = f"{tool.name}({', '.join(f'{name}={value!r}' for name in names)})"
        if len(written) <= 1000 and all(one.isidentifier() and not iskeyword(one) for one in (tool.name, *names)):
            call = Call(tool.name, dict.fromkeys(names, value))
            assert python_call(script, f"I see.\n```python\n{written}\n```") == (7, call)


@pytest.mark.parametrize(
    "line",
    [
        "take_from('mug', item='cup', place='shelf')",
        "take_from(item='mug', item='cup', place='shelf')",
        "take_from('mug')",
        "take_from(item='mug', place=shelf)",
        "take_from(**{'item': 'mug', 'place': 'shelf'})",
        "take_from(item=['mug'], place='shelf')",
        "take_from(item=1e999, place='shelf')",
        "take_from(item='\\ud800', place='shelf')",
        "world.take_from('mug', 'shelf')",
        "take_from('mug', 'shelf').now()",
        "f('mug', 'shelf')",
        "take_from(" + "-" * 900 + "1, 'shelf')",
        "take_from('mug', 'shelf', " + "'a'," * 400 + ")",
    ],
)
def test_any_other_python_is_no_call(line: str) -> None:
    assert python_call(SCRIPT, line) is None


def test_a_shortened_name_is_a_call_where_one_function_is_meant() -> None:
    call = Call("take_from", {"item": "mug", "place": "shelf"})
    assert python_call(SCRIPT, "take('mug', place='shelf')") == (0, call)
    assert text_of(SCRIPT, call) == "take mug from shelf"


@given(
    scripts(), texts(), st.dictionaries(texts(), st.none() | st.integers() | texts() | st.lists(texts()), max_size=3)
)
def test_whatever_is_called_is_some_text(script: Script, name: str, arguments: dict[str, object]) -> None:
    for called in (name, *(tool.name for tool in tools_of(script))):
        assert isinstance(text_of(script, Call(called, arguments)), str)  # pyright: ignore[reportArgumentType]


def test_the_conversation_as_calls() -> None:
    messages = render_tool_turns(SCRIPT, PLAYED)
    assert [(one.role, one.loss, one.id) for one in messages] == [
        ("user", False, ""),
        ("assistant", True, "call00000"),
        ("tool", False, "call00000"),
        ("assistant", False, "call00002"),
        ("tool", False, "call00002"),
        ("assistant", True, "call00004"),
        ("tool", False, "call00004"),
    ]
    assert messages[0].content == f"You are in a kitchen.\n\nGoal: Wash the mug.\n\n{TOOL_INSTRUCTIONS}"
    assert messages[1].openai() == {
        "role": "assistant",
        "content": "It is there.",
        "tool_calls": [
            {
                "id": "call00000",
                "type": "function",
                "function": {"name": "take_from", "arguments": '{"item":"mug","place":"shelf"}'},
            }
        ],
    }
    thought = messages[1].openai("reasoning_content", arguments="object")
    assert (thought["content"], thought["reasoning_content"]) == ("", "It is there.")
    assert thought["tool_calls"][0]["function"]["arguments"] == {"item": "mug", "place": "shelf"}
    assert messages[2].openai() == {"role": "tool", "content": "You have it.", "tool_call_id": "call00000"}


def alternating(draft: Draft) -> list[PlayerTurn | DungeonMasterTurn]:
    return [turn for turn in draft.turns if not isinstance(turn, MalformedTurn)]


@given(valid_drafts() | valid_grounded_drafts())
def test_there_and_back_is_the_same_conversation(draft: Draft) -> None:
    played = alternating(draft)
    text = render_turns(draft.script, played)
    again = to_react(draft.script, render_tool_turns(draft.script, played))
    assert [(one.role, one.loss) for one in again] == [(one.role, one.loss) for one in text]
    for there, back in zip(text, again, strict=True):
        assert back == there or _means_the_same(draft.script, there, back)


@given(valid_drafts() | valid_grounded_drafts(), st.lists(st.booleans(), min_size=1))
def test_further_calls_stand_in_the_message_before_and_are_answered_in_order(draft: Draft, chosen: list[bool]) -> None:
    several = in_messages(accepted(draft), chosen)
    messages = render_tool_turns(several.script, several.turns)
    joined = [turn.parallel for turn in several.turns if isinstance(turn, PlayerTurn)]
    assert [len(one.calls) for one in messages if one.calls] == [
        1 + len(list(takewhile(bool, joined[at + 1 :]))) for at, further in enumerate(joined) if not further
    ]
    for at, message in enumerate(messages):
        answers = messages[at + 1 : at + 1 + len(message.calls)]
        assert [(one.role, one.id) for one in answers] == [("tool", one.id) for one in message.calls]
        assert not message.calls or message.loss == all(one.label != "mistake" for one in message.calls)
    text = render_turns(several.script, several.turns)
    again = to_react(several.script, messages)
    assert [(one.role, one.loss, one.label) for one in again] == [(one.role, one.loss, one.label) for one in text]
    assert all(
        back == there or _means_the_same(several.script, there, back) for there, back in zip(text, again, strict=True)
    )
    if True in joined:
        assert messages[0].content.startswith(render_tool_task(several.script, parallel=True))


def _means_the_same(script: Script, there: Message, back: Message) -> bool:
    thought, _, action = there.content.rpartition("\nAction: ")
    again, _, other = back.content.rpartition("\nAction: ")
    return thought == again and action != other and action_key(script, action) == action_key(script, other)


@given(st.lists(turns(), max_size=8))
def test_turns_in_any_order_are_a_conversation_that_every_server_takes(
    given_turns: list[PlayerTurn | DungeonMasterTurn | MalformedTurn],
) -> None:
    messages = render_tool_turns(SCRIPT, [turn for turn in given_turns if not isinstance(turn, MalformedTurn)])
    assert messages[0].role == "user"
    assert messages[0].content.startswith(render_tool_task(SCRIPT))
    for before, one in pairwise(messages):
        assert (one.role == "tool") == (before.call is not None)
        assert one.id
        assert one.role != "tool" or one.id == before.id
    assert sum(one.call is not None for one in messages) == sum(isinstance(turn, PlayerTurn) for turn in given_turns)
