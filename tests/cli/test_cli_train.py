"""`refinesynth train` as far as it needs no torch: options, settings, what is shown, exit codes. The engine is a
double."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from command_line import cli, unwrapped
from train_values import CPU, FINISHED, counts, sizes
from train_values import a_plan as plan_of

from refinesynth.cli.terminal import SafeConsole
from refinesynth.cli.train_display import TrainDisplay, plan_lines, preview_layout
from refinesynth.errors import InputError, TrainingError
from refinesynth.train.config import TrainConfig
from refinesynth.train.data.conversation_reader import SourceSizes
from refinesynth.train.events import Events, TrainResult
from refinesynth.train.plan import ComputeSettings, Devices, ModelShape, Plan
from refinesynth.train.tokens import Label
from refinesynth.train.trainer import Preview, Segment

MODEL = ModelShape("m/base", 10_000_000, 10_000_000, 4, 256, 1024, 1000, 4096)


def a_plan(config: TrainConfig, devices: Devices = CPU) -> Plan:
    found = counts(truncated=4, cut_turns=9, dropped_untrained=1)
    means = ComputeSettings("fp32", "none", gradient_checkpointing=False, attention="sdpa")
    return plan_of(config, of=sizes(found, counts(20), largest_id=999), model=MODEL, devices=devices, means=means)


Engine = Callable[[TrainConfig, Events], TrainResult]


def finishing(config: TrainConfig, events: Events, **fields: Any) -> TrainResult:
    """Four steps, an evaluation, a model."""
    plan = a_plan(config)
    events.planned(plan)
    events.note("Hello \x1b[31m from the engine.")
    for step in (1, 2, 3, 4):
        events.logged(step, {"loss": 1 / step, "learning_rate": 5e-6, "tokens_per_second": 12_345.0, "epoch": 0.5})
    held_out = {"loss": 0.6, "loss_correct": 0.55, "loss_refinement": 0.7, "loss_mistake": 2.5}
    events.evaluated(4, held_out)
    events.saved(Path(config.output))
    values: dict[str, Any] = {"steps": 4, "epochs": 0.25, "loss": 0.25, "held_out": held_out, "best_step": 4, **fields}
    return TrainResult(output=Path(config.output), planned_steps=plan.steps, **values)


def interrupted(config: TrainConfig, events: Events) -> TrainResult:
    result = finishing(config, events, signal=15)
    (result.output / "checkpoints" / "checkpoint-4").mkdir(parents=True)
    return result


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Engine], None]:
    """Puts a double in the engine's place; what it is not to be asked for fails."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    def put(double: Engine) -> None:
        def launch(config: TrainConfig, *, events: Events | None = None, sources: object = None) -> TrainResult:
            assert events is not None
            return double(config, events)

        monkeypatch.setattr("refinesynth.train.engine.launch", launch)
        monkeypatch.setattr("refinesynth.train.engine.plan", a_plan)

    put(finishing)
    return put


train = partial(cli, "train")


# Settings.


def shown(*arguments: object) -> dict[str, Any]:
    result = train("--show-config", *arguments)
    assert result.exit_code == 0, result.output
    return yaml.safe_load(result.stdout)


