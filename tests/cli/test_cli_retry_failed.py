"""`refinesynth run --retry-failed`."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from refinesynth.cli import app
from refinesynth.run import RunFolder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["run", "--play", "narrated", *map(str, arguments)])


def test_what_failed_is_played_again_and_said(tmp_path: Path) -> None:
    asked = ("-n", 5, "--backend", "rehearsal:no_success=1.0", "--patience", 3, "-o", tmp_path / "run")
    assert run(*asked).exit_code == 1
    again = run(*asked, "--retry-failed")
    assert again.exit_code == 1
    assert (
        "goes on with the run that is there: 0 of 5 accepted so far, and first plays those again that gave nothing"
        in (" ".join(again.stderr.split()))
    )
    (one,) = RunFolder.open(tmp_path / "run").second_tries()
    assert one.episodes[:3] == (0, 1, 2)
    assert '"tried_again"' in (tmp_path / "run" / "events.jsonl").read_text(encoding="utf-8")


def test_a_run_that_has_all_it_wants_plays_nothing_again(tmp_path: Path) -> None:
    assert run("-n", 2, "-o", tmp_path / "run").exit_code == 0
    again = run("-n", 2, "-o", tmp_path / "run", "--retry-failed")
    assert (again.exit_code, "nothing was left to do" in again.stderr) == (0, True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("-n", 3), "nothing failed in"),
        (("-n", 3, "--fresh"), "--fresh"),
        (("-n", 3, "--dry-run"), "--dry-run"),
    ],
)
def test_wrong_usage_is_2_and_says_what_to_do(tmp_path: Path, options: tuple[object, ...], says: str) -> None:
    run("-n", 2, "-o", tmp_path / "run")
    before = {path: path.read_bytes() for path in sorted((tmp_path / "run").iterdir())}
    result = run(*options, "-o", tmp_path / "run", "--retry-failed")
    assert result.exit_code == 2, result.output
    assert says in " ".join(result.stderr.split())
    assert {path: path.read_bytes() for path in sorted((tmp_path / "run").iterdir())} == before


@pytest.mark.parametrize("output", [("-o", "none"), ()])
def test_where_no_run_is_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("-n", 2, *output, "--retry-failed")
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert ("is not the folder of a run" if output else "-o") in " ".join(result.stderr.split())
