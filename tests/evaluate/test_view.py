"""`refinesynth view`: what is refused, and how the viewer is started."""

import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest
from command_line import cli


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


def test_the_viewer_is_started_on_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.eval").touch()
    started = Mock(return_value=Mock(wait=Mock(return_value=3)))
    monkeypatch.setattr(subprocess, "Popen", started)
    result = cli("view", tmp_path, "--port", "9")
    assert (result.exit_code, "http://127.0.0.1:9 shows" in result.stderr) == (3, True)
    command = ["view", "start", "--log-dir", str(tmp_path), "--host", "127.0.0.1", "--port", "9"]
    assert started.call_args.args[0][3:] == command