def test_every_setting_is_shown_with_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("warmup: 0.1\n")
    arguments = ["runs/first", "--model", "m/base", "--recipe", "lora", "--config", file, "--lr", "1e-3"]
    found = shown(*arguments)
    assert set(found) == set(TrainConfig.model_fields)
    text = train("--show-config", *arguments).stdout
    for name, origin in (
        ("learning_rate: 0.001", "command line"),
        ("warmup: 0.1", str(file)),
        ("epochs: 3.0", "recipe lora"),
        ("weight_decay: 0.0", "default"),
        ("output: FOLDER", "to be given"),
    ):
        assert f"{name:<40}  # {origin}" in text


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--recipe", "lora", "--no-lora"], "lora", None),
        (["--learning-rate", "2e-5"], "learning_rate", 2e-5),
        (["--loss-on", "all_turns"], "loss_on", "all_turns"),
        (["--held-out", 5], "held_out", 5.0),
        (["--deepspeed", "zero3"], "parallel", "zero3"),
        (["--recipe", "paper-8b", "--set", "chat_template=null"], "chat_template", None),
        (["--set", "adam_betas=[0.9, 0.95]"], "adam_betas", [0.9, 0.95]),
        (["--set", "evaluate-every=0.5"], "evaluate_every", 0.5),
        (["--set", "attention = sdpa"], "attention", "sdpa"),
        (["--thought-as", "reasoning"], "thought_as", "reasoning"),
        (["--set", "chat_template_kwargs.enable_thinking=false"], "chat_template_kwargs", {"enable_thinking": False}),
    ],
)
def test_every_option_sets_its_field(arguments: list[object], field: str, value: object) -> None:
    assert shown(*arguments)[field] == value


def test_the_configuration_can_be_given_back(tmp_path: Path) -> None:
    arguments = ["runs/first", "--model", "m/base", "-o", tmp_path / "out", "--recipe", "lora", "--set", "lora.rank=8"]
    file = tmp_path / "train.yaml"
    file.write_text(train("--show-config", *arguments).stdout)
    assert shown("--config", file) == shown(*arguments)


