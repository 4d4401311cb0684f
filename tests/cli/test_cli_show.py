"""`refinesynth show`, in process."""

from functools import partial
from pathlib import Path

import pytest
from cli_records import a_refused_draft, a_refused_script, a_trajectory, an_unreadable_answer, write_run
from command_line import cli, unwrapped
from hypothesis import given, settings
from samples import REFINED, dm, player
from test_cli_printable import is_inert, nasty

from refinesynth.outcome import Refused
from refinesynth.rules import Severity
from refinesynth.trajectory import Persona, Trajectory, read_turn


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trajectories = [a_trajectory(), a_trajectory("000003-abcd1234"), a_trajectory("000012-abcd5678")]
    refused = [a_refused_script(), a_refused_draft(), an_unreadable_answer()]
    return write_run(tmp_path / "first", trajectories, refused)


show = partial(cli, "show")


def test_the_first_trajectory_is_laid_out_with_signs(folder: Path) -> None:
    result = show(folder)
    assert result.exit_code == 0
    text = unwrapped(result.stdout)
    assert "000000-aaaaaaaa accepted · 10 turns · 2 mistakes · 2 answered" in text
    assert "take {item} from {place}: Pick something up. {place} = shelf, drawer put" in text
    assert "values {item} = mug, key 1 player" in text
    assert "> take mug from shelf ✗ mistake (place): kept as context, never trained on 2 dm You are not" in text
    assert "> go to shelf ✓ refinement of turn 1" in text
    assert "> grab mug ✗ mistake (parameter)" in text
    assert "made by live play, rehearsal (script writer, player); gpt-4o (dungeon master), seed 7" in text
    assert "took 1 script, 2 drafts, 11 requests, 12,000 + 900 tokens, 0.0123 USD" in text
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("wanted", ["000003-abcd1234", "000003", "3", "000003-ab"])
def test_an_id_its_beginning_or_the_number_finds_it(folder: Path, wanted: str) -> None:
    assert show(folder, wanted).stdout.startswith("000003-abcd1234")


def test_an_id_that_is_another_ones_beginning_is_found(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [a_trajectory("abc-long"), a_trajectory("abc"), a_trajectory("7")])
    assert show(run, "abc").stdout.startswith("abc  ")
    assert show(run, "7").stdout.startswith("7  ")


def test_an_ambiguous_id_names_the_candidates(tmp_path: Path) -> None:
    run = write_run(tmp_path / "many", [a_trajectory(f"x{number}") for number in range(9)])
    result = show(run, "x")
    assert result.exit_code == 2
    assert "'x' is the beginning of 9 ids: x0, x1, x2, x3, x4 and 4 more" in result.stderr
    for wrong, said in (
        (["nobody"], "'nobody'"),
        (["--random", "--list"], "give one of"),
        (["3", "--random"], "give one"),
    ):
        result = show(run, *wrong)
        assert (result.exit_code, said in result.stderr) == (2, True)


@pytest.mark.long
def test_a_random_one_is_one_of_them(folder: Path) -> None:
    seen = {show(folder, "--random").stdout[:15] for _ in range(40)}
    assert seen == {"000000-aaaaaaaa", "000003-abcd1234", "000012-abcd5678"}


def test_the_list_has_one_line_each(folder: Path) -> None:
    result = show(folder, "--list")
    assert result.stdout.splitlines()[1] == "000003-abcd1234  10 turns, 2 mistakes: Put the mug on the table."
    assert len(result.stdout.splitlines()) == 3


def test_the_refused_are_listed_with_their_rules(folder: Path) -> None:
    assert show(folder, "--refused").stdout.splitlines() == [
        "000001-bbbbbbbb  script 2: ActionCount (no_success)",
        "000001-bbbbbbbb  draft 1, 4 turns: TaskSucceed (no_success)",
        "000002-cccccccc  script 1: the answer holds no JSON",
    ]


def test_all_that_was_refused_of_an_episode_is_laid_out(folder: Path) -> None:
    text = unwrapped(show(folder, "1", "--refused").stdout)
    assert "000001-bbbbbbbb refused · script, attempt 2" in text
    assert "000001-bbbbbbbb refused · draft, attempt 1" in text
    turn_four = "4 dm You are at the shelf. There is a mug. ✗ TaskSucceed (no_success): Say Task Succeed at the end."
    assert turn_four in text


def test_malformed_turns_text_errors_and_warnings_are_shown(tmp_path: Path) -> None:
    refused = a_refused_draft()
    assert refused.draft is not None
    warning = refused.violations[0].model_copy(update={"severity": Severity.WARN, "turn": 99})
    draft = refused.draft.model_copy(
        update={"turns": (*REFINED[:1], read_turn({"role": "Wizard"})), "text_error": "it breaks off"}
    )
    run = write_run(tmp_path / "run", refused=[refused.model_copy(update={"draft": draft, "violations": (warning,)})])
    text = unwrapped(show(run, "--refused", "--random").stdout)
    assert "2 ? ✗ malformed turn: a turn is an object" in text
    assert '{"role":"Wizard"}' in text
    assert "! TaskSucceed (no_success) warns: Say Task Succeed" in text
    assert "the text after these turns could not be read: it breaks off" in text


def test_json_is_the_record(folder: Path) -> None:
    assert Trajectory.from_json(show(folder, "--json").stdout) == a_trajectory()


def test_nothing_to_show_is_said(tmp_path: Path) -> None:
    result = show(write_run(tmp_path / "run"))
    assert result.exit_code == 2
    assert "there is nothing in" in result.stderr
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.json").touch()
    assert "there is nothing in" in show(tmp_path / "begun").stderr


def test_a_bad_line_is_named_and_the_others_are_listed(folder: Path) -> None:
    path = folder / "trajectories.jsonl"
    path.write_bytes(b'{"id": \n\n[1]\n{"a": 1}\n{"script": {}, "turns": []}\n' + path.read_bytes())
    result = show(folder, "--list")
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 3)
    assert [line.partition(" of ")[0] for line in result.stderr.splitlines()] == [
        "line 1",
        "line 3",
        "line 4",
        "line 5",
    ]
    first = show(folder)
    assert first.exit_code == 2
    assert "line 1" in first.stderr


@pytest.mark.long
@settings(max_examples=20)
@given(nasty, nasty)
def test_no_text_in_a_record_reaches_the_terminal_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, text: str, more: str
) -> None:
    text, more = (part.encode(errors="replace").decode() + "x" for part in (text, more))
    trajectory = a_trajectory(turns=(player(text, more), dm(more, "logic"), player(more), dm(text)))
    trajectory = trajectory.model_copy(update={"persona": Persona(text=text), "id": more})
    refused = Refused(episode=text, persona=Persona(text=more), stage="draft", attempt=1, text=text)
    folder = write_run(tmp_path_factory.mktemp("run"), [trajectory], [refused])
    for arguments in ([], ["--list"], ["--json"], ["--refused"], ["--refused", "--random"], [text]):
        result = cli("show", folder, *arguments, env={"FORCE_COLOR": None})
        assert is_inert(result.output), arguments


def test_the_mask_is_refused_where_there_is_none(folder: Path) -> None:
    for arguments in (["--list"], ["--json"], ["--refused"], ["--refused", "--random"]):
        result = show(folder, "--mask", "some/model", *arguments)
        assert result.exit_code == 2
        assert "--mask" in result.stderr
