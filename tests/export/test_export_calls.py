"""Exports with tool calls: what the formats with text say, in the other form."""

import json
from typing import Any

import pytest
from export_samples import a_trajectory, of_draft
from hypothesis import given

from refinesynth.actions.calls import tools_of
from refinesynth.chat import to_tool_messages
from refinesynth.errors import InputError
from refinesynth.export import Form, export, find_format
from refinesynth.testing import valid_drafts
from refinesynth.trajectory import Trajectory

WITH_CALLS = ("openai", "trl", "trl-split", "axolotl", "tinker", "slime", "prime-rl")
OBJECTS = ("trl", "trl-split", "slime")
"""Formats whose arguments are an object; those of the others are its JSON text."""


def records(name: str, form: Form, *trajectories: Trajectory, masking: str | None = None) -> list[dict[str, Any]]:
    return list(export(trajectories or (a_trajectory(),), name, masking=masking, form=form))


def conversation(record: dict[str, Any]) -> list[dict[str, Any]]:
    return record.get("messages") or [*record["prompt"], *record["completion"]]


def test_openai_has_tools_and_json_text_as_arguments() -> None:
    (record,) = records("openai", "tools")
    assert list(record) == ["messages", "tools", "parallel_tool_calls"]
    assert record["parallel_tool_calls"] is False
    assert [tool["function"]["name"] for tool in record["tools"]] == [
        tool.name for tool in tools_of(a_trajectory().script)
    ]
    first, wrong, answer = record["messages"][:3]
    assert first == {"role": "user", "content": to_tool_messages(a_trajectory())[0].content}
    (call,) = wrong.pop("tool_calls")
    assert wrong == {"role": "assistant", "content": "I try this.", "weight": 0}
    assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert answer == {"role": "tool", "content": "There is no moon.", "tool_call_id": call["id"]}
    assert [one.get("weight") for one in record["messages"]] == [None, 0, None, 0, None, 1, None, 1]


@pytest.mark.parametrize(
    ("name", "key"), [("trl", "loss"), ("axolotl", "training"), ("tinker", "trainable"), ("slime", "step_loss_mask")]
)
def test_messages_with_a_flag_each(name: str, key: str) -> None:
    (record,) = records(name, "tools")
    assert [message[key] for message in record["messages"]] == [False] * 5 + [True, False, True]
    arguments = [call["function"]["arguments"] for one in record["messages"] for call in one.get("tool_calls", ())]
    assert [isinstance(one, dict) for one in arguments] == [name in OBJECTS] * 4
    assert record["tools"] == [tool.definition() for tool in tools_of(a_trajectory().script)]


@given(valid_drafts().map(of_draft))
def test_both_forms_train_on_the_same_turns(trajectory: Trajectory) -> None:
    for name in WITH_CALLS:
        for masking in find_format(name, "tools").advice:
            text = records(name, "react", trajectory, masking=masking)
            calls = records(name, "tools", trajectory, masking=masking)
            assert len(text) == len(calls)
            for said, called in zip(text, calls, strict=True):
                ours, theirs = conversation(said), conversation(called)
                assert [one["role"] for one in ours] == [
                    "user" if one["role"] == "tool" else one["role"] for one in theirs
                ]
                for key in ("loss", "weight", "training", "trainable", "step_loss_mask"):
                    assert [one.get(key) for one in ours] == [one.get(key) for one in theirs]


@pytest.mark.parametrize("name", ["sharegpt", "paper", "atif", "llamafactory"])
def test_a_format_without_calls_is_refused_at_once(name: str) -> None:
    with pytest.raises(InputError, match="cannot be written with tool calls; use one of: openai, trl"):
        export((), name, form="tools")