def test_escape_sequences_are_shown_and_not_obeyed() -> None:
    result = train("--show-config", "runs/\x1b[31m\u202efirst")
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    assert yaml.safe_load(result.stdout)["data"] == ["runs/\x1b[31m\u202efirst"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "data is missing: give DATA..."),
        (["runs/first"], "model is missing: give --model NAME-OR-FOLDER"),
        (["nothere.jsonl", "--model", "some/hub-name", "-o", "models/x"], "there is no file or folder 'nothere.jsonl'"),
        (["--recipe", "papr-8b"], "did you mean 'paper-8b'?"),
        (["--config", "/nowhere.yaml"], "No such file"),
        (["--set", "lerning_rate=1"], "did you mean learning_rate?"),
        (["--set", "learning_rate"], "write FIELD=VALUE"),
        (["--set", "seed=1", "--set", "seed=2"], "--set seed is given twice"),
        (["--deepspeed", "zero9"], "neither zero2 nor zero3"),
        (["--preview", "--dry-run"], "give one of"),
        (["--sample", "3"], "--sample is for --preview"),
    ],
)
def test_wrong_input_is_2_and_says_what_is_right(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = train(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("library", ["yaml", "torch", "transformers"])
def test_a_missing_library_says_how_to_install_it(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: object
) -> None:
    del engine
    monkeypatch.setitem(sys.modules, library, None)
    result = train("runs/first", "--model", "m", "-o", tmp_path / "out", "--recipe", "smoke")
    assert result.exit_code == 2
    assert "pip install 'refinesynth[train]'" in result.stderr
    assert repr(library) in result.stderr


# A training.


def test_a_training_shows_plan_progress_and_result_without_escape_codes(tmp_path: Path, engine: object) -> None:
    del engine
    output = tmp_path / "out"
    result = train("runs/first", "--model", "m/base", "-o", output, "--recipe", "smoke")
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    for expected in (
        "m/base: 10.0M parameters",
        "1,000 conversations",
        "4 cut at the end of a turn, 9 assistant turns lost; 1 left out without a turn to learn",
        "1,000,000, of which 400,000 trained (40%), 100,000 in mistakes (10%)",
        "20 (250 an epoch)",
        "weights 38 MiB, gradients 38 MiB, optimizer 76 MiB",
        "Hello \\u001b[31m from the engine.",
        "step 3/20 loss 0.3333 lr 5.00e-06 epoch 0.50 12.3k tokens/s",
        "step 4: held-out loss 0.6000 correct 0.5500 refinement 0.7000 mistakes (not trained on) 2.5000",
    ):
        assert expected in unwrapped(result.stderr)
    assert [line for line in result.stderr.splitlines() if line != line.rstrip()] == []
    steps = next(line for line in result.stderr.splitlines() if line.startswith("steps"))
    assert steps.endswith("4 evaluations, 2 checkpoints")
    assert "4 of 20 steps, 0.25 epochs; training loss 0.2500" in result.stdout
    assert f"The model is in {output}" in result.stdout
    assert {path.name for path in output.iterdir()} == FINISHED


def test_mistakes_that_are_trained_on_are_not_said_to_be_kept_out(
    tmp_path: Path, engine: Callable[[Engine], None]
) -> None:
    result = train("runs/first", "--model", "m/base", "-o", tmp_path / "out", "--loss-on", "all_turns")
    assert unwrapped(result.output).count("refinement 0.7000 mistakes 2.5000") == 2


def test_a_finished_training_is_not_done_again(tmp_path: Path, engine: Callable[[Engine], None]) -> None:
    asked = ["runs/first", "--model", "m/base", "-o", tmp_path / "out"]
    assert train(*asked).exit_code == 0

    def never(config: TrainConfig, events: Events) -> TrainResult:
        raise AssertionError("it was asked to train again")

    engine(never)
    again = train(*asked)
    assert again.exit_code == 0, again.output
    assert "nothing was left to do" in again.stderr
    assert "4 of " in again.stdout
    other = train(*asked, "--seed", "1")
    assert other.exit_code == 2
    assert "seed was 0 and is 1" in other.stderr


def test_an_interrupted_training_says_how_to_go_on(
    tmp_path: Path, engine: Callable[[Engine], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine(interrupted)
    asked = ["runs/first", "--model", "m/base", "-o", "my out"]
    result = train(*asked)
    assert result.exit_code == 143
    assert "interrupted at step 4 of 160; a checkpoint is saved in my out" in result.stderr
    assert "refinesynth train --config 'my out/train.yaml'" in result.stderr
    assert not (tmp_path / "my out" / "README.md").exists()
    engine(finishing)
    assert train("--config", "my out/train.yaml").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my out"]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InputError("the data is no data"), 2, "the data is no data"),
        (TrainingError("the loss is no number"), 1, "the loss is no number"),
        (KeyboardInterrupt(), 130, "interrupted; there is no checkpoint yet"),
        (RuntimeError("a fault"), 70, "this should not have happened"),
    ],
)
def test_what_ends_a_training_is_its_exit_code(
    tmp_path: Path, engine: Callable[[Engine], None], error: BaseException, code: int, message: str
) -> None:
    def failing(config: TrainConfig, events: Events) -> TrainResult:
        raise error

    engine(failing)
    result = train("runs/first", "--model", "m/base", "-o", tmp_path / "out")
    assert result.exit_code == code
    assert message in result.stderr
    # What was never planned leaves nothing behind.
    assert list(tmp_path.iterdir()) == []


def test_a_second_interrupt_says_what_is_kept(tmp_path: Path, engine: Callable[[Engine], None]) -> None:
    def cut_short(config: TrainConfig, events: Events) -> TrainResult:
        interrupted(config, events)
        raise KeyboardInterrupt

    engine(cut_short)
    result = train("runs/first", "--model", "m/base", "-o", tmp_path / "out")
    assert result.exit_code == 130
    assert f"goes on from the newest checkpoint in {tmp_path / 'out' / 'checkpoints'}" in result.stderr


def test_a_dry_run_writes_nothing(tmp_path: Path, engine: object, monkeypatch: pytest.MonkeyPatch) -> None:
    del engine
    monkeypatch.chdir(tmp_path)
    result = train("runs/first", "--model", "m/base", "--dry-run")
    assert result.exit_code == 0, result.output
    assert [line for line in result.stdout.splitlines() if "10 evaluations, 10 checkpoints" in line] != []
    found = orjson.loads(train("runs/first", "--model", "m/base", "--dry-run", "--json").stdout)
    assert found["steps"] == 160
    assert list(tmp_path.iterdir()) == []


def test_a_mix_is_named_by_arguments_and_shown_source_by_source(tmp_path: Path) -> None:
    found = shown("runs/a", "runs/b:0.3", "chat.jsonl:2")
    assert found["data"] == ["runs/a", "runs/b:0.3", "chat.jsonl:2"]
    file = tmp_path / "mix.yaml"
    file.write_text("data: [runs/a, runs/b:0.3]\n")
    assert shown("--config", file)["data"] == ["runs/a", "runs/b:0.3"]
    plan = a_plan(CONFIG)
    sources = (
        SourceSizes("a", 1, 1000, unmarked=0, taken=1000, held_out=20, tokens=5000, trained_tokens=400),
        SourceSizes("b", 0.3, 1000, unmarked=0, taken=300, held_out=0, tokens=60, trained_tokens=5),
    )
    lines = plan_lines(replace(plan, sizes=replace(plan.sizes, sources=sources))).splitlines()
    assert f"{'':<15}a: 1,000 conversations, 20 held out; 5,000 tokens, 400 trained" in lines
    assert f"{'':<15}b: 300 (weight 0.3) of 1,000 conversations, 0 held out; 60 tokens, 5 trained" in lines


# Under torchrun.


def test_only_rank_0_speaks_and_writes(
    tmp_path: Path, engine: Callable[[Engine], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Events] = []

    def launch(config: TrainConfig, *, events: Events | None = None, sources: object = None) -> TrainResult:
        assert events is None
        return TrainResult(Path(config.output), 4, 4, 1.0, 0.5)

    monkeypatch.setattr("refinesynth.train.engine.launch", launch)
    monkeypatch.setenv("RANK", "1")
    result = train("runs/first", "--model", "m/base", "-o", tmp_path / "out")
    assert (result.exit_code, result.output, told) == (0, "", [])
    assert list(tmp_path.iterdir()) == []


def test_other_ranks_leave_it_to_rank_0_to_say_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("refinesynth.cli.train._RANK_EXIT_DELAY", 0.0)
    (tmp_path / "thesis.tex").write_text("precious")
    result = train("runs/first", "--model", "m", "-o", tmp_path)
    assert (result.exit_code, result.output) == (2, "")


# What is drawn.


CONFIG = TrainConfig(data=("runs/first",), model="m/base", output="out")


def console(width: int = 100, *, force_terminal: bool | None = None) -> tuple[StringIO, SafeConsole]:
    text = StringIO()
    style: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
    return text, SafeConsole(file=text, width=width, force_terminal=force_terminal, **style)


def test_the_time_that_is_left_is_told_from_this_processs_own_steps() -> None:
    text, screen = console()
    now = 0.0
    display = TrainDisplay(screen, lambda: now)
    display.planned(a_plan(CONFIG))
    for seconds, step in ((1000.0, 50), (1020.0, 60), (1040.0, 160)):
        now = seconds
        display.logged(step, {"loss": 1.0})
    first, second, third = [line for line in text.getvalue().splitlines() if line.startswith("step ")]
    assert "left" not in first + third
    assert second == "step 60/160  loss 1.0000  about 3:20 left"


def test_every_piece_of_a_preview_has_its_sign_and_nothing_is_obeyed() -> None:
    segments = (
        Segment("<user>\nlook \x1b[31m\n\n<assistant>\n", Label.CONTEXT, 9),
        Segment("Thought: now.\nAction: fly<end>", Label.MISTAKE, 4),
        Segment("\n", Label.CONTEXT, 1),
        Segment("Action: go<end>", Label.TRAINED, 3),
    )
    text, screen = console(width=60)
    screen.print(preview_layout(Preview("a-1\x07", segments, tokens=17, trained=3, mistakes=4)))
    assert [line.rstrip() for line in text.getvalue().splitlines()] == [
        "a-1\\u0007: 17 tokens, 3 trained (18%), 4 in mistakes",
        "| <user>⏎",
        "| look \\u001b[31m⏎",
        "| ⏎",
        "| <assistant>⏎",
        "✗ Thought: now.⏎",
        "✗ Action: fly<end>",
        "| ⏎",
        "+ Action: go<end>",
    ]
