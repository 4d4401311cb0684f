"""From a completion that nobody checked to parts."""

import json
from typing import Any

import orjson
import pytest
from chat_server import calls_tool, completion
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from refinesynth.backends.backend import NO_REASON
from refinesynth.client.classify_error import ErrorCategory, FailureAction, UnusableAnswer
from refinesynth.client.completion_parsing import ReadCompletion, read_completion, repaired
from refinesynth.text.json_reader import MAX_CHARACTERS

TEXT = ModelRequestParameters()
NATIVE = ModelRequestParameters(output_mode="native", output_object=OutputObjectDefinition(json_schema={}))
TOOL = ModelRequestParameters(output_mode="tool", output_tools=[ToolDefinition(name="final")], allow_text_output=False)

_PLAIN = st.text(st.characters(codec="utf-8")) | st.booleans() | st.integers(-(2**53), 2**53) | st.none()


def outcome(raw: object) -> ReadCompletion | UnusableAnswer:
    try:
        answer = read_completion(raw)
        answer.check(max_tokens=None)
    except UnusableAnswer as fault:
        return fault
    return answer


@pytest.mark.parametrize(("arguments", "args"), [({"a": 1}, '{"a": 1}'), (None, "{}"), ("{'a': 1,}", '{"a":1}')])
def test_arguments_may_come_as_an_object_not_at_all_or_broken(arguments: object, args: str) -> None:
    raw = completion(None, tool_calls=[{"id": None, "function": {"name": "f", "arguments": arguments}}])
    (call,) = read_completion(raw).parts(TOOL)
    assert isinstance(call, ToolCallPart)
    assert call.args == args
    assert call.tool_call_id


def test_arguments_written_as_text_become_the_tool_call_that_was_asked_for() -> None:
    (call,) = read_completion(completion('Sure!\n```json\n{"a": 1}\n```')).parts(TOOL)
    assert isinstance(call, ToolCallPart)
    assert (call.tool_name, call.args) == ("final", '{"a":1}')
    assert read_completion(completion("no idea")).parts(TOOL) == [TextPart("no idea")]


def test_json_is_mended_only_where_json_is_expected() -> None:
    raw = completion("{'a': 1,}")
    assert read_completion(raw).parts(NATIVE) == [TextPart('{"a":1}')]
    assert read_completion(raw).parts(TEXT) == [TextPart("{'a': 1,}")]


@pytest.mark.parametrize("text", ['{"a": 1}', "[1]", "no json at all", "", '"text"', "[" * 5_000, "1" * 100])
def test_what_is_strict_or_beyond_repair_stays(text: str) -> None:
    assert repaired(text) == text


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8")), _PLAIN | st.lists(_PLAIN), max_size=4),
    st.sampled_from(["```json\n{}\n```", "Here it is:\n```json\n{}\n```\nDone.", "{}"]),
)
def test_mending_keeps_the_value_in_fences_and_prose(value: dict[str, Any], frame: str) -> None:
    text = frame.replace("{}", json.dumps(value))
    assert orjson.loads(repaired(text)) == value


@pytest.mark.parametrize("where", ["model", "id", "finish_reason", "content", "refusal", "reasoning_content"])
@pytest.mark.parametrize("said", ["\ud800", "x" * 3_000_000, ["a", {"text": "\udc00"}], {"a": "\ud800"}])
def test_whatever_a_server_says_can_be_kept_and_takes_bounded_room(where: str, said: object) -> None:
    raw = completion("text")
    place: dict[str, Any] = raw if where in raw else raw["choices"][0]
    (place if where in place else place["message"])[where] = said
    kept = read_completion(raw).to_json()
    assert len(kept) < 1_100_000
    assert isinstance(json.loads(kept), dict)


@pytest.mark.parametrize(
    ("raw", "step", "kind"),
    [
        (completion("cut", finish_reason="length"), FailureAction.RETRY, ErrorCategory.CONTENT),
        (completion(None), FailureAction.RETRY, ErrorCategory.CONTENT),
        (completion(None, reasoning_content="only thinking"), FailureAction.RETRY, ErrorCategory.CONTENT),
        (completion("x" * (MAX_CHARACTERS + 1)), FailureAction.RETRY, ErrorCategory.CONTENT),
        (completion("bad", finish_reason="content_filter"), FailureAction.ABANDON, ErrorCategory.POLICY),
        (completion(None, refusal="I will not"), FailureAction.ABANDON, ErrorCategory.POLICY),
        (
            completion(None, provider_specific_fields={"refusal": "I will not"}),
            FailureAction.ABANDON,
            ErrorCategory.POLICY,
        ),
        (completion("half", finish_reason="error"), FailureAction.RETRY, ErrorCategory.SERVER),
        (completion("half", finish_reason=NO_REASON), FailureAction.RETRY, ErrorCategory.CONTENT),
        ({**completion(), "choices": []}, FailureAction.RETRY, ErrorCategory.CONTENT),
        ({"choices": [], "usage": {"total_tokens": 0}}, FailureAction.RETRY, ErrorCategory.SERVER),
        ({}, FailureAction.RETRY, ErrorCategory.SERVER),
        (None, FailureAction.RETRY, ErrorCategory.SERVER),
        ({"choices": [1]}, FailureAction.RETRY, ErrorCategory.SERVER),
        ({"choices": [{"message": "text"}]}, FailureAction.RETRY, ErrorCategory.SERVER),
        (completion(tool_calls=[{"function": {"name": None}}]), FailureAction.RETRY, ErrorCategory.CONTENT),
    ],
)
def test_what_cannot_be_used_is_a_fault(raw: object, step: FailureAction, kind: ErrorCategory) -> None:
    fault = outcome(raw)
    assert isinstance(fault, UnusableAnswer)
    assert (fault.action, fault.category) == (step, kind)


