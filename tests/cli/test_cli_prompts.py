"""`refinesynth prompts show`: what a model would be sent, and nothing is sent."""

from functools import partial
from pathlib import Path

import orjson
import pytest
from command_line import cli

from refinesynth.client.token_usage import estimated_tokens
from refinesynth.prompts import SHOWN, Prompts
from refinesynth.prompts.data_blocks import read_blocks

show = partial(cli, "prompts", "show")


@pytest.mark.parametrize(
    ("arguments", "template"),
    [
        ("script_writer", "script_writer"),
        ("dungeon_master", "dungeon_master"),
        ("judge", "judge"),
        ("narrator --play narrated", "narrator"),
        ("script_writer --play grounded", "rulebook_writer"),
        ("dungeon_master --play grounded", "grounded_master"),
    ],
)
def test_a_role_is_shown_its_template_filled_and_the_tokens_beside_it(arguments: str, template: str) -> None:
    result = show(*arguments.split())
    assert result.exit_code == 0, result.stderr
    first = Prompts().fill(template, "instructions", **DATA.get(template, {})).split("\n")[0]
    assert result.stdout.startswith(f"--- system\n{first}\n")
    assert "\n--- user\n" in result.stdout
    assert "\n--- response_format\n{" in result.stdout
    assert "tokens (system" in result.stderr
    assert "tokens" not in result.stdout.splitlines()[-1]


DATA: dict[str, dict[str, object]] = {
    "script_writer": {"examples": []},
    "narrator": {"minimum": 2, "example": {"script": "", "answer": ""}},
    "rulebook_writer": {"examples": []},
}


def test_the_player_is_sent_the_task_and_later_its_history() -> None:
    first, third = show("player"), show("player", "--request", "3")
    assert first.stdout.count("--- ") == 1
    assert "Available actions:" in first.stdout
    assert third.stdout.startswith(first.stdout.rstrip())
    assert third.stdout.count("--- assistant") == 2


@pytest.mark.parametrize(
    ("backend", "holds"), [("gpt-4o", "response_format"), ("claude", "tools"), ("gemini", "system")]
)
def test_each_backend_is_asked_in_its_own_form_after_the_same_words(backend: str, holds: str) -> None:
    result = show("script_writer", "--json", "--persona", "A baker.", "--backend", backend)
    told = orjson.loads(result.stdout)
    system, user = (message["content"] for message in told["messages"])
    assert system.startswith("You design small text worlds")
    assert system.count("\n<example>\n") == SHOWN
    assert read_blocks(user) == {"persona": "A baker."}
    described = system if holds == "system" else orjson.dumps(told[holds]).decode()
    assert "completion_conditions" in described
    assert ("tools" in told) is (holds == "tools")
    assert told["tokens"] >= estimated_tokens([system]) + estimated_tokens([user])


def test_own_templates_are_shown(tmp_path: Path) -> None:
    (tmp_path / "judge.md.j2").write_text(
        "{% block instructions %}Be kind.{% endblock %}{% block request %}{{ script.goal | block('goal') }}{% endblock %}"
    )
    assert show("judge", "--prompts", str(tmp_path)).stdout.startswith("--- system\nBe kind.\n\n--- user\n<goal>\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("narrator", "live play asks no 'narrator'; the roles that it asks are script_writer, dungeon_master, player"),
        ("player --play narrated", "narrated play asks no 'player'"),
        ("player --request 999", "in this episode, player is asked"),
        ("script_writer --prompts nowhere", "is not a folder"),
    ],
)
def test_what_cannot_be_shown_is_said_and_nothing_printed(arguments: str, message: str) -> None:
    result = show(*arguments.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
