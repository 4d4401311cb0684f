"""`refinesynth verify`, in process."""

from functools import partial
from pathlib import Path

import orjson
import pytest
from cli_records import a_refused_draft, a_refused_script, a_trajectory, an_unreadable_answer, write_journal, write_run
from command_line import cli
from run_records import CONFIG
from samples import REFINED, player
from typer.testing import Result

verify = partial(cli, "verify")


def rows(result: Result) -> dict[str, list[str]]:
    """The table, label to numbers."""
    found: dict[str, list[str]] = {}
    for line in result.stdout.splitlines():
        label, *numbers = [part for part in line.strip().split("  ") if part]
        found[label.strip()] = [number.strip() for number in numbers]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(
        tmp_path / "run", [a_trajectory()], [a_refused_draft(), a_refused_script(), an_unreadable_answer()]
    )


def test_what_still_holds_exits_with_0(folder: Path) -> None:
    result = verify(folder)
    assert result.exit_code == 0
    table = rows(result)
    assert table["trajectories kept"] == ["1", "1"]
    assert table["scripts refused"] == ["2", "2"]
    assert table["drafts refused"] == ["1", "1"]
    assert table["✗ by TaskSucceed"] == ["1"]
    assert "checked by first_failure(ReadableText()" in result.stdout


def test_a_kept_one_that_fails_exits_with_1_and_is_named(folder: Path) -> None:
    result = verify(folder, "--rules", "agentrefine(min_refinements=3)")
    assert result.exit_code == 1
    assert "000000-aaaaaaaa  trajectory: accepted then, refused now: EnoughMistakes (too_few_errors)" in result.stdout
    assert rows(result)["trajectories kept"] == ["1", "0"]


def test_programs_get_one_object(folder: Path) -> None:
    held = orjson.loads(verify(folder, "--json").stdout)
    assert held["seen"] == {"trajectory": 1, "script": 2, "draft": 1}
    assert held["by_rule"]["TaskSucceed"] == 1
    assert held["changes"] == []
    result = verify(folder, "--json", "--rules", "agentrefine(min_refinements=3)")
    assert result.exit_code == 1
    (change,) = orjson.loads(result.stdout)["changes"]
    assert (change["id"], change["accepted_then"], change["accepted_now"]) == ("000000-aaaaaaaa", True, False)
    assert [found["code"] for found in change["violations"]] == ["too_few_errors"]


def test_a_refused_one_that_passes_now_is_named_and_no_failure(tmp_path: Path) -> None:
    refused = a_refused_draft(turns=REFINED)
    result = verify(write_run(tmp_path / "run", refused=[refused]))
    assert result.exit_code == 0
    assert "000001-bbbbbbbb  draft: refused then, accepted now" in result.stdout
    assert rows(result)["drafts refused"] == ["1", "0"]


def test_what_the_judge_refused_stays_refused(tmp_path: Path) -> None:
    result = verify(write_run(tmp_path / "run", refused=[a_refused_draft(rule="Judge", turns=REFINED)]))
    assert rows(result)["drafts refused"] == ["1", "1"]
    assert rows(result)["✗ by Judge"] == ["1"]


def test_a_part_of_a_draft_is_no_trajectory(tmp_path: Path) -> None:
    refused = a_refused_draft()
    assert refused.draft is not None
    part = refused.model_copy(update={"draft": refused.draft.prefix(4)})
    broken = refused.model_copy(update={"draft": refused.draft.model_copy(update={"text_error": "no JSON"})})
    result = verify(write_run(tmp_path / "run", refused=[part, broken]), "--rules", "TurnLimit(most=50)")
    assert rows(result)["drafts refused"] == ["2", "2"]


def test_warnings_are_counted_apart(folder: Path) -> None:
    result = verify(folder, "--rules", "warn(TurnLimit(most=2))")
    assert result.exit_code == 0
    assert rows(result)["! by TurnLimit"] == ["2"]


def test_verify_show_and_export_read_the_same_lines_of_one_folder(folder: Path, tmp_path: Path) -> None:
    CONFIG.save(folder / "config.json")
    export = ("export", str(folder), "--format", "trl", "-o", str(tmp_path / "out.jsonl"), "--overwrite")
    commands = (("verify", str(folder)), ("show", str(folder), "--list"), export)
    whole = (folder / "trajectories.jsonl").read_bytes()

    def exit_codes() -> set[int]:
        return {cli(*command).exit_code for command in commands}

    # A copy without the journal whose last line is half-written, and a line lost that the journal counts.
    (folder / "trajectories.jsonl").write_bytes(whole + whole[:40])
    assert exit_codes() == {0}
    (folder / "trajectories.jsonl").write_bytes(whole * 2)
    write_journal(folder)
    assert exit_codes() == {0}
    (folder / "trajectories.jsonl").write_bytes(whole)
    assert exit_codes() == {2}
    assert "the run's journal counts" in verify(folder).stderr


def test_a_last_line_without_a_newline_counts_in_a_file_that_no_run_wrote(folder: Path) -> None:
    copied = folder / "copied.jsonl"
    copied.write_bytes((folder / "trajectories.jsonl").read_bytes().rstrip(b"\n"))
    assert rows(verify(copied))["trajectories kept"] == ["1", "1"]


def test_what_a_killed_run_was_writing_does_not_count(folder: Path) -> None:
    write_journal(folder)
    with (folder / "trajectories.jsonl").open("ab") as file:
        file.write(a_trajectory("whole").to_json() + b"\n" + a_trajectory("torn").to_json()[:100])
    result = verify(folder)
    assert result.exit_code == 0, result.output
    assert rows(result)["trajectories kept"] == ["1", "1"]
    copied = folder / "copied.jsonl"
    copied.write_bytes((folder / "trajectories.jsonl").read_bytes())
    assert verify(copied).exit_code == 1


def test_the_rules_of_the_run_are_the_default(folder: Path) -> None:
    CONFIG.model_copy(update={"rules": "TurnLimit(most=3)"}).save(folder / "config.json")
    assert verify(folder).exit_code == 1
    assert verify(folder / "trajectories.jsonl").exit_code == 1
    assert verify(folder, "--rules", "TurnLimit(most=30)").exit_code == 0
    CONFIG.model_copy(update={"rules": "SomebodysRule()"}).save(folder / "config.json")
    result = verify(folder)
    assert result.exit_code == 2
    assert "config.json" in result.stderr
    assert "'SomebodysRule'" in result.stderr.replace('"', "'")


def test_a_malicious_id_does_not_reach_the_terminal(tmp_path: Path) -> None:
    trajectory = a_trajectory("\x1b[2Jx\nfalse line", turns=(player("x"),))
    result = verify(write_run(tmp_path / "run", [trajectory]))
    assert "\\u001b[2Jx\\u000afalse line  trajectory: accepted then" in result.stdout
