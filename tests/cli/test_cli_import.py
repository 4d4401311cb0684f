"""`refinesynth import`, in process. What is read from records is tested with refinesynth.imports."""

from pathlib import Path

import pytest
from cli_records import a_trajectory
from command_line import cli

from refinesynth.export import write_export


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    write_export([a_trajectory()], tmp_path / "out.jsonl", "agentinstruct")
    return tmp_path / "out.jsonl"


def test_all_commands_work_on_what_was_imported(exported: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = cli("import", exported, "--format", "agentinstruct", "-o", run)
    assert (result.exit_code, result.output) == (0, f"{run}: 1 trajectory of 1 record, 2 mistakes\n")
    shown = cli("show", run)
    assert "made by    imported play, seed 0, refinesynth" in shown.stdout
    assert "✓ refinement of turn" in shown.stdout
    assert "state      complete" in cli("status", run).stdout
    assert cli("verify", run).exit_code == 0
    assert cli("verify", run, "--rules", "strict()").exit_code == 1
    again = tmp_path / "again.jsonl"
    assert cli("export", run, "--format", "agentinstruct", "-o", again).exit_code == 0
    assert again.read_bytes() == exported.read_bytes()


def test_what_is_left_out_is_named_and_makes_the_exit_code_1(exported: Path, tmp_path: Path) -> None:
    exported.write_bytes(exported.read_bytes() + b"no JSON\n")
    result = cli("import", exported, "--format", "agentinstruct", "-o", tmp_path / "run")
    assert result.exit_code == 1
    assert "1 trajectory of 2 records" in result.stdout
    assert f"1 record left out: {exported}:2: this is no JSON" in result.stderr
    refused = cli("show", tmp_path / "run", "--refused")
    assert f"000001  script 1: {exported}:2: this is no JSON" in refused.stdout
    assert '"record":' in cli("show", tmp_path / "run", "000001", "--refused", "--json").stdout
    assert cli("verify", tmp_path / "run").exit_code == 0


def test_without_a_folder_it_is_the_next_free_one(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(exported.parent)
    assert cli("import", "out.jsonl", "--format", "agentinstruct").stdout.startswith("runs/001: 1 trajectory")


def test_wrong_input_is_said_before_anything_is_written(exported: Path, tmp_path: Path) -> None:
    for arguments in (
        (exported, "--format", "paper"),
        (exported, "--format", "x"),
        (tmp_path / "no", "--format", "atif"),
    ):
        result = cli("import", *arguments, "-o", tmp_path / "run")
        assert result.exit_code == 2
        assert result.stderr.startswith("refinesynth: ")
    assert not (tmp_path / "run").exists()
