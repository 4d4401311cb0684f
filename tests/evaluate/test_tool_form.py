"""Evaluations by native tool calls: the chat of training, and the same controls, scores, perturbations and resumption."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from inspect_marks import INSPECT
from samples import SHED_GROUNDED, dm, player, trajectory

from refinesynth.actions.calls import Call, text_of
from refinesynth.actions.functions import actions_of
from refinesynth.chat import ToolMessage, render_tool_turns, render_tools
from refinesynth.errors import InputError
from refinesynth.evaluate.environments.alfworld import _ACTIONS as HOUSEHOLD  # pyright: ignore[reportPrivateUsage]
from refinesynth.evaluate.environments.environment import Action, Exchange, Start
from refinesynth.evaluate.environments.perturbation import PERTURBATIONS
from refinesynth.evaluate.environments.worlds import _start  # pyright: ignore[reportPrivateUsage]
from refinesynth.testing import valid_drafts
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn, Script
from refinesynth.world import World

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")

from inspect_ai import Task, eval  # noqa: A004 # pyright: ignore[reportUnknownVariableType]
from inspect_ai.log import EvalSample, list_eval_logs, read_eval_log
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.tool import ToolCall

from refinesynth.evaluate.agent import first_message
from refinesynth.evaluate.chat_form import ToolForm, definition
from refinesynth.evaluate.episode_counts import SCORE
from refinesynth.evaluate.evaluation_run import evaluate
from refinesynth.evaluate.settings import Evaluation, TaskSettings
from refinesynth.evaluate.task import benchmark_task

pytestmark = INSPECT

Turns = Sequence[PlayerTurn | DungeonMasterTurn]


def as_sent(message: ChatMessage) -> dict[str, Any]:
    """A message as `ToolMessage.openai` has it."""
    if isinstance(message, ChatMessageTool):
        return {"role": "tool", "content": message.text, "tool_call_id": message.tool_call_id}
    found: dict[str, Any] = {"role": message.role, "content": message.text}
    if isinstance(message, ChatMessageAssistant) and message.tool_calls:
        found["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.function, "arguments": one.arguments}}
            for one in message.tool_calls
        ]
    return found


def trained(messages: Sequence[ToolMessage]) -> list[dict[str, Any]]:
    return [one.openai(arguments="object") for one in messages]


def start_of(script: Script, turns: Turns) -> Start:
    """The start of an episode behind these turns."""
    opening = turns[0].observation if turns and isinstance(turns[0], DungeonMasterTurn) else ""
    pairs = pairwise(turns)
    history = [
        Exchange(act.thought, act.action, answer.observation, answer.flagged)
        for act, answer in pairs
        if isinstance(act, PlayerTurn) and isinstance(answer, DungeonMasterTurn)
    ]
    actions = tuple(
        Action(
            one.name,
            one.description,
            one.parameters,
            {name: kind.model_dump(mode="json") for name, kind in one.types.items()},
            one.pattern,
        )
        for one in script.actions
    )
    return Start(opening, script.goal, actions, script.introduction, tuple(history))


def chat(start: Start) -> tuple[ToolForm, list[ChatMessage]]:
    form = ToolForm(start)
    messages: list[ChatMessage] = [ChatMessageUser(content=first_message(start, form))]
    for one in start.history:
        messages.append(acted := form.message(PlayerTurn(thought=one.thought, action=one.action)))
        messages += form.answers(acted, one.observation)
    return form, messages


@given(draft=valid_drafts())
def test_every_play_has_the_messages_and_functions_of_training(draft: Draft):
    turns = [turn for turn in draft.turns if isinstance(turn, PlayerTurn | DungeonMasterTurn)]
    form, messages = chat(start_of(draft.script, turns))
    assert [as_sent(one) for one in messages] == trained(render_tool_turns(draft.script, turns))
    assert json.dumps([definition(one) for one in form.tools]) == json.dumps(render_tools(draft.script))


@pytest.fixture
def worlds(tmp_path: Path) -> Path:
    """A file with one world, in whose play there is a mistake: a function that it does not have."""
    shut = SHED_GROUNDED.environment
    refused = World(SHED_GROUNDED).step(shut, "sing loudly")
    file = tmp_path / "worlds.jsonl"
    turns = (player("sing loudly"), dm(refused.text, refused.kind or ""))
    file.write_bytes(trajectory(*turns, script=SHED_GROUNDED).to_json() + b"\n")
    return file


def play(task: Task, said: Sequence[ChatMessageAssistant], folder: Path) -> tuple[EvalSample, list[Any], list[Any]]:
    """A play in which a model says this; what it was asked, and the functions that it was offered."""
    asked: list[list[dict[str, Any]]] = []
    offered: list[Any] = []

    def answer(messages: list[ChatMessage], tools: list[Any], *_: object) -> ModelOutput:
        asked.append([as_sent(one) for one in messages])
        offered.append([definition(one) for one in tools])
        output = ModelOutput.from_message(said[min(len(asked), len(said)) - 1].model_copy(deep=True))
        output.usage = ModelUsage(input_tokens=1, output_tokens=1)
        return output

    model = get_model("mockllm/model", custom_outputs=answer)
    log = eval(task, model=model, log_dir=str(folder), display="none")[0]
    (sample,) = read_eval_log(log.location).samples or []
    assert sample.error is None
    return sample, asked, offered


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall("whatever the server says", name, arguments)


def says(*calls: ToolCall, text: str = "hm") -> ChatMessageAssistant:
    return ChatMessageAssistant(content=text, tool_calls=list(calls) or None)


def test_a_model_is_asked_as_in_training_and_plays_by_calls(worlds: Path, tmp_path: Path):
    task = benchmark_task("mistakes", TaskSettings(argument=str(worlds), steps=3, form="tools"))
    said = [says(call("open", thing="box")), says(call("take", thing="key")), says(call("fly", to="home"))]
    sample, asked, offered = play(task, said, tmp_path)
    before = (player("sing loudly"), dm(sample.messages[2].text, "parameter"))
    turns: list[PlayerTurn | DungeonMasterTurn] = [*before]
    for messages, action in zip(asked, ("open box", "take key", "fly home"), strict=True):
        assert messages == trained(render_tool_turns(SHED_GROUNDED, turns))
        turns += [player(action, "hm"), dm(sample.messages[len(messages) + 1].text)]
    assert offered == [render_tools(SHED_GROUNDED)] * 3
    found = ((sample.scores or {})[SCORE].metadata or {})["counts"]
    assert (found["turns"], found["format_errors"], found["refused"]) == (3, 0, 1)


def test_what_is_no_call_costs_a_turn_and_every_call_is_answered(worlds: Path, tmp_path: Path):
    task = benchmark_task("worlds", TaskSettings(argument=str(worlds), steps=4, form="tools"))
    damaged = ToolCall("x", "open", {}, parse_error="its arguments are no JSON object")
    sample, asked, _ = play(
        task,
        [says(text="Action: open box"), says(call("open", thing="box"), damaged), says(call("act", act=" "))],
        tmp_path,
    )
    told = [message for message in sample.messages[1:] if message.role != "assistant"]
    assert [message.text.partition(";")[0] for message in told[:3]] == [
        "No function is called",
        "The call cannot be read: its arguments are no JSON object.",
        "The call cannot be read: its arguments are no JSON object.",
    ]
    assert [one.get("tool_call_id") for one in asked[2]] == [None] * 4 + ["call00002", "call00004"]
    found = ((sample.scores or {})[SCORE].metadata or {})["counts"]
    assert (found["turns"], found["format_errors"]) == (4, 2)


@pytest.mark.parametrize("form", ["tools", "parallel_tools"])
def test_all_calls_of_a_message_are_executed_as_in_training(worlds: Path, tmp_path: Path, form: Any):
    task = benchmark_task("worlds", TaskSettings(argument=str(worlds), steps=5, form=form))
    two = says(call("take", thing="key"), call("open", thing="box"))
    sample, asked, _ = play(task, [two, says(call("fly", to="home"), *[call("take", thing="saw")] * 4)], tmp_path)
    told = [message.text for message in sample.messages if message.role == "tool"]
    turns = [
        *(player("take key", "hm"), dm(told[0], "place"), player("open box", "").model_copy(update={"parallel": True})),
        dm(told[1]),
    ]
    seen = trained(render_tool_turns(SHED_GROUNDED, turns, parallel=True))
    assert asked[1][1:] == seen[1:]
    assert (asked[1][0] == seen[0]) == (form == "parallel_tools")
    assert told[-2:] == ["Not executed: the task has ended."] * 2
    found = ((sample.scores or {})[SCORE].metadata or {})["counts"]
    assert (found["turns"], found["format_errors"]) == (5, 0)


def test_the_form_is_a_setting_that_resumption_compares(worlds: Path, tmp_path: Path):
    def asked(folder: str, form: Any) -> Evaluation:
        return Evaluation(model="oracle", tasks=f"worlds:{worlds}", output=tmp_path / folder, form=form)

    evaluate(asked("text", "auto"))
    evaluate(asked("text", "react"))
    evaluate(asked("calls", "tools"))
    for folder, form in (("text", "tools"), ("calls", "auto")):
        with pytest.raises(InputError, match="form="):
            evaluate(asked(folder, form))
    (info,) = list_eval_logs(str(tmp_path / "text"))
    header = read_eval_log(info)
    # Inspect keeps finished episodes by these: an evaluation that was begun before there was a choice goes on.
    assert "form" not in header.eval.task_args_passed
    assert set(header.plan.steps[0].params_passed) == {"pool", "instances", "steps"}


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("P1", "clean_with", "clean_using"), ("P2", "go_to", "move_to"), ("P3", "take_from", "from_take")],
)
def test_a_perturbation_renames_functions(name: str, before: str, after: str):
    swap = PERTURBATIONS[name]
    start = Start("", "goal", HOUSEHOLD)
    worded = Start("", "goal", tuple(Action(swap(one.name), swap(one.description)) for one in HOUSEHOLD))
    names, others = ([tool.name for tool in ToolForm(one).tools] for one in (start, worded))
    assert [after if one == before else one for one in names] == others
    assert names != others


def test_functions_of_a_user_are_offered_as_in_training():
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}, "where": {"$ref": "#/$defs/Place"}},
        "required": ["city"],
        "$defs": {"Place": {"type": "object", "properties": {"x": {"type": "number"}}}},
    }
    actions = actions_of([{"name": "get_weather", "description": "Of a city.", "parameters": parameters}])
    script = SHED_GROUNDED.model_copy(update={"actions": actions})
    form = ToolForm(_start(script, ()))
    assert [definition(tool) for tool in form.tools] == render_tools(script)
    assert form.read(says(call("get_weather", city="Lisbon")))[0] == text_of(
        script, Call("get_weather", {"city": "Lisbon"})
    )
