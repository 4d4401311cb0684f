"""`refinesynth view`: what is refused, and a run's page."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import cli

from refinesynth.cli import report as view_command
from refinesynth.errors import InputError


def test_wrong_input_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for arguments, said in (
        (["nowhere"], "holds no logs"),
        (["empty"], "refinesynth report RUN"),
        (["file"], "holds no logs"),
    ):
        result = cli("view", *arguments)
        assert (result.exit_code, said in result.stderr.replace("\n", " ")) == (2, True), result.stderr


def test_a_port_that_is_taken_is_refused_where_it_was_asked_for_and_else_avoided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as listener:
        listener.bind((view_command.HOST, 0))
        listener.listen()
        taken = listener.getsockname()[1]
        with pytest.raises(InputError, match="cannot be used"):
            view_command.free_port(taken)
        monkeypatch.setattr(view_command, "PORT", taken)
        assert view_command.free_port(None) != taken


@pytest.mark.process
def test_the_address_is_printed_once_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.eval").touch()
    late = "import socket, sys, time; time.sleep(0.5); s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); s.accept(); s.accept()"
    begin: Any = subprocess.Popen
    answered = list[int]()

    def viewer(command: list[str], **_: object) -> subprocess.Popen[bytes]:
        return begin([sys.executable, "-c", late, command[-1]])

    def note(text: str) -> None:
        port = int(text.split(maxsplit=1)[0].rpartition(":")[2])
        with socket.socket() as client:
            answered.append(client.connect_ex((view_command.HOST, port)))

    monkeypatch.setattr(subprocess, "Popen", viewer)
    monkeypatch.setattr(view_command, "note", note)
    assert cli("view", tmp_path).exit_code == 0
    assert answered == [0]
