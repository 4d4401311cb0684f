"""Questions of the roles to any model of pydantic-ai, and answers that are cut off, filtered or broken."""

from typing import Any

import orjson
import pytest
from pydantic_ai import UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from samples import dm
from scripted import PROMPTS, said

from refinesynth.errors import EpisodeAbandoned
from refinesynth.roles.actor import Actor, AnswerForm, CallLimit, InvalidAnswer, object_form
from refinesynth.roles.schemas import Ruling, schema_of

MODES = ("native", "tool", "prompted", "text")
RULED = said(dm("You hold the key."))
BLANK = RULED.replace("You hold the key.", "")
INSTRUCTIONS = "You rule.\n\nBe fair."


def _ruling(answer: dict[str, Any]) -> dict[str, Any]:
    if not answer["observation"]:
        raise ValueError("observation: it is blank")
    return answer


def _shouted(text: str) -> str:
    if "Action:" not in text:
        raise ValueError("there is no action")
    return text.upper()


FORMS: dict[str, AnswerForm[Any]] = {
    mode: AnswerForm(parameters=ModelRequestParameters(), load=_shouted)
    if mode == "text"
    else object_form(schema_of(Ruling), name="ruling", instructions=INSTRUCTIONS, read=_ruling)
    for mode in MODES
}


class TestReading:
    async def test_the_first_call_that_can_be_used_counts(self) -> None:
        def answer(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
            calls = [
                ToolCallPart("nothing", "{}"),
                ToolCallPart("final_result", BLANK),
                ToolCallPart("final_result", RULED),
            ]
            return ModelResponse(parts=[TextPart("Here it is."), *calls])

        assert await Actor(FunctionModel(answer), PROMPTS, answers=0).ask(FORMS["tool"], "?") == orjson.loads(RULED)

    @pytest.mark.parametrize("text", ["", '{"thought": "t', RULED])
    async def test_what_was_cut_off_is_neither_taken_nor_asked_again(self, text: str) -> None:
        def answer(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
            return ModelResponse(parts=[TextPart(text)], finish_reason="length")

        calls = CallLimit()
        with pytest.raises(InvalidAnswer, match="it was cut off"):
            await Actor(FunctionModel(answer), PROMPTS, answers=3, calls=calls).ask(FORMS["native"], "?")
        assert calls.made == 1

    async def test_what_broke_off_is_not_taken(self) -> None:
        def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
            if len(messages) == 1:
                return ModelResponse(parts=[TextPart('{"thought": "t", "observation": "You stan')])
            return ModelResponse(parts=[TextPart(f"{messages[-1]}")], finish_reason="error")

        with pytest.raises(InvalidAnswer, match="its end is missing; write all of it"):
            await Actor(FunctionModel(answer), PROMPTS, answers=0).ask(FORMS["prompted"], "?")
        with pytest.raises(InvalidAnswer, match="it broke off"):
            await Actor(FunctionModel(answer), PROMPTS, answers=1).ask(FORMS["prompted"], "?")

    async def test_a_filtered_answer_abandons_the_episode(self) -> None:
        def answer(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
            return ModelResponse(parts=[ThinkingPart("I must not.")], finish_reason="content_filter")

        with pytest.raises(EpisodeAbandoned, match="refused to answer: its answer was filtered") as refused:
            await Actor(FunctionModel(answer), PROMPTS, answers=3).ask(FORMS["text"], "?")
        assert not isinstance(refused.value, InvalidAnswer)

    async def test_what_a_model_finds_wrong_itself_is_an_invalid_answer(self) -> None:
        def answer(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
            raise UnexpectedModelBehavior("it sent nonsense")

        with pytest.raises(InvalidAnswer, match="it sent nonsense"):
            await Actor(FunctionModel(answer), PROMPTS, answers=3).ask(FORMS["text"], "?")
