"""How each model is asked for structured output."""

from typing import Any

import pytest

from refinesynth.backends import PRESETS, Backend, OutputMode
from refinesynth.client.request_arguments import can_force_tools, is_open, output_mode, profile_of


def mode(backend: Backend) -> str | None:
    return profile_of(backend).get("default_structured_output_mode")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rehearsal", "native"),
        ("gpt-4o", "native"),
        ("gpt-4o-mini", "native"),
        # DeepSeek answers 400 to json_schema, whatever litellm's flags say.
        ("deepseek", "tool"),
        ("claude", "native"),
        ("gemini", "native"),
        ("qwen", "tool"),
        ("ollama", "native"),
        ("vllm", "native"),
    ],
)
def test_presets_use_the_best_mode_their_model_has(name: str, expected: str) -> None:
    assert mode(PRESETS[name].backend) == expected


@pytest.mark.parametrize("model", ["gpt-4o-2024-05-13", "gpt-4", "gpt-4-turbo", "gpt-3.5-turbo"])
def test_openai_models_from_before_structured_outputs_are_asked_by_tool(model: str) -> None:
    assert mode(Backend(model=model)) == "tool"


def test_the_rehearsal_is_asked_the_same_in_process_and_over_http() -> None:
    in_process = profile_of(Backend(model="rehearsal"))
    over_http = profile_of(Backend(model="openai/rehearsal", base_url="http://127.0.0.1:8400/v1"))
    assert in_process == over_http


@pytest.mark.parametrize("chosen", [OutputMode.NATIVE, OutputMode.TOOL, OutputMode.PROMPTED])
@pytest.mark.parametrize("model", ["deepseek/deepseek-flash", "gpt-4o", "nobody/knows"])
def test_the_user_has_the_last_word(model: str, chosen: OutputMode) -> None:
    profile = profile_of(Backend(model=model, output_mode=chosen))
    assert profile.get("default_structured_output_mode") == chosen.value
    if chosen is OutputMode.NATIVE:
        assert profile.get("supports_json_schema_output")


def test_thinking_models_are_not_forced_to_call_tools() -> None:
    thinking = Backend(model="deepseek/deepseek-flash")
    silent = PRESETS["deepseek"].backend
    reasoner, mute = (
        Backend(model="deepseek/deepseek-reasoner"),
        thinking.model_copy(update={"extra": {"reasoning_effort": "none"}}),
    )
    assert can_force_tools(mute, profile_of(mute))
    assert not can_force_tools(thinking, profile_of(thinking))
    assert can_force_tools(silent, profile_of(silent))
    assert not can_force_tools(reasoner, profile_of(reasoner))
    assert can_force_tools(Backend(model="gpt-4o"), profile_of(Backend(model="gpt-4o")))


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        (PRESETS["claude"].backend, OutputMode.TOOL),
        (PRESETS["gemini"].backend, OutputMode.PROMPTED),
        (PRESETS["gpt-4o"].backend, OutputMode.NATIVE),
        (Backend(model="nobody/knows"), OutputMode.NATIVE),
        (Backend(model="claude-sonnet-5-5", output_mode=OutputMode.NATIVE), OutputMode.NATIVE),
    ],
)
def test_open_schemas_are_asked_for_where_they_can_be_expressed(backend: Backend, expected: OutputMode) -> None:
    assert output_mode(backend, profile_of(backend), frozenset(), free_keys=True) is expected


CLOSED: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "open_"),
    [
        (CLOSED, False),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, False),
        ({"type": "object"}, True),
        ({"type": "object", "additionalProperties": {"type": "string"}}, True),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, True),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}}, True),
        ({"$defs": {"a": {"type": "object"}}, "$ref": "#/$defs/a"}, True),
        ({"anyOf": [{"type": "null"}, CLOSED]}, False),
        ({"anyOf": [{"type": "null"}, {"type": "object"}]}, True),
        (True, False),
    ],
)
def test_an_object_with_keys_it_does_not_name_is_open(schema: object, open_: bool) -> None:
    assert is_open(schema) is open_
