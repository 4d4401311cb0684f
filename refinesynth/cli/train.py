"""`refinesynth train`: refinement tuning."""

import re
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer

from refinesynth.cli.exit_codes import ExitCode, code_of
from refinesynth.cli.field_options import option
from refinesynth.cli.interrupt import EXIT_CODES
from refinesynth.cli.run_records import note_waiting
from refinesynth.cli.terminal import note, notes, output, print_json, say
from refinesynth.errors import ConfigurationError, InputError, RefinesynthError
from refinesynth.lazy_imports import check_installed
from refinesynth.option import ADVANCED, INPUT, LEARNING
from refinesynth.text.formatting import one_line, printable
from refinesynth.train.config import ALL, TrainConfig
from refinesynth.train.events import TrainResult
from refinesynth.train.layered_settings import Layered, explained_yaml, layered, nested_type
from refinesynth.train.ranks import is_launched, rank
from refinesynth.train.training_folder import CHECKPOINTS, CONFIG, read_result

Set = Annotated[
    list[str] | None,
    option(
        "--set",
        panel=ADVANCED,
        metavar="FIELD=VALUE",
        help="Any setting, such as weight_decay=0.1 or lora.rank=64; --show-config lists them all. Repeat it for more.",
    ),
]


def train(
    data: Annotated[list[str] | None, typer.Argument(metavar="DATA...")] = None,
    *,
    config: Annotated[Path | None, option(panel=INPUT, metavar="FILE")] = None,
    lora: Annotated[bool | None, option("--lora/--no-lora", panel=LEARNING)] = None,
    set_: Set = None,
    preview: Annotated[bool, option(panel=ADVANCED)] = False,
    sample: Annotated[int | None, option(panel=ADVANCED, metavar="N", min=1)] = None,
    dry_run: Annotated[bool, option(panel=ADVANCED)] = False,
    show_config: Annotated[bool, option(panel=ADVANCED)] = False,
    json: Annotated[bool, option(panel=ADVANCED)] = False,
    **settings: Any,
) -> None:
    """Tune a model on trajectories: it learns from the repair, never from the mistake.

    The same command again continues a training that was interrupted.

    Exits with 0 when it is done, 1 when it could not go on, 2 when an option or a file cannot
    be used, 3 when the folder cannot be written, 130 after Ctrl-C, 143 after SIGTERM.

    Options:
        data: Run folders or exported files; NAME:0.3 takes that share of one.
        config: YAML with any settings; options override it, it overrides the recipe.
        lora: Train low-rank adapters instead of all weights.
        preview: Show what the model will see: trained, context, masked mistakes. Trains nothing.
        sample: With --preview: how many conversations, by default 1.
        dry_run: Count, estimate memory and steps, and check. Trains nothing.
        show_config: Print every setting, its meaning and its origin. Trains nothing.
        json: The plan of --dry-run, or the result, as one JSON object.
    """
    if show_config + preview + dry_run > 1:
        raise InputError("give one of --show-config, --preview and --dry-run")
    if sample is not None and not preview:
        raise InputError("--sample is for --preview alone; give that too, or leave it out")
    options: dict[str, Any] = {**settings, "lora": lora, "data": data or None}
    recipe = options.pop("recipe", None)
    typed = typed_settings(options, assignments=set_ or [])

    def resolve(**defaults: Any) -> Layered:
        return layered(recipe=recipe, file=config, given=typed, defaults=defaults)

    if not show_config:
        check_installed("train", "numpy", "torch", "transformers")
    started: TrainConfig | None = None
    code = ExitCode.OK
    try:
        if show_config:
            _show_config(resolve(data=["DATA"], model="MODEL", output="FOLDER"))
        elif preview:
            _preview(resolve(output="models/not-written").config, sample or 1)
        elif dry_run:
            _plan(resolve(output="models/not-written").config, json=json)
        else:
            started = resolve().config
            _note_waiting(started)
            code = _train(started, json=json)
    except KeyboardInterrupt:
        _note_interrupted(started)
        code = ExitCode.INTERRUPTED
    except RefinesynthError as error:
        _report_once(error)
        code = code_of(error)
    raise typer.Exit(code)


_RANK_EXIT_DELAY: Final = 3.0
"""Seconds that other ranks wait before they exit after an error: torchrun ends all ranks after the first, and rank 0 reports it."""


def _train(config: TrainConfig, *, json: bool) -> ExitCode:
    """Train and return the exit code. The report goes to standard output, everything else to standard error."""
    from refinesynth.cli.train_display import TrainDisplay
    from refinesynth.train.trainer import train

    if rank() != 0:
        return _exit_code(train(config))
    done_before = read_result(Path(config.output)) is not None
    result = train(config, events=TrainDisplay(notes(), loss_on=config.loss_on))
    # A closed pipe does not change the exit code: the files of the training are already written.
    with suppress(BrokenPipeError):
        if done_before:
            note("nothing was left to do: this training was finished before")
        _report(result, config, json=json)
    return _exit_code(result)


