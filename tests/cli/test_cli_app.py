"""Exit codes and messages, whatever the command."""

import errno
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from command_line import cli
from typer.testing import Result

from refinesynth.cli.app import _load_command  # pyright: ignore[reportPrivateUsage]
from refinesynth.cli.exit_codes import describe
from refinesynth.errors import InputError, StorageError


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Result:
    """A command that ends so."""

    def fail() -> None:
        raise error

    monkeypatch.setattr("refinesynth.rules.available", fail)
    return cli("rules")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["run", "--help"], ["show", "-h"]])
def test_help_is_no_error(arguments: list[str]) -> None:
    result = cli(*arguments)
    assert result.exit_code == 0
    assert "Usage: refinesynth" in result.stdout


def test_without_a_command_there_is_help_and_no_success() -> None:
    result = cli()
    assert result.exit_code == 2
    assert "Make data" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shwo"], "Did you mean 'show'?"),
        (["show"], "Missing argument"),
        (["show", "--rondom"], "No such option: --rondom"),
        (["run"], "give -n NUMBER"),
        (["run", "-n", "many"], "Invalid value for '-n'"),
        (["train", "--loss-on", "mistakes"], "Invalid value for '--loss-on': 'mistakes' is not one of"),
        (["export", "x"], "Missing option '--format'"),
        (["serve", "--port", "99999"], "--port"),
    ],
)
def test_wrong_usage_is_one_message_and_2(arguments: list[str], message: str) -> None:
    result = cli(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("refinesynth: ")
    assert message in result.stderr
    assert "--help`" in result.stderr


def test_escape_sequences_in_wrong_input_are_not_obeyed() -> None:
    for arguments in (
        ["\x1b[2J"],
        ["--\x1b[2J"],
        ["show", "\x1b]0;title\x07"],
        ["run", "-n", "\x9b"],
        ["rules", "\x1bx()"],
    ):
        result = cli(*arguments)
        assert result.exit_code == 2
        assert not set(result.output) & set("\x1b\x07\x9b")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("write it otherwise"), 2, "refinesynth: write it otherwise\n"),
        (PermissionError(13, "Permission denied", "a\x1bb"), 3, "refinesynth: a\\u001bb: Permission denied (EACCES)\n"),
        (OSError(28, "No space left on device"), 3, "refinesynth: No space left on device (ENOSPC)\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_errors_become_messages_and_exit_codes(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    result = failing(monkeypatch, error)
    assert (result.exit_code, result.stderr) == (code, message)


def test_a_full_disk_is_3_and_notes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    error = StorageError("cannot write 'x'")
    error.add_note("The run stopped.")
    result = failing(monkeypatch, error)
    assert result.exit_code == 3
    assert result.stderr == "refinesynth: cannot write 'x'\nThe run stopped.\n"


@pytest.mark.parametrize(
    ("error", "words"), [(ZeroDivisionError("by \x1b"), "ZeroDivisionError: by \\u001b"), (KeyError(), "KeyError")]
)
def test_a_fault_of_ours_is_70_and_says_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    result = failing(monkeypatch, error)
    assert result.exit_code == 70
    assert result.stderr.startswith(f"refinesynth: this should not have happened: {words}\n")
    assert "--debug" in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback_and_changes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cli("rules", "nosuch()")
    asked = cli("--debug", "rules", "nosuch()")
    assert asked.stderr.startswith("Traceback (most recent call last):\n")
    assert asked.stderr.endswith(plain.stderr)
    assert asked.exit_code == plain.exit_code == 2
    monkeypatch.setenv("REFINESYNTH_DEBUG", "1")
    assert "Traceback" in cli("rules", "nosuch()").stderr
    monkeypatch.setitem(sys.modules, "refinesynth.cli.rules", None)  # so its import fails
    _load_command.cache_clear()
    assert "Traceback" in cli("--debug", "rules").stderr
    _load_command.cache_clear()


def test_rules_lists_names_and_spells_out_chains() -> None:
    listing = cli("rules")
    assert listing.exit_code == 0
    assert "EnoughMistakes" in listing.stdout
    assert "warn(a)" in listing.stdout
    chain = cli("rules", "strict() & TurnLimit(most=8)")
    assert chain.stdout.startswith("first_failure(ReadableText()")
    assert chain.stdout.rstrip().endswith("TurnLimit(most=8)")


def test_backends_says_which_keys_are_set_and_never_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-4711")
    result = cli("backends", env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "OPENAI_API_KEY ✓ set" in result.stdout
    assert "DEEPSEEK_API_KEY ✗ not set" in result.stdout
    assert "canary" not in result.output


def test_a_full_disk_is_named_where_the_system_does_not_name_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")

    def room(free: int) -> None:
        def disk_usage(_: object) -> object:
            return usage._replace(free=free)

        monkeypatch.setattr(shutil, "disk_usage", disk_usage)

    room(0)
    text, code = describe(OSError(errno.ENOSPC, "No space left on device"), debug_hint="")
    assert text == f"{Path.cwd()}, {tempfile.gettempdir()}: No space left on device (ENOSPC)"
    assert code == 3
    room(2**40)
    assert describe(OSError(errno.ENOSPC, "No space left"), debug_hint="")[0] == "No space left (ENOSPC)"
