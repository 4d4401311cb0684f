"""The Player that is asked with tool calls: what it sends, what it makes of the answer, and what it refuses."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from samples import SHED, dm, player
from scripted import PROMPTS

from refinesynth.actions.calls import call_of, tools_of
from refinesynth.actions.functions import actions_of
from refinesynth.chat import render_tool_task, render_tool_turns
from refinesynth.prompts.data_blocks import read_blocks
from refinesynth.roles import InvalidAnswer, ToolPlayer
from refinesynth.settings.mistakes import MistakeRequest
from refinesynth.trajectory import MistakeKind, PlayerTurn, Script

TURNS = (player("open window"), dm("There is no window.", "place"), player("open box"), dm("The box is open."))
TAKE = call_of(SHED, "take key")


def calls(*names: str, thought: str = "It is there.", args: Any = None) -> ModelResponse:
    made = [ToolCallPart(name, dict(TAKE.arguments) if args is None else args) for name in names]
    return ModelResponse(parts=[*([TextPart(thought)] if thought else []), *made])


class Answering:
    """A model that gives these answers, the last one again and again."""

    def __init__(self, *answers: ModelResponse) -> None:
        self.seen: list[tuple[list[ModelMessage], AgentInfo]] = []
        self._left = list(answers)
        self.model = FunctionModel(self._answer, model_name="calling")

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append((messages, info))
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]

    async def act(
        self, turns: Sequence[Any] = TURNS, answers: int = 2, script: Script = SHED, **more: Any
    ) -> PlayerTurn:
        asked = ToolPlayer(self.model, PROMPTS, script=script, answers=answers)
        (turn,) = await asked.act(render_tool_turns(script, turns), **more)
        return turn


async def test_a_call_is_the_action_and_the_text_beside_it_the_thought() -> None:
    model = Answering(calls(TAKE.name))
    assert await model.act() == player("take key", thought="It is there.")
    (messages, info), *_ = model.seen
    assert [tool.name for tool in info.function_tools] == [tool.name for tool in tools_of(SHED)]
    assert info.instructions is None
    first, call, answer, *_ = messages
    assert isinstance(first, ModelRequest)
    assert [part.content for part in first.parts if isinstance(part, UserPromptPart)] == [render_tool_task(SHED)]
    assert isinstance(call, ModelResponse)
    assert [type(part) for part in call.parts] == [TextPart, ToolCallPart]
    (given,) = answer.parts
    assert isinstance(given, ToolReturnPart)
    assert (given.content, given.tool_call_id) == ("There is no window.", "call00000")


async def test_what_the_model_thought_for_itself_is_the_thought_where_there_is_no_other() -> None:
    thinking = [ThinkingPart("I wonder."), ToolCallPart(TAKE.name, dict(TAKE.arguments))]
    assert await Answering(ModelResponse(parts=thinking)).act() == player("take key", thought="I wonder.")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (ModelResponse(parts=[TextPart("I take the key.")]), "no function is called"),
        (calls(TAKE.name, TAKE.name), "there are 2 calls; take one action at a time"),
        (calls(TAKE.name, thought=""), "there is no thought"),
        (calls(TAKE.name, args="[1]"), "the arguments are no JSON object"),
        (calls(TAKE.name, args="{"), "the arguments are no JSON object"),
        (calls("", args={}), "the call says nothing"),
    ],
)
async def test_an_answer_that_is_no_turn_is_refused_in_words(answer: ModelResponse, problem: str) -> None:
    model = Answering(answer, calls(TAKE.name))
    assert (await model.act()).action == "take key"
    back = model.seen[1][0][-1].parts
    assert {type(part) for part in back} == {
        ToolReturnPart if any(isinstance(part, ToolCallPart) for part in answer.parts) else UserPromptPart
    }
    assert all(problem in str(getattr(part, "content", "")) for part in back)
    with pytest.raises(InvalidAnswer, match=problem):
        await Answering(answer).act(answers=0)


async def test_a_function_that_there_is_not_is_a_mistake_and_no_fault() -> None:
    assert (await Answering(calls("dance", args={"how": "wildly"})).act()).action == "dance wildly"


async def test_private_notes_stand_in_the_last_answer_and_nowhere_else() -> None:
    model = Answering(calls(TAKE.name))
    await model.act(mistake=MistakeRequest(MistakeKind.PLACE), violations=["Say something new."])
    *before, last = model.seen[0][0]
    (part,) = last.parts
    assert isinstance(part, ToolReturnPart)
    text = part.model_response_str()
    assert text.startswith("The box is open.\n\nA private note")
    assert read_blocks(text)["private"] == {"slip": "place", "way": "fresh"}
    assert not any("private" in str(getattr(one, "content", "")) for message in before for one in message.parts)


def text(words: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(words)])


@pytest.mark.parametrize(
    "written",
    [
        "Thought: I see it.\nAction: take key",
        "Thought: I see it.\nAction: take key\nObservation: You win.",
        "I see it.\n**Action:** `take key`",
        "I see it.\ntake('key')",
        'Thought: I see it.\nAction: take(thing="key")',
        'I see it.\n\n```python\ntake(thing="key")\n```',
        'I see it.\nAction:\n```\ntake(thing="key")\n```\nIn words:\ntake(thing="key")',
    ],
)
async def test_a_call_in_the_text_is_a_call_where_it_is_clear(written: str) -> None:
    model = Answering(text(written))
    asked = ToolPlayer(model.model, PROMPTS, script=SHED)
    assert await asked.act(render_tool_turns(SHED, TURNS)) == (player("take key", thought="I see it."),)
    assert asked.salvaged == {"call in text": 1}


@pytest.mark.parametrize(
    "written",
    [
        "take('key')",
        "I see it.\ntake('key', 'saw')",
        "I see it.\ntake(open('key'))",
        "I see it.\ntake('key')\ntake('saw')",
        "I see it.\nAction: take key\nAction: open box",
        "I see it.\nAction: fly away",
        '{"a": 1}\nAction: take key',
        "",
        "Action: take key",
    ],
)
async def test_any_other_text_with_a_call_is_asked_again(written: str) -> None:
    model = Answering(text(written), calls(TAKE.name))
    assert await model.act() == player("take key", thought="It is there.")
    assert [(info.model_settings or {}).get("tool_choice") for _, info in model.seen] == [None, None]


async def test_behind_a_thought_without_a_call_one_is_demanded_and_the_thought_is_kept() -> None:
    model = Answering(
        text("Thought: I see it (there)."), calls("fly", args="[1]", thought=""), calls(TAKE.name, thought="")
    )
    assert await model.act() == player("take key", thought="I see it (there).")
    assert [(info.model_settings or {}).get("tool_choice") for _, info in model.seen] == [None, "required", "required"]


async def test_a_call_of_a_users_function_that_its_text_would_change_is_sent_back() -> None:
    text = {"type": "string"}
    tool = {
        "name": "note",
        "parameters": {"type": "object", "properties": {"to": text, "text": text, "at": {"type": "integer"}}},
    }
    script = SHED.model_copy(update={"actions": actions_of([tool])})
    model = Answering(
        calls("note", args={"to": "Ann text=me", "text": "x"}),
        calls("note", args={"to": " Ann ", "text": "a=b", "at": "3.0"}),
    )
    assert (await model.act((), script=script)).action == "note to= Ann  text=a=b at=3"
    assert 'argument "to" holds the name of another one' in str(model.seen[1][0][-1])


async def test_several_calls_are_turns_of_one_message_where_they_are_allowed() -> None:
    opened = ToolCallPart("open", {"container": "box"}, tool_call_id="x")
    both = [TextPart("First that, then this."), opened, ToolCallPart(TAKE.name, dict(TAKE.arguments))]
    model = Answering(ModelResponse(parts=both))
    asked = ToolPlayer(model.model, PROMPTS, script=SHED, most=2)
    first, second = await asked.act(render_tool_turns(SHED, (), parallel=True))
    assert (first.thought, first.parallel) == ("First that, then this.", False)
    assert second == PlayerTurn(thought="", action="take key", parallel=True)
    shown = render_tool_turns(SHED, (first, dm("It opens."), second, dm("You have it.")))
    await asked.act(shown)
    said, *answers = model.seen[1][0][1:]
    assert [type(part) for part in said.parts] == [TextPart, ToolCallPart, ToolCallPart]
    given = [part for message in answers for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [(part.content, part.tool_call_id) for part in given] == [
        ("It opens.", "call00000"),
        ("You have it.", "call00002"),
    ]


async def test_too_many_calls_are_sent_back() -> None:
    model = Answering(calls(TAKE.name, TAKE.name, TAKE.name), calls(TAKE.name))
    asked = ToolPlayer(model.model, PROMPTS, script=SHED, most=2)
    assert len(await asked.act(render_tool_turns(SHED, (), parallel=True))) == 1
    assert "there are 3 calls; make at most 2" in str(model.seen[1][0][-1])