def _note_waiting(config: TrainConfig) -> None:
    from refinesynth.train.data.conversation_reader import split_weight

    for source in config.data if rank() == 0 else ():
        note_waiting(Path(str(split_weight(source)[0])))


def _note_interrupted(config: TrainConfig | None) -> None:
    """Print how to continue after an interruption that saved no checkpoint; `config` is None before a training."""
    checkpoints = None if config is None else Path(config.output, CHECKPOINTS)
    if checkpoints is None:
        state = "nothing was written"
    elif any(checkpoints.glob("checkpoint-*")):
        state = f"the same command goes on from the newest checkpoint in {one_line(str(checkpoints))}"
    else:
        state = "there is no checkpoint yet: the same command begins again"
    if rank() == 0:
        note(f"interrupted; {state}")


def _exit_code(result: TrainResult) -> ExitCode:
    return ExitCode.OK if result.signal is None else EXIT_CODES[signal.Signals(result.signal)]


def _report(result: TrainResult, config: TrainConfig, *, json: bool) -> None:
    from refinesynth.cli.train_display import held_out_line

    folder = one_line(str(result.output))
    if json:
        print_json(result.as_json())
    if result.signal is not None:
        config_path = shlex.quote(str(result.output / CONFIG))
        program = "torchrun ... -m refinesynth.train" if is_launched() else "refinesynth train"
        note(
            f"interrupted at step {result.steps:,} of {result.planned_steps:,}; a checkpoint is saved in {folder}. To continue:"
        )
        note(one_line(f"  {program} --config {config_path}"), "bold")
        return
    if json:
        return
    say(
        f"\n{result.steps:,} of {result.planned_steps:,} steps, {result.epochs:.2f} epochs; training loss {result.loss:.4f} (mean of the last logged steps)"
    )
    if result.held_out:
        best = "" if result.best_step is None else f" (the model of step {result.best_step:,}, the best)"
        say(f"{held_out_line(result.held_out, config.loss_on)}{best}")
    say(f"The model is in {folder}, with its card in README.md.")
    if not result.held_out and config.keep == ALL:
        say(
            f"Nothing was evaluated: it is the model of the last step. Those of earlier ones are in {one_line(str(result.output / CHECKPOINTS))}; evaluate them to choose."
        )


def _report_once(error: RefinesynthError) -> None:
    """Raise the error; other ranks leave an InputError to rank 0."""
    if rank() == 0 or not isinstance(error, InputError):
        raise error
    time.sleep(_RANK_EXIT_DELAY)


def _show_config(layers: Layered) -> None:
    if rank() == 0:
        output().print(printable(explained_yaml(layers)), end="", soft_wrap=True)


def _preview(config: TrainConfig, sample: int) -> None:
    from refinesynth.cli.train_display import LEGEND, preview_layout
    from refinesynth.train.trainer import preview_data

    examples = preview_data(config, sample)
    if not examples:
        raise InputError("there is nothing to train on in the data: --dry-run says why")
    if rank() == 0:
        console = output()
        for example in examples:
            console.print(preview_layout(example), "")
        console.print(LEGEND, style="dim")


def _plan(config: TrainConfig, *, json: bool) -> None:
    from refinesynth.cli.train_display import plan_lines
    from refinesynth.train.engine import plan

    planned = plan(config)
    if rank() != 0:
        return
    if json:
        print_json(planned.as_json())
    else:
        say(plan_lines(planned))


_NAME: Final = re.compile(r"[\w.-]+")
_STAGES: Final = ("zero2", "zero3")


def typed_settings(options: Mapping[str, Any], *, assignments: Sequence[str] = ()) -> dict[str, Any]:
    """The given settings; `assignments` (`--set`) override options, and `deepspeed` is a ZeRO stage or a file.

    Raises ConfigurationError for a malformed or repeated assignment, and for another value of `deepspeed`.
    """
    settings = {
        name: str(value) if isinstance(value, Path) else value for name, value in options.items() if value is not None
    }
    deepspeed = settings.get("deepspeed")
    if deepspeed in _STAGES:
        settings["parallel"] = settings.pop("deepspeed")
    elif deepspeed is not None and not Path(deepspeed).is_file():
        raise ConfigurationError(f"--deepspeed {deepspeed!r} is neither zero2 nor zero3, and there is no such file")
    assigned: dict[str, object] = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not sign or not _NAME.fullmatch(name):
            raise ConfigurationError(f"--set {text!r}: write FIELD=VALUE, as in weight_decay=0.1 or lora.rank=64")
        if name in assigned:
            raise ConfigurationError(f"--set {name} is given twice; give it once")
        # Values of a mapping have no field type that would parse a number or a boolean from text.
        assigned[name] = _value(value.strip(), reads_text=nested_type(name.partition(".")[0]) is not dict)
    return settings | assigned


def _value(text: str, *, reads_text: bool) -> object:
    """Parse null, a list, an object or a quoted string as JSON; other values too, unless the field `reads_text`."""
    if text == "null":
        return None
    if not reads_text or text.startswith(("[", "{", '"')):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    if not reads_text and text in {"True", "False"}:
        return text == "True"
    return text
