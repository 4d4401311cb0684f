"""`refinesynth run` against the rehearsal, in process."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from command_line import cli, unwrapped
from faulty_server import faulty_app
from server_manners import Mannered, bare
from typer.testing import Result

from refinesynth import rules
from refinesynth.cli.display import Display
from refinesynth.errors import StorageError
from refinesynth.files.output_folder import FolderLock
from refinesynth.rehearsal import Rehearsal
from refinesynth.rules import Violation
from refinesynth.rules.rule import BUILT_IN
from refinesynth.run import next_run_folder
from refinesynth.serve import create_app
from refinesynth.serve import running as serving
from refinesynth.synthesis import Progress
from refinesynth.trajectory import Draft

PERSONAS = ["A potter who drinks too much coffee.", "A night porter.", "A bee-keeper in the Alps.", "A retired judge."]


run = partial(cli, "run")


@pytest.fixture
def personas(tmp_path: Path) -> Path:
    path = tmp_path / "personas.txt"
    path.write_text("\n".join(PERSONAS) + "\n", encoding="utf-8")
    return path


def numbers(result: Result) -> dict[str, int]:
    """Row of the report to its first number."""
    found = re.findall(r"^(accepted|episodes) +([\d,]+)", result.stdout, re.MULTILINE)
    return {label: int(count.replace(",", "")) for label, count in found}


def test_reaching_n_is_0_and_says_what_came_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "first"
    result = run("-n", 3, "-o", folder)
    assert result.exit_code == 0, result.output
    assert (
        "3 trajectories from the personas that come with refinesynth, by rehearsal (built in, offline" in result.stderr
    )
    assert "3/3 accepted" in result.stderr
    assert numbers(result)["accepted"] == 3
    assert numbers(result)["episodes"] >= 3
    assert result.stdout.startswith(cli("status", folder).stdout)
    assert len((folder / "trajectories.jsonl").read_bytes().splitlines()) == 3
    assert "\x1b" not in result.output


@pytest.mark.long
def test_a_run_that_comes_to_nothing_stops_early_and_says_what_to_try(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    asked = ("-n", 50, "-o", folder, "--backend", "rehearsal:no_success=1.0", "--play", "narrated")
    result = run(*asked, "--early-stop", 3)
    assert result.exit_code == 1
    assert "0 of 50 trajectories were accepted: none of the first 3 episodes gave one" in result.stdout
    assert re.search(r"^ +\d+ by TaskSucceed", result.stdout, re.MULTILINE)
    assert f"refinesynth show {folder} --refused" in result.stdout
    assert "--early-stop 0 goes on" in unwrapped(result.stdout)
    assert "\x1b" not in result.output
    before = [line for line in result.stdout.splitlines() if line.startswith(" all ")]
    again = run(*asked, "--early-stop", 3)
    assert again.exit_code == 1
    assert [line for line in again.stdout.splitlines() if line.startswith(" all ")] == before
    more = run(*asked, "--early-stop", 5)
    assert "none of the first 5 episodes" in more.stdout
    assert orjson.loads(run(*asked, "--early-stop", 5, "--json").stdout)["why"] == "nothing_accepted"


@pytest.mark.process
def test_what_a_server_lacks_is_said_once(tmp_path: Path) -> None:
    with serving(create_app(Mannered(bare))) as address:
        place = ("--backend", "hosted_vllm/any", "--set", f"base_url={address}/v1")
        result = run("-n", 2, "-o", tmp_path / "run", *place, "--player-form", "tools", "--concurrency", 4)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count("does not take response_format; requests go without it") == 1
    assert result.stderr.count("does not take tools; requests go without it") == 1


@pytest.mark.process
def test_a_web_page_where_completions_should_be_is_said_at_once(tmp_path: Path) -> None:
    asked: list[str] = []

    async def page(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text="<!DOCTYPE html><title>Sign in</title>", content_type="text/html")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", page)
    with serving(application) as address:
        place = ("--backend", "hosted_vllm/any", "--set", f"base_url={address}")
        result = run("-n", 2, "-o", tmp_path / "run", *place, "--concurrency", 1)
    assert result.exit_code == 1
    assert "no completion API is: a web page came back, 'Sign in'" in result.stderr
    assert f"Check base_url ({address}), which mostly ends in /v1" in result.stderr
    assert [path for path in asked if path != "/props"] == ["/chat/completions"] * 2


def test_falling_short_is_1_and_says_why(tmp_path: Path, personas: Path) -> None:
    result = run(personas, "-n", 9, "-o", tmp_path / "run")
    assert result.exit_code == 1
    assert re.search(
        r"\d of 9 trajectories were accepted: the file '.*personas\.txt' ran out after 4 personas", result.stdout
    )


def test_bad_rows_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "personas.jsonl"
    path.write_bytes(b'{"persona": "A potter."}\n{"name": "nobody"}\n{"persona": "A porter."}\n')
    result = run(path, "-n", 2, "-o", tmp_path / "run")
    assert "1 row skipped: no persona" in result.stderr


def test_by_default_it_is_the_next_free_folder_as_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("-n", 1, "--play", "no such play").exit_code == 2
    assert not (tmp_path / "runs").exists()
    assert run("-n", 1).exit_code == 0
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["001"]
    assert next_run_folder() == Path("runs/002")


def test_options_reach_the_run(tmp_path: Path, personas: Path) -> None:
    options = [
        *("--backend", "rehearsal", "--backend", "player=rehearsal:natural_mistake=0.5", "--play", "live"),
        *("--rules", "agentrefine(min_refinements=1)", "--script-rules", "ActionCount() & UniqueNames()"),
        *("--mistakes", "prompted=1,4", "--attempts", "drafts=6,scripts=2", "--concurrency", "2", "--seed", "7"),
        *("--max-turns", "44"),
    ]
    result = run(personas, "-n", 1, "-o", tmp_path / "run", *options)
    assert result.exit_code == 0, result.output
    config = orjson.loads((tmp_path / "run" / "config.json").read_bytes())
    assert config["models"]["player"]["model"] == "rehearsal:natural_mistake=0.5"
    assert config["models"]["dungeon_master"]["model"] == "rehearsal"
    assert config["rules"].endswith("EnoughMistakes(minimum=1))")
    assert config["script_rules"].startswith("ActionCount(")
    assert config["mistakes"]["turns"] == [1, 4]
    assert config["attempts"] == {"scripts": 2, "drafts": 6, "calls": None, "answers": 2}
    assert (config["n"], config["concurrency"], config["seed"], config["max_turns"]) == (1, 2, 7, 44)
    assert "by default=rehearsal, player=rehearsal:natural_mistake=0.5" in result.stderr


def test_the_papers_preset_and_what_overrides_it(tmp_path: Path, personas: Path) -> None:
    chosen = ("--preset", "paper", "--backend", "rehearsal", "--attempts", "calls=9")
    result = run(personas, "-n", 1, "-o", tmp_path / "run", *chosen)
    assert result.exit_code in {0, 1}
    config = orjson.loads((tmp_path / "run" / "config.json").read_bytes())
    assert config["play"] == "narrated"
    assert config["rules"].startswith("first_failure(")
    assert config["attempts"]["calls"] == 9


@pytest.mark.parametrize("play", ["live", "grounded"])
def test_the_papers_few_completions_are_not_spent_on_a_play_turn_by_turn(tmp_path: Path, play: str) -> None:
    asked = ["-n", 1, "-o", tmp_path / "run", "--preset", "paper", "--backend", "rehearsal", "--play", play]
    result = run(*asked)
    assert result.exit_code == 2
    assert f"--play {play}: --preset paper allows an episode 4 completions" in result.stderr
    assert not (tmp_path / "run").exists()
    # What it says to do works.
    assert run(*asked, "--attempts", "drafts=4").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "gpt4o-x"], "gpt4o-x"),
        (["--backend", "gpt-4o"], "OPENAI_API_KEY"),
        (["--backend", "gpt-4o", "--set", "api_key_env=NOT_SET_AT_ALL"], "the environment variable NOT_SET_AT_ALL"),
        (["--backend", "plaier=gpt-4o"], "Did you mean player=gpt-4o?"),
        (["--backend", "rehearsal:invalid_jsn=0.1"], "invalid_json"),
        (["--backend", "rehearsal:invalid_json=2"], "from 0 to 1"),
        (["--rules", "strickt()"], "--rules: "),
        (["--rules", "strict("], "--rules: "),
        (["--script-rules", "Nothing()"], "--script-rules: "),
        (["--concurrency", "0"], "concurrency is '0'; expected 'auto', or"),
        (["-n", "0"], "n is 0; should be greater than or equal to 1: number of"),
        (["--mistakes", "many"], "mistakes is 'many'; expected one of: spread"),
        (["--attempts", "drafts=0"], "attempts is 'drafts=0'; drafts: "),
        (["--prompts", "no-such-folder"], "no-such-folder"),
        (["--resume"], "No such option: --resume"),
        (["no-such-file.jsonl"], "there is no file 'no-such-file.jsonl'"),
    ],
)
def test_wrong_input_is_2_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("-n", 1, *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"name": "nobody"}\n', b"\xff\xfd\n"])
def test_a_file_without_personas_is_2(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "personas.jsonl"
    path.write_bytes(content)
    result = run(path, "-n", 1, "-o", tmp_path / "run")
    assert result.exit_code == 2
    assert "no personas" in result.stderr


def test_the_same_command_goes_on_with_a_run_and_never_writes_over_one(tmp_path: Path, personas: Path) -> None:
    folder = tmp_path / "run"
    assert run(personas, "-n", 1, "-o", folder).exit_code == 0
    other = run(personas, "-n", 2, "-o", folder, "--seed", "5")
    assert other.exit_code == 2
    assert "seed: 0 -> 5" in other.stderr
    resumed = run(personas, "-n", 2, "-o", folder)
    assert resumed.exit_code == 0, resumed.output
    assert numbers(resumed)["accepted"] == 2
    assert "goes on with the run that is there: 1 of 2 accepted so far" in resumed.stderr


def test_a_complete_run_is_said_to_be_one(tmp_path: Path, personas: Path) -> None:
    folder = tmp_path / "run"
    assert run(personas, "-n", 2, "-o", folder).exit_code == 0
    before = (folder / "events.jsonl").read_bytes()
    again = run(personas, "-n", 2, "-o", folder)
    assert again.exit_code == 0, again.output
    assert "nothing was left to do: 2 of 2 were accepted before" in again.stderr
    assert numbers(again)["accepted"] == 2
    assert (folder / "events.jsonl").read_bytes() == before


def test_fresh_keeps_the_old_run_beside_the_new_one(tmp_path: Path, personas: Path) -> None:
    folder = tmp_path / "run"
    assert run(personas, "-n", 1, "-o", folder, "--fresh").exit_code == 0
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["run"]
    fresh = run(personas, "-n", 1, "-o", folder, "--seed", "5", "--fresh")
    assert fresh.exit_code == 0, fresh.output
    assert f"the run that is there is kept as {folder}.old-1" in fresh.stderr.replace("\n", "")
    config = orjson.loads((tmp_path / "run.old-1" / "config.json").read_bytes())
    assert config["seed"] == 0


def test_a_folder_that_another_process_has_is_2(tmp_path: Path, personas: Path) -> None:
    folder = tmp_path / "run"
    assert run(personas, "-n", 1, "-o", folder).exit_code == 0
    with FolderLock(folder):
        result = run(personas, "-n", 2, "-o", folder)
    assert result.exit_code == 2
    assert f"is in use by another run: process {os.getpid()} on" in result.stderr


def test_a_folder_that_cannot_be_written_is_3_and_what_is_in_it_is_reported(
    tmp_path: Path, personas: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    assert run(personas, "-n", 1, "-o", folder).exit_code == 0

    def full(*_: object) -> None:
        raise StorageError("cannot write 'x': no room")

    monkeypatch.setattr("refinesynth.run.jsonl.LineWriter.write", full)
    result = run(personas, "-n", 2, "-o", folder)
    assert result.exit_code == 3
    assert numbers(result)["accepted"] == 1
    assert "cannot write 'x': no room" in result.stderr


@pytest.fixture
def signal_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, signal.Signals], None]:
    """Have this process get a signal as soon as so many episodes are finished."""

    def arrange(finished: int, number: signal.Signals) -> None:
        update = Display.update
        sent = False

        def and_kill(self: Display, moment: Progress) -> None:
            nonlocal sent
            update(self, moment)
            # Once: a second signal ends the process, which here is that of the tests.
            if moment.finished >= finished and moment.elapsed > 0 and not sent:
                sent = True
                os.kill(os.getpid(), number)

        monkeypatch.setattr(Display, "update", and_kill)

    return arrange


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_run_says_how_to_resume(
    tmp_path: Path, signal_after: Callable[[int, signal.Signals], None], number: signal.Signals, code: int
) -> None:
    signal_after(2, number)
    folder = tmp_path / "a run"
    result = run("-n", 30, "-o", folder, "--concurrency", 3)
    assert result.exit_code == code
    finished = numbers(result)
    assert 2 <= finished["episodes"] < 30
    assert "interrupted: everything finished so far is in" in result.stderr
    assert f"refinesynth run -n 30 -o '{folder}' --concurrency 3\n" in result.stderr


def test_interrupted_before_anything_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Display.open

    def and_kill(self: Display) -> None:
        opened(self)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Display, "open", and_kill)
    result = run("-n", 3, "-o", tmp_path / "run")
    assert result.exit_code == 130
    assert result.stderr.endswith("interrupted before anything was written\n")


def test_log_lines_come_while_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refinesynth.cli.run_display.LOG_EVERY", 0.01)
    result = run("-n", 2, "-o", tmp_path / "run")
    assert len([line for line in result.stderr.splitlines() if "/2 accepted" in line]) > 1


def test_a_backend_that_refuses_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(faulty_app(Rehearsal(), {401: 1.0})) as address:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"{address}/v1")
        monkeypatch.setenv("HOSTED_VLLM_API_KEY", "sk-canary-4711")
        result = run("-n", 2, "-o", tmp_path / "run", "--backend", "hosted_vllm/rehearsal")
    assert result.exit_code == 1
    assert "refinesynth: " in result.stderr
    assert f"refinesynth run -n 2 -o {tmp_path / 'run'}" in result.stderr
    assert numbers(result)["accepted"] == 0
    assert "canary" not in result.output
    assert all(b"canary" not in path.read_bytes() for path in (tmp_path / "run").iterdir())


def test_an_own_rule_that_raises_is_named_and_the_run_goes_on_when_it_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Mine(rules.BaseRule):
        def __call__(self, draft: Draft, /) -> Iterator[Violation]:
            if faulty and draft.finished:
                raise ZeroDivisionError("0 turns")
            yield from ()

        def __repr__(self) -> str:
            return "Mine()"

    monkeypatch.setitem(BUILT_IN, "Mine", Mine)
    faulty = True
    asked = ("-n", 2, "-o", tmp_path / "run", "--rules", "strict() & Mine()", "--concurrency", 1)
    result = run(*asked)
    assert result.exit_code == 1
    assert "refinesynth: the rule Mine" in result.stderr
    assert "raised ZeroDivisionError: 0 turns" in result.stderr
    assert "should not have happened" not in result.stderr
    assert "To continue:" in result.stderr
    faulty = False
    assert run(*asked).exit_code == 0