ENDINGS: dict[str, tuple[FailureAction, ErrorCategory] | None] = {
    **dict.fromkeys(
        (
            "stop", "STOP", "tool_calls", "tool_use", "function_call", "eos", "EOS", "eos_token", "end_turn", "COMPLETE",
            "stop_sequence", "STOP_SEQUENCE", "TOOL_CALL", "eosFound", "FINISHED", "completed", "FinishReason.STOP", "normal",
        ),
        None,
    ),
    **dict.fromkeys(
        ("abort", "error", "network_error", "insufficient_system_resource", "cancelled", "timeout", "USER_CANCEL"),
        (FailureAction.RETRY, ErrorCategory.SERVER),
    ),
    **dict.fromkeys(
        (
            "", "repetition", "not_finished", "MALFORMED_FUNCTION_CALL", "pause_turn", "unknown",
            "FINISH_REASON_UNSPECIFIED", "x" * 1_000, "stop it", "length", "MAX_TOKENS", "max_tokens", "compaction", "model_length", "model_context_window_exceeded",
        ),
        (FailureAction.RETRY, ErrorCategory.CONTENT),
    ),
    **dict.fromkeys(
        ("content_filter", "sensitive", "refusal", "SAFETY", "guardrail_intervened", "ERROR_TOXIC"),
        (FailureAction.ABANDON, ErrorCategory.POLICY),
    ),
}  # fmt: skip


def test_only_the_reasons_that_mean_so_are_taken_for_a_whole_answer() -> None:
    for reason, fault in ENDINGS.items():
        found = outcome(completion("Thought: x\nAction: y", finish_reason=reason))
        assert ((found.action, found.category) if isinstance(found, UnusableAnswer) else None) == fault, reason


@pytest.mark.parametrize(
    ("reason", "answer", "thoughts", "is_cut"),
    [
        ("stop", 512, 0, True),
        ("tool_calls", 512, 0, True),
        (None, 512, 300, True),
        # The server bounds the answer without its thoughts.
        ("stop", 812, 300, True),
        ("stop", 612, 300, False),
        ("stop", 511, 0, False),
        # The server ignores the bound.
        ("stop", 700, 0, False),
    ],
)
def test_an_answer_of_exactly_max_tokens_is_cut_off_whatever_its_server_says(
    reason: str | None, answer: int, thoughts: int, *, is_cut: bool
) -> None:
    details = {"reasoning_tokens": thoughts}
    usage = {"prompt_tokens": 9, "completion_tokens": answer, "completion_tokens_details": details}
    raw = completion("Action: take the blue fla", finish_reason=reason, usage=usage)
    answer_read = read_completion(raw, max_tokens=512)
    assert answer_read.finish_reason == ("length" if is_cut else reason)
    # The journal keeps it: a resumed run may have another limit.
    assert (b'"length"' in answer_read.to_json()) == is_cut


def test_a_function_in_this_process_need_give_no_reason_and_what_a_proxy_says_of_its_server_counts() -> None:
    assert isinstance(outcome(completion(finish_reason=None)), ReadCompletion)
    raw = completion()
    raw["choices"][0]["provider_specific_fields"] = {"native_finish_reason": "abort"}
    assert isinstance(outcome(raw), UnusableAnswer)
    raw["choices"][0] |= {"provider_specific_fields": {"native_finish_reason": "end_turn"}}
    assert isinstance(outcome(raw), ReadCompletion)
    raw["choices"][0] |= {"finish_reason": "length"}
    assert isinstance(outcome(raw), UnusableAnswer)


def test_json_that_breaks_off_is_not_closed() -> None:
    cut = '{"observation": "A short walk later you stan'
    for raw in (completion(cut), calls_tool("final", cut)):
        for parameters in (NATIVE, TOOL):
            (part,) = read_completion(raw).parts(parameters)
            assert getattr(part, "content", None) == cut or getattr(part, "args", None) == cut


def test_thoughts_in_the_text_join_those_that_the_server_separated() -> None:
    for sent, thinking in ((None, "b"), ("a", "a\n\nb"), ("a b", "a b")):
        for key in ("reasoning_content", "reasoning", "thinking"):
            read = read_completion(completion("b\n</think>\n\nThought: x\nAction: y", **{key: sent}))
            assert (read.thinking, read.text) == (thinking, "Thought: x\nAction: y")
    beside = read_completion(
        completion("<think>b</think>", tool_calls=[{"function": {"name": "f", "arguments": "{}"}}])
    )
    assert (beside.thinking, beside.text, len(beside.calls)) == ("b", "", 1)


STORY = " ".join(
    f"Room {number} holds {number * 7919 % 1009} jars and a {'red' * (number % 3)} lamp." for number in range(60)
)


@pytest.mark.parametrize(
    ("text", "prompt", "answer", "max_tokens", "advice"),
    [
        (STORY, 3_000, 512, 512, "raise max_tokens"),
        (STORY, 3_000, 1_024, None, "raise max_tokens"),
        (STORY, 3_001, 1_095, None, "they fill a context of 4,096 tokens; serve a longer one"),
        (STORY, 4_849, 3_343, 8_000, "they fill a context of 8,192 tokens"),
        ("Then it waits. " * 200, 3_000, 512, 512, "repeated itself until it was cut off at max_tokens=512"),
        ("\n" * 900, 4_849, 3_343, None, "more tokens do not help"),
    ],
)
def test_a_cut_answer_gives_advice_by_its_cause(
    text: str, prompt: int, answer: int, max_tokens: int | None, advice: str
) -> None:
    usage = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
    with pytest.raises(UnusableAnswer, match=advice):
        read_completion(completion(text, finish_reason="length", usage=usage)).check(max_tokens=max_tokens)
