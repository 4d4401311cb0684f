"""Our backends as models of Inspect: asked with our own keys, limits and budget."""

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from command_line import cli
from inspect_marks import INSPECT
from samples import SHED_GROUNDED, dm, player, trajectory

from refinesynth.chat import render_tool_turns, render_tools
from refinesynth.errors import ConfigurationError, InputError, RunStopped, StorageError

pytest.importorskip("inspect_ai", reason="needs the extra evaluate")

from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    ContentReasoning,
    GenerateConfig,
    get_model,
)
from inspect_ai.tool import ToolCall, ToolInfo

from refinesynth.evaluate.evaluation_run import evaluate
from refinesynth.evaluate.inspect_models import open_model, set_budget
from refinesynth.evaluate.settings import Evaluation

pytestmark = INSPECT


@pytest.fixture
def world(tmp_path: Path) -> str:
    file = tmp_path / "world.jsonl"
    file.write_bytes(trajectory(script=SHED_GROUNDED).to_json() + b"\n")
    return f"worlds:{file}"


def played(folder: Path) -> EvalLog:
    (info,) = list_eval_logs(str(folder))
    return read_eval_log(info)


evaluated = partial(cli, "evaluate")


class Asked:
    """A completion function that answers with a fixed action and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.message: dict[str, Any] = {"content": "Thought: so.\nAction: open box"}

    async def __call__(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        message = {"role": "assistant", **self.message}
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        return {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    from refinesynth.client import litellm_sdk

    found = Asked()
    monkeypatch.setattr(litellm_sdk, "completion", found)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nothing")
    return found


async def test_functions_calls_and_their_answers_are_sent_as_a_chat_completion_has_them(asked: Asked):
    script = SHED_GROUNDED
    turns = (player("open box", "It is shut."), dm("It is open."))
    want = [one.openai() for one in render_tool_turns(script, turns)]
    first, acted, answered = want
    (call,) = acted["tool_calls"]
    function = call["function"]
    chat: list[ChatMessage] = [
        ChatMessageUser(content=first["content"]),
        ChatMessageAssistant(
            content=acted["content"],
            tool_calls=[ToolCall(call["id"], function["name"], json.loads(function["arguments"]))],
        ),
        ChatMessageTool(content=answered["content"], tool_call_id=call["id"], function=function["name"]),
    ]
    tools = [ToolInfo.model_validate(one["function"]) for one in render_tools(script)]
    for arguments, wrong in (('{"thing": "key"}', False), ("[1]", True), ('{"thing": {"key', True)):
        given = {"id": "c1", "type": "function", "function": {"name": "take", "arguments": arguments}}
        asked.message = {"content": "I take it.", "reasoning_content": "The key!", "tool_calls": [given]}
        config = GenerateConfig(temperature=0.0, max_tokens=7, seed=3)
        output = await get_model("refinesynth/gpt-4o", memoize=False).generate(chat, tools, config=config)
        request = asked.requests[-1]
        assert (request["messages"], request["tools"]) == (want, render_tools(script))
        assert (request["temperature"], request["max_tokens"], request["seed"]) == (0.0, 7, 3)
        assert output.usage is not None
        assert (output.usage.input_tokens, output.usage.output_tokens) == (100, 20)
        assert output.completion == "I take it."
        (made,) = output.message.tool_calls or []
        assert (made.function, made.parse_error is not None) == ("take", wrong)
        assert made.arguments.get("thing", "key") == "key"
        assert output.message.content[0] == ContentReasoning(reasoning="The key!")


async def test_a_budget_stops_the_model_for_good(asked: Asked):
    model = get_model("refinesynth/gpt-4o", budget="400tok", memoize=False)
    config = GenerateConfig(max_tokens=100)
    for _ in range(3):
        await model.generate("hello", config=config)
    for _ in range(2):
        with pytest.raises(RunStopped, match="budget"):
            await model.generate("hello", config=config)
    assert len(asked.requests) == 3


def test_what_a_budget_leaves_out_is_played_by_the_same_command_with_more(asked: Asked, tmp_path: Path, world: str):
    options = ("--model", "gpt-4o", "--tasks", world, "-o", tmp_path / "out", "--steps", 3, "--max-tokens", 100)
    result = evaluated(*options, "--budget", "300tok")
    assert result.exit_code == 1
    assert "1 of 1 plays failed" in result.stderr
    assert "budget" in result.stderr
    assert played(tmp_path / "out").status == "error"
    assert evaluated(*options, "--budget", "90ktok").exit_code == 0
    # Settings that change results do not mix in one folder.
    other = evaluated(*options, "--set", "timeout=9")
    assert other.exit_code == 2
    assert "timeout=None, and this is one with 9" in other.stderr
    assert played(tmp_path / "out").status == "success"


def test_a_budget_counts_what_earlier_commands_spent(asked: Asked, tmp_path: Path, world: str):
    options = ("--model", "gpt-4o", "--tasks", world, "-o", tmp_path / "out", "--steps", 3, "--max-tokens", 100)
    assert evaluated(*options, "--budget", "4500tok", "--epochs", 1).exit_code == 0
    requests = len(asked.requests)
    for _ in range(2):
        assert evaluated(*options, "--budget", f"{requests * 120 + 100}tok", "--epochs", 9).exit_code == 1
        (tmp_path / "out" / "spent.json").unlink()  # folders from earlier versions have only logs
    assert len(asked.requests) == requests


def test_a_budget_counts_what_failed_episodes_spent(asked: Asked, tmp_path: Path, world: str):
    """Inspect removes the logs of earlier calls."""
    asked.message = {"content": "Thought: so.\nAction: juggle"}
    options = ("--model", "gpt-4o", "--tasks", world, "-o", tmp_path / "out", "--max-tokens", 100)
    assert evaluated(*options, "--budget", "1000tok").exit_code == 1
    for _ in range(3):
        assert evaluated(*options, "--budget", "2000tok").exit_code == 1
        played(tmp_path / "out")  # one log
    worst_case = 1000
    assert 120 * len(asked.requests) < 2000 + worst_case
    spent = tmp_path / "out" / "spent.json"
    assert json.loads(spent.read_bytes())["usage"]["requests"] == len(asked.requests)
    spent.write_text("{")
    with pytest.raises(InputError, match=r"spent\.json' cannot be read; move it away"):
        evaluate(Evaluation(model="gpt-4o", tasks=world, output=tmp_path / "out", max_tokens=100, budget="9000tok"))


def test_the_cost_is_written_before_an_answer_is_used(asked: Asked, tmp_path: Path):
    model = open_model("gpt-4o", temperature=0.0, settings={})
    set_budget([model], None, tmp_path, [])
    anyio.run(model.generate, "hello")
    assert json.loads((tmp_path / "spent.json").read_bytes())["usage"]["input_tokens"] == 100
    (tmp_path / "spent.json").unlink()
    (tmp_path / "spent.json").mkdir()
    for _ in range(2):
        with pytest.raises(StorageError, match="cannot be written"):
            anyio.run(model.generate, "hello")
    assert len(asked.requests) == 2


def test_the_rehearsal_plays_worlds(tmp_path: Path, world: str):
    (log,) = evaluate(Evaluation(model="rehearsal", tasks=world, output=tmp_path, steps=6))
    assert log.status == "success"
    assert log.eval.model == "refinesynth/rehearsal"


def test_settings_are_those_of_a_backend():
    model = open_model("gpt-4o", temperature=0.0, settings={"timeout": 7, "max_in_flight": 3})
    backend = cast("Any", model.api).backend
    assert backend.timeout == 7
    assert model.api.max_connections() == 3
    with pytest.raises(ConfigurationError, match="no_such"):
        get_model("refinesynth/gpt-4o", no_such=1)
    with pytest.raises(ConfigurationError, match="api_key_env"):
        get_model("refinesynth/gpt-4o", api_key="sk-secret")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gtp-4o", {}, "gpt-4o"),
        ("gpt-4o", {"bse_url": 1}, "bse_url"),
        ("hf/x", {}, "'hf/x' cannot be opened"),
        ("hf/x", {"batch_size": 0}, "batch_size is 0; expected 1 or more"),
    ],
)
def test_a_model_that_is_none_is_said(name: str, settings: dict[str, Any], message: str):
    with pytest.raises((InputError, ConfigurationError), match=message):
        open_model(name, temperature=0.0, settings=settings)


def test_a_file_that_is_no_gguf_model_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("text")
    Path("model.gguf").write_text("text")
    for name, message in (
        ("notes.txt", r"'notes.txt' is a file; expected a GGUF file \(NAME.gguf\), a folder"),
        ("model.gguf", "'model.gguf' is no GGUF file: it begins with b'text'"),
        ("there/mistyped.gguf", "'there/mistyped.gguf' cannot be read: No such file"),
    ):
        result = evaluated("--model", name, "--tasks", "worlds:x", "-o", "out")
        assert result.exit_code == 2
        with pytest.raises(InputError, match=message):
            open_model(name, temperature=0.0, settings={})
    # Servers of llama.cpp name their models so.
    assert str(open_model("openai/model.gguf", temperature=0.0, settings={})) == "refinesynth/openai/model.gguf"


def test_a_gguf_file_behind_a_link_is_named_as_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As in the hub's cache."""
    monkeypatch.chdir(tmp_path)
    Path("0a1b2c").write_bytes(b"GGUF")
    Path("small-q8.gguf").symlink_to("0a1b2c")
    Path("config.json").write_text("{}")

    def opened(name: str, **_: Any) -> str:
        return name

    def unpacked(_: str) -> str:
        return str(tmp_path)

    monkeypatch.setattr("refinesynth.evaluate.inspect_models.unpack_gguf", unpacked)
    monkeypatch.setattr("refinesynth.evaluate.inspect_models.get_model", opened)
    for name in ("small-q8.gguf", "./small-q8.gguf", str(tmp_path / "small-q8.gguf")):
        assert str(open_model(name, temperature=0.0, settings={})) == "hf/small-q8.gguf"


@pytest.mark.parametrize(("option", "message"), [("--python", "NAME=PATH"), ("--set", "SETTING=VALUE")])
def test_wrong_options_end_with_2(option: str, message: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.CRITICAL)
    result = evaluated("--model", "oracle", "--tasks", "worlds:x", option, "=3")
    assert (result.exit_code, message in result.stderr) == (2, True)
