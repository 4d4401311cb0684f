"""The command line with runs in an object store: written there, read from there, and an exit code that says what is not
there."""

from collections.abc import Callable
from pathlib import Path

import pytest
from run_records import contents
from s3_server import store_down
from typer.testing import CliRunner, Result

from refinesynth.cli import app
from refinesynth.cli.exit_codes import ExitCode
from refinesynth.stores import run_output, work_folder

Machine = Callable[[str], Path]


def refinesynth(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.mark.long
def test_a_run_is_written_to_a_store_and_read_by_its_url(tmp_path: Path, bucket: str, machine: Machine) -> None:
    done = refinesynth("run", "-n", 2, "-o", bucket)
    assert (done.exit_code, f"all of it is in {bucket}" in done.stderr) == (ExitCode.OK, True)
    machine("two")
    export = ["export", "--format", "openai", "-o", tmp_path / "openai.jsonl"]
    for command in (["status"], ["verify"], ["show", "--random"], export):
        name, *options = command
        read = refinesynth(name, bucket, *options)
        assert read.exit_code == ExitCode.OK, read.output
    assert (tmp_path / "openai.jsonl").read_bytes().count(b"\n") == 2
    assert refinesynth("fetch", bucket, "-o", tmp_path / "here").exit_code == ExitCode.OK
    assert refinesynth("status", tmp_path / "here").exit_code == ExitCode.OK
    again = refinesynth("fetch", bucket, "-o", tmp_path / "here")
    assert (again.exit_code, "is there already" in again.stderr) == (ExitCode.WRONG_INPUT, True)
    more = refinesynth("run", "-n", 3, "-o", bucket)
    assert more.exit_code == ExitCode.OK
    assert refinesynth("merge", bucket, "-o", tmp_path / "merged").exit_code == ExitCode.OK
    assert contents(tmp_path / "merged")["trajectories"] == contents(work_folder(bucket))["trajectories"]


def test_what_is_not_there_at_the_end_is_said_with_an_exit_code_of_its_own(
    bucket: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_output, "FINISH_RETRY_S", 0.1)
    with monkeypatch.context() as away:
        store_down(away, lambda number: number > 1)
        done = refinesynth("run", "-n", 2, "-o", bucket)
    assert done.exit_code == ExitCode.STORAGE
    assert "what is not in" in " ".join(done.stderr.split())
    assert refinesynth("run", "-n", 2, "-o", bucket).exit_code == ExitCode.OK
