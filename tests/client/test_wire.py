"""From pydantic-ai's messages to a request."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ImageUrl,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings, ToolOrOutput
from pydantic_ai.tools import ToolDefinition

from refinesynth.client import request_arguments

NONE = ModelRequestParameters()
TOOL = ToolDefinition(name="final", description="d", parameters_json_schema={"type": "object"}, strict=True)
ASKS_TOOL = ModelRequestParameters(output_mode="tool", output_tools=[TOOL], allow_text_output=False)


def test_what_the_system_says_first_is_one_message() -> None:
    messages: list[ModelMessage] = [ModelRequest(parts=[SystemPromptPart("one"), UserPromptPart("hi")])]
    parameters = ModelRequestParameters(
        instruction_parts=[InstructionPart(content="two"), InstructionPart(content="three")]
    )
    assert request_arguments.chat_messages(messages, parameters) == [
        {"role": "system", "content": "one\n\ntwo\n\nthree"},
        {"role": "user", "content": "hi"},
    ]


def test_the_instructions_of_the_latest_request_serve_where_there_are_no_others() -> None:
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("hi")], instructions="old"),
        ModelResponse(parts=[TextPart("ho")]),
        ModelRequest(parts=[UserPromptPart("hi again")], instructions="new"),
    ]
    assert request_arguments.chat_messages(messages, NONE)[0] == {"role": "system", "content": "new"}
    assert request_arguments.chat_messages([], NONE) == []


def test_a_conversation_with_a_tool_call_keeps_its_order() -> None:
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(["a", TextContent("b")])]),
        ModelResponse(parts=[ThinkingPart("hm"), TextPart("t"), ToolCallPart("f", {"x": 1}, tool_call_id="c")]),
        ModelRequest(parts=[ToolReturnPart(tool_name="f", content={"y": 2}, tool_call_id="c")]),
    ]
    user, assistant, tool = request_arguments.chat_messages(messages, NONE)
    assert user == {"role": "user", "content": "a\n\nb"}
    assert assistant["content"] == "t"
    assert "reasoning_content" not in assistant
    (call,) = assistant["tool_calls"]
    assert (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) == ("c", "f", {"x": 1})
    assert (tool["role"], tool["tool_call_id"], json.loads(tool["content"])) == ("tool", "c", {"y": 2})


def test_thinking_goes_back_to_providers_that_want_it() -> None:
    messages: list[ModelMessage] = [ModelResponse(parts=[ThinkingPart("hm"), TextPart("t")])]
    (answer,) = request_arguments.chat_messages(messages, NONE, thinking_field="reasoning_content")
    assert answer["reasoning_content"] == "hm"


@pytest.mark.parametrize(
    "message",
    [
        ModelRequest(parts=[UserPromptPart([ImageUrl("http://h/i.png")])]),
        ModelRequest(parts=[RetryFeedbackPart("again", retry=RetryInfo(cause="model_retry"))]),
        ModelResponse(parts=[FilePart(BinaryContent(b"", media_type="image/png"))]),
    ],
)
def test_what_cannot_be_said_is_refused_loudly(message: ModelMessage) -> None:
    with pytest.raises(UserError, match="cannot be sent"):
        request_arguments.chat_messages([message], NONE)


@given(st.text(alphabet=st.characters()))
def test_every_text_can_be_encoded(text: str) -> None:
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(text), SystemPromptPart(text)], instructions=text),
        ModelResponse(parts=[TextPart(text), ToolCallPart("f", json.dumps(text), tool_call_id="c")]),
        ModelRequest(parts=[ToolReturnPart(tool_name="f", content=text, tool_call_id="c")]),
    ]
    assert json.dumps(request_arguments.chat_messages(messages, NONE), ensure_ascii=False).encode()


def test_the_strict_flag_is_sent_only_where_it_is_known_and_holds() -> None:
    (known,) = request_arguments.tools(ASKS_TOOL, strict=True)
    (unknown,) = request_arguments.tools(ASKS_TOOL, strict=False)
    assert known["function"]["strict"] is True
    assert "strict" not in unknown["function"]


@pytest.mark.parametrize(
    ("parameters", "choice", "forced", "expected"),
    [
        (ASKS_TOOL, None, True, "required"),
        (ASKS_TOOL, None, False, "auto"),
        (ASKS_TOOL, "none", True, "required"),
        (NONE, None, True, "auto"),
        (NONE, "auto", True, "auto"),
        (NONE, "none", True, "none"),
        (NONE, "required", True, "required"),
    ],
)
def test_a_tool_call_is_demanded_where_no_text_is_wanted(
    parameters: ModelRequestParameters, choice: str | None, forced: bool, expected: str
) -> None:
    settings = ModelSettings() if choice is None else ModelSettings(tool_choice=choice)  # pyright: ignore[reportArgumentType]
    assert request_arguments.tool_choice(parameters, settings, forced=forced) == expected


def test_a_choice_of_single_tools_is_refused_loudly() -> None:
    with pytest.raises(UserError, match="tool_choice"):
        request_arguments.tool_choice(NONE, ModelSettings(tool_choice=ToolOrOutput(["f"])), forced=True)


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_native_answer_is_held_to_its_schema(strict: bool | None) -> None:
    answer = OutputObjectDefinition(json_schema={"type": "object"}, name="An answer!", description="d", strict=strict)
    form = request_arguments.response_format(
        ModelRequestParameters(output_mode="native", output_object=answer), strict=True
    )
    assert form is not None
    schema = {"name": "An_answer_", "schema": {"type": "object"}, "description": "d"} | (
        {"strict": True} if strict else {}
    )
    assert form == {"type": "json_schema", "json_schema": schema}


def test_an_answer_of_nothing_but_thinking_leaves_no_empty_message() -> None:
    assert request_arguments.chat_messages([ModelResponse(parts=[ThinkingPart("hm")])], NONE) == []
