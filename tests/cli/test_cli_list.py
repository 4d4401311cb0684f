"""`refinesynth list`, in process."""

from functools import partial
from pathlib import Path

import orjson
import pytest
from cli_records import a_trajectory, write_run
from command_line import cli
from run_records import CONFIG

list_runs = partial(cli, "list", env={"COLUMNS": "160"})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("second", "first"):
        CONFIG.save(write_run(tmp_path / name, [a_trajectory()]) / "config.json")
    write_run(tmp_path / "lines alone", [a_trajectory()])
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def test_each_run_has_a_line_in_the_order_of_their_names(runs: Path) -> None:
    result = list_runs(runs)
    assert result.exit_code == 0
    head, *rows = [line.split() for line in result.stdout.splitlines()]
    assert head == ["run", "state", "accepted", "cost", "play", "models"]
    assert [row[:5] for row in rows] == [[name, "stopped", "1", "of", str(CONFIG.n)] for name in ("first", "second")]


def test_programs_get_the_object_of_status_for_each(runs: Path) -> None:
    found = [orjson.loads(line) for line in list_runs(runs, "--json").stdout.splitlines()]
    assert [(Path(one["folder"]).name, one["accepted"]) for one in found] == [("first", 1), ("second", 1)]


def test_one_that_cannot_be_read_is_named_beside_the_others(runs: Path) -> None:
    (runs / "first" / "config.json").write_text("{")
    result = list_runs(runs)
    assert result.exit_code == 1
    assert "first/config.json' is not JSON" in result.stderr
    assert "second" in result.stdout


def test_a_model_beside_runs_is_none(runs: Path) -> None:
    (runs / "first-model").mkdir()
    (runs / "first-model" / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    result = list_runs(runs)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "model" not in result.stdout.partition("\n")[2]


def test_no_folder_and_an_empty_one_are_said(tmp_path: Path) -> None:
    result = list_runs(tmp_path / "none")
    assert (result.exit_code, "there is no folder" in result.stderr) == (2, True)
    result = list_runs(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"there are no runs in {str(tmp_path)!r}\n")
