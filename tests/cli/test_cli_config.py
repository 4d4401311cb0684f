"""A run's settings from a file: what is given beside it counts before it."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from command_line import cli, unwrapped

import refinesynth as rs
from refinesynth.cli import run_display
from refinesynth.cli.exit_codes import ExitCode
from refinesynth.run import RunFolder
from refinesynth.settings import RunSettings
from refinesynth.synthesis.request import settings_of

SETTINGS: dict[str, Any] = {
    "n": 3,
    "play": "grounded",
    "seed": 7,
    "grounding": {"terse": True, "difficulty": "1..30", "mix": {"hidden": 0.25}},
    "mistakes": {"policy": "natural"},
    "attempts": {"drafts": 2},
    "backend": {"default": "rehearsal", "player": {"model": "rehearsal"}},
}


def written(folder: Path, **settings: Any) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({**SETTINGS, **settings}))
    return path


async def test_a_call_takes_the_settings_of_a_file(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**settings_of(written(tmp_path)), "n": 2, "output": tmp_path / "run"}
    result = await rs.synthesize(["A baker", "A nurse", "A clerk"], **settings)
    config = RunFolder.open(result.path).config
    assert (config.n, config.play, config.seed) == (2, "grounded", 7)
    assert config.grounding is not None
    assert (config.grounding["terse"], config.grounding["difficulty"]) == (True, [1, 30])
    assert "hidden=0.25" in str(config.grounding["mix"])
    assert (config.mistakes["policy"], config.attempts["drafts"]) == ("natural", 2)
    assert "player" in config.models


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sede: 7", "did you mean seed"),
        ("seed: soon", "seed is 'soon'; should be a valid integer: seed of the run"),
        ("grounding: {tarse: true}\nplay: grounded", "grounding.tarse"),
        ("backend: {model: gpt-4o, temprature: 1}", "temprature"),
        ("- 1", "holds no settings"),
        ("play: loud", "play is 'loud'; expected one of"),
    ],
)
def test_what_a_file_says_wrongly_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    done = cli("run", "-n", "1", "--config", path, "-o", tmp_path / "run")
    assert done.exit_code == ExitCode.WRONG_INPUT
    assert message in unwrapped(done.stderr)
    assert not (tmp_path / "run").exists()


def test_options_are_read_as_their_fields_read_text(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = {
        "--difficulty": "4..12",
        "--mix": "hidden=0.5",
        "--transient": "0.1",
        "--contamination": "held-out.jsonl",
        "--near-duplicates": "0.8",
        "--shard": "1/2",
        "--mistakes": "prompted=1,4",
        "--attempts": "drafts=2,calls=9",
        "--concurrency": "7",
        "--deadline": "60",
        "--log-level": "debug",
        "--rules": "strict(2)",
        "--script-rules": "ActionCount(least=1)",
        "--seed": "7",
        "--max-turns": "44",
    }
    options = [part for option in typed.items() for part in option]
    started = Mock(return_value=ExitCode.OK)
    monkeypatch.setattr(run_display, "run_and_report", started)
    done = cli("run", "-n", "8", "--play", "grounded", "--terse", "--judge", *options)
    assert done.exit_code == ExitCode.OK, done.stderr
    values = RunSettings.make({key: value for key, value in started.call_args.args[0].items() if key != "fresh"})
    assert (values.grounding.difficulty, values.grounding.mix.hidden) == ((4, 12), 0.5)
    assert (values.grounding.transient, values.grounding.terse) == (0.1, True)
    assert values.curation is not None
    assert (values.curation.contamination, values.curation.near_duplicates) == (("held-out.jsonl",), 0.8)
    assert (values.mistakes.turns, values.attempts.drafts, values.attempts.calls) == ((1, 4), 2, 9)
    assert (values.concurrency, values.deadline, values.log_level) == (7, 60, "debug")
    assert ("EnoughMistakes(minimum=2)" in str(values.rules), "least=1" in str(values.script_rules)) == (True, True)
    assert (values.seed, values.max_turns) == (7, 44)
    assert (str(values.shard), values.judge, values.n) == ("1/2", True, 8)


@pytest.mark.long
def test_a_run_of_the_command_line_takes_its_folder_and_number_from_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, output=str(tmp_path / "run"))
    assert cli("run", "--config", path).exit_code == ExitCode.OK
    assert RunFolder.open(tmp_path / "run").config.n == 3
    assert cli("run", "--config", path, "--dry-run", "--sample", "1").exit_code == ExitCode.OK
