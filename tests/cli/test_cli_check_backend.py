"""`refinesynth check-backend` against servers that lack something."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from command_line import cli
from server_manners import SERVERS, Manner, Mannered
from typer.testing import Result

from refinesynth.client.http.reply import HttpError
from refinesynth.serve import create_app
from refinesynth.serve import running as serving

pytestmark = pytest.mark.process


Change = Callable[[dict[str, Any], dict[str, Any]], object]
"""Changes an answer, given the request."""


def check(*more: str, manner: Manner = lambda _: None, change: Change = lambda _answer, _request: None) -> Result:
    """The check of a server with this manner, whose answers are changed."""

    class Changed(Mannered):
        async def __call__(self, **request: Any) -> object:
            answer: Any = await super().__call__(**request)
            change(answer, request)
            return answer

    with serving(create_app(Changed(manner))) as address:
        place = ("--set", f"base_url={address}/v1", "--set", "retries=1")
        return cli("check-backend", "hosted_vllm/any", *place, *more)


@pytest.mark.parametrize(
    ("server", "mode", "said"),
    [
        (
            "llama.cpp",
            "prompted",
            ["script writer, native: hosted_vllm/any failed with HTTP 500", "leave --player-form"],
        ),
        ("vLLM", "native", ["player, text: works", "player, calls: hosted_vllm/any rejects", "leave --player-form"]),
        ("litellm proxy", "tool", ["dungeon master, tool: works", "seed: refused", "give: --set seed=false"]),
        ("Ollama", "native", ["seed: taken", "give: no --set"]),
    ],
)
def test_it_says_what_works_and_what_to_set(server: str, mode: str, said: list[str]) -> None:
    result = check(manner=SERVERS[server])
    assert result.exit_code == 0, result.output
    assert f"structured answers: output_mode={mode}" in result.stdout
    assert "accepted" in result.stdout.splitlines()[-1]
    assert result.stdout.splitlines()[-1].startswith("an episode: ")
    for line in said:
        assert line in result.stdout


def test_an_answer_that_is_not_in_form_decides_the_mode() -> None:
    def chat(answer: dict[str, Any], request: dict[str, Any]) -> None:
        """Thinks aloud, reports its cache, and takes a schema without heeding it."""
        message = answer["choices"][0]["message"]
        if "response_format" in request:
            message["content"] = "Gladly! What shall it be about?"
        message["reasoning_content"] = "Hm."
        answer["usage"]["prompt_tokens_details"] = {"cached_tokens": 7}

    result = check(change=chat)
    assert result.exit_code == 0, result.output
    assert "script writer, native: answers, but not in this form" in result.stdout
    assert "give: --set output_mode=tool" in result.stdout
    assert "cached tokens: 56 of" in result.stdout
    assert "reasoning: yes" in result.stdout


def test_it_names_the_parsers_that_a_server_lacks() -> None:
    def leave_unparsed(answer: dict[str, Any], _request: dict[str, Any]) -> None:
        message = answer["choices"][0]["message"]
        message["content"] = f"So be it: [1]\n</seed:think>\n{message['content'] or ''}"
        for call in message.get("tool_calls") or ():
            call["function"]["name"] = f"functions.{call['function']['name']}"

    result = check(change=leave_unparsed)
    assert result.exit_code == 0, result.output
    assert "in the text of the answers, up to </seed:think>" in result.stdout
    assert "--reasoning-parser" in result.stdout
    assert "calls: the name 'functions." in result.stdout


def test_a_backend_that_answers_one_role_alone_is_no_success() -> None:
    def no_rulings(request: dict[str, Any]) -> None:
        if "You are the environment" in str(request["messages"]):
            raise HttpError(400, "too difficult")

    result = check(manner=no_rulings)
    assert result.exit_code == 1
    assert "dungeon master, prompted: hosted_vllm/any rejects the request" in result.stdout
    assert "no run can be played with it" in result.stdout
    assert "an episode" not in result.stdout


def test_what_bounds_the_answers_keeps_no_role_from_being_asked() -> None:
    result = check("--set", "max_tokens=10")
    asked = [line.partition(",")[0] for line in result.stdout.splitlines()]
    assert {"script writer", "dungeon master", "player"} <= set(asked)


def test_a_list_is_no_answer_in_form() -> None:
    message = {"role": "assistant", "content": '["a lamp"]'}
    result = check(change=lambda answer, _: answer["choices"][0].update(message=message))
    assert result.exit_code == 1
    assert "script writer, prompted: answers, but not in this form: it is a list" in result.stdout
    assert "no run can be played with it" in result.stdout


def test_it_says_whether_usage_is_reported() -> None:
    assert "usage: reported" in check().stdout
    silent = check(change=lambda answer, _: answer.update(usage=None))
    assert "usage: not reported with every answer" in silent.stdout


@pytest.mark.parametrize(("status", "said"), [(401, "does not accept the key"), (404, "has no model")])
def test_a_wrong_key_or_model_is_said_at_once(status: int, said: str) -> None:
    def no(_request: dict[str, Any]) -> None:
        raise HttpError(status, "no")

    result = check(manner=no)
    assert result.exit_code == 1
    assert said in result.stderr


def test_settings_are_not_by_role_here() -> None:
    result = cli("check-backend", "rehearsal", "--set", "player.temperature=1")
    assert result.exit_code == 2
    assert "there are no roles here" in result.stderr


def test_each_request_is_announced_with_its_bounds_before_it_ends() -> None:
    result = check("--roles", "player", "--set", "timeout=30")
    assert "asks player, text: about 5" in result.stderr
    assert "the answer may have 512, and take 30 s" in result.stderr
    assert result.stdout.startswith("player, text: works (0:0")


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        (("--roles", "player"), ["player, text", "player, calls"]),
        (("--roles", "dungeon-master, Player"), ["player, text", "dungeon master, *", "player, calls"]),
        (("--roles", "narrator", "--play", "narrated", "--forms", "text"), ["narrator, *"]),
    ],
)
def test_it_can_be_limited_to_roles_and_then_plays_no_episode(more: tuple[str, ...], asked: list[str]) -> None:
    result = check(*more)
    assert result.exit_code == 0, result.output
    works = [line.partition(":")[0] for line in result.stdout.splitlines() if ": works" in line]
    forms = ("native", "tool", "prompted")
    assert works == [one.replace("*", form) for one in asked for form in (forms if "*" in one else ("",))]
    assert "an episode" not in result.stdout
    assert ("--forms is gone" in result.stderr) is ("--forms" in more)


def test_an_unknown_role_is_refused() -> None:
    result = cli("check-backend", "rehearsal", "--roles", "narrator")
    assert result.exit_code == 2
    assert "'narrator' is no role of this check; give one or more of script_writer," in result.stderr


def test_a_script_that_the_rules_refuse_is_said_and_the_mode_goes_by_it() -> None:
    def shorten(answer: dict[str, Any], request: dict[str, Any]) -> None:
        """Gives scripts of one action where it is held to a schema."""
        message = answer["choices"][0]["message"]
        if request.get("response_format") and '"actions"' in (message["content"] or ""):
            script = json.loads(message["content"])
            message["content"] = json.dumps({**script, "actions": script["actions"][:1]})

    result = check(change=shorten)
    assert result.exit_code == 0, result.output
    assert "script writer, native: works, but the rules refuse its script: " in result.stdout
    assert "scripts: the rules accept 2 of 3\n" in result.stdout
    assert "give: --set output_mode=tool" in result.stdout


def test_after_an_interruption_the_findings_so_far_are_said() -> None:
    seen = 0

    def interrupted(_request: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1
        if seen == 3:
            os.kill(os.getpid(), signal.SIGINT)

    result = check(manner=interrupted)
    assert result.exit_code == 130, result.output
    assert result.stdout.startswith("script writer, native: works")
    assert "key and model: accepted" in result.stdout
    assert "interrupted after " in result.stderr
    assert "an episode" not in result.stdout


def test_a_slow_answer_is_given_up_at_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Mannered.__call__

    async def late(self: Mannered, **request: Any) -> object:
        await anyio.sleep(3)
        return await whole(self, **request)

    monkeypatch.setattr(Mannered, "__call__", late)
    result = check("--set", "timeout=0.5", "--roles", "player")
    assert "within 0.5 s" in result.output
    assert result.exit_code == 1
