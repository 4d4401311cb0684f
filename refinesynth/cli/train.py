"""`refinesynth train`: refinement tuning."""

import shlex
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from refinesynth.cli.exit_codes import ExitCode, code_of
from refinesynth.cli.interrupt import EXIT_CODES
from refinesynth.cli.terminal import notes, output, print_json, styled
from refinesynth.cli.train_settings import given
from refinesynth.errors import InputError, RefinesynthError
from refinesynth.option import ADVANCED, INPUT, LEARNING
from refinesynth.text.printable import one_line, printable
from refinesynth.train.config import ALL, TrainConfig
from refinesynth.train.events import TrainResult
from refinesynth.train.layered_settings import Layered, explained_yaml, layered
from refinesynth.train.ranks import is_launched, is_reported_by_launcher, rank, write_outcome
from refinesynth.train.training_folder import CHECKPOINTS, CONFIG, finished


def _option(name: str, help_: str, panel: str = ADVANCED, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(name, help=help_, rich_help_panel=panel, metavar=metavar, **more)


_DATA = typer.Argument(
    metavar="DATA...", help="Run folders, exported files or Hugging Face datasets; NAME:0.3 takes that share of one."
)
_MORE_DATA = _option("--data", "The same, for each DATA. Repeat it for more.", INPUT, "NAME[:WEIGHT]")
_CONFIG = _option("--config", "YAML with any settings; options override it, it overrides the recipe.", INPUT, "FILE")
_LORA = _option("--lora/--no-lora", "Train low-rank adapters instead of all weights.", LEARNING)
_SET = _option(
    "--set",
    "Any setting, such as weight_decay=0.1 or lora.rank=64; --show-config lists them all. Repeat it for more.",
    metavar="FIELD=VALUE",
)
_SHOW_CONFIG = _option("--show-config", "Print every setting, its meaning and its origin. Trains nothing.")
_PREVIEW = _option("--preview", "Show what the model will see: trained, context, masked mistakes. Trains nothing.")
_SAMPLE = _option("--sample", "With --preview: how many conversations, by default 1.", metavar="N", min=1)
_DRY_RUN = _option("--dry-run", "Count, estimate memory and steps, and check. Trains nothing.")
_JSON = _option("--json", "The plan of --dry-run, or the result, as one JSON object.")
_LOCAL_RANK = typer.Option("--local_rank", "--local-rank", hidden=True)
"""From launchers; the environment says the same."""
Set = Annotated[list[str] | None, _SET]


def train(
    data: Annotated[list[str] | None, _DATA] = None,
    *,
    more_data: Annotated[list[str] | None, _MORE_DATA] = None,
    config: Annotated[Path | None, _CONFIG] = None,
    lora: Annotated[bool | None, _LORA] = None,
    set_: Set = None,
    preview: Annotated[bool, _PREVIEW] = False,
    sample: Annotated[int | None, _SAMPLE] = None,
    dry_run: Annotated[bool, _DRY_RUN] = False,
    show_config: Annotated[bool, _SHOW_CONFIG] = False,
    json: Annotated[bool, _JSON] = False,
    local_rank: Annotated[int | None, _LOCAL_RANK] = None,  # noqa: ARG001 - the environment says the same
    **settings: Any,
) -> None:
    """Tune a model on trajectories: it learns from the repair, never from the mistake.

    The same command again continues a training that was interrupted.

    Exits with 0 when it is done, 1 when it could not go on, 2 when it was asked
    wrongly, 3 when the folder cannot be written, 130 after Ctrl-C, 143 after SIGTERM.
    """
    if data and data[0] == "merge":
        raise InputError(
            "refinesynth train merge is removed. Merge an adapter with peft: AutoPeftModelForCausalLM.from_pretrained(ADAPTER)"
            ".merge_and_unload().save_pretrained(FOLDER). A data folder of this name is ./merge"
        )
    if show_config + preview + dry_run > 1:
        raise InputError("give one of --show-config, --preview and --dry-run")
    if sample is not None and not preview:
        raise InputError("--sample is for --preview alone; give that too, or leave it out")
    options: dict[str, Any] = {**settings, "lora": lora, "data": [*(data or ()), *(more_data or ())] or None}
    recipe = options.pop("recipe", None)
    typed = given(options, assignments=set_ or [])

    def settled(**defaults: Any) -> Layered:
        return layered(recipe=recipe, file=config, given=typed, defaults=defaults)

    begun: TrainConfig | None = None
    try:
        if show_config:
            code = _show_config(settled(data=["DATA"], model="MODEL", output="FOLDER"))
        elif preview or dry_run:
            unwritten = settled(output="models/not-written")
            code = _preview(unwritten, sample or 1) if preview else _plan(unwritten, json=json)
        else:
            begun = settled().config
            code = _train(begun, json=json)
    except KeyboardInterrupt:
        _note_interrupted(begun)
        code = ExitCode.INTERRUPTED
    except RefinesynthError as error:
        code = _reported(error)
    raise typer.Exit(code)


_HEAD_START: Final = 3.0
"""Seconds that other ranks leave rank 0 to report an error, before their end makes a launcher end it."""


def _train(config: TrainConfig, *, json: bool) -> ExitCode:
    """Train and return the exit code. Standard output gets the report, standard error all before it."""
    from refinesynth.cli.train_display import TrainDisplay
    from refinesynth.train.trainer import train

    if rank() != 0:
        return _exit_code(train(config))
    done_before = config.resume != "never" and finished(Path(config.output)) is not None
    console = notes()
    display = TrainDisplay(console)
    try:
        result = train(config, events=display)
    finally:
        display.close()
    write_outcome(result)
    if is_reported_by_launcher():
        return _exit_code(result)
    # A reader that has gone changes no exit code: the training is done, and its files are there.
    with suppress(BrokenPipeError):
        if done_before:
            console.print("nothing was left to do: this training was finished before", soft_wrap=True)
        _report(result, json=json)
        if not json and result.signal is None and not result.held_out and config.keep == ALL:
            kept = one_line(str(result.output / CHECKPOINTS))
            output().print(
                f"Nothing was held out: it is the model of the last step. Those of earlier ones are in {kept}; evaluate them to choose.",
                soft_wrap=True,
            )
    return _exit_code(result)


def _note_interrupted(config: TrainConfig | None) -> None:
    """Say what an interruption without a checkpoint of its own left; `config`: of a training that had begun."""
    checkpoints = None if config is None else Path(config.output, CHECKPOINTS)
    if checkpoints is None:
        left = "nothing was written"
    elif any(checkpoints.glob("checkpoint-*")):
        left = f"the same command goes on from the newest checkpoint in {one_line(str(checkpoints))}"
    else:
        left = "there is no checkpoint yet: the same command begins again"
    if rank() == 0:
        notes().print(f"interrupted; {left}", soft_wrap=True)


def _exit_code(result: TrainResult) -> ExitCode:
    return ExitCode.OK if result.signal is None else EXIT_CODES[signal.Signals(result.signal)]


def _report(result: TrainResult, *, json: bool) -> None:
    from refinesynth.cli.train_display import held_out

    where = one_line(str(result.output))
    if json:
        print_json(result.as_json())
    if result.signal is not None:
        again = shlex.quote(str(result.output / CONFIG))
        start = "torchrun ... -m refinesynth.train" if is_launched() else "refinesynth train"
        console = notes()
        console.print(
            f"interrupted at step {result.steps:,} of {result.planned_steps:,}; a checkpoint is saved in {where}. To continue:",
            soft_wrap=True,
        )
        console.print(one_line(f"  {start} --config {again}"), style="bold", soft_wrap=True)
        return
    if json:
        return
    console = output()
    early = ", stopped early" if result.stopped_early else ""
    console.print(
        f"\n{result.steps:,} of {result.planned_steps:,} steps{early}, {result.epochs:.2f} epochs; training loss {result.loss:.4f} (mean of the last logged steps)",
        soft_wrap=True,
    )
    if result.held_out:
        best = "" if result.best_step is None else f" (the model of step {result.best_step:,}, the best)"
        console.print(f"{held_out(result.held_out)}{best}", soft_wrap=True)
    console.print(styled(f"The model is in {where}, with its card in README.md."), soft_wrap=True)


def _reported(error: RefinesynthError) -> ExitCode:
    """Report an error once: in one process, or in the launcher."""
    if rank() != 0 and isinstance(error, InputError):
        time.sleep(_HEAD_START)
        return code_of(error)
    write_outcome(error)
    if is_reported_by_launcher():
        return code_of(error)
    raise error


def _show_config(layers: Layered) -> ExitCode:
    if rank() == 0:
        output().print(printable(explained_yaml(layers)), end="", soft_wrap=True)
    return ExitCode.OK


def _preview(layers: Layered, sample: int) -> ExitCode:
    from refinesynth.cli.train_display import LEGEND, preview_laid_out
    from refinesynth.train.trainer import preview_data

    found = preview_data(layers.config, sample)
    if not found:
        raise InputError("there is nothing to train on in the data: --dry-run says why")
    if rank() == 0:
        console = output()
        for example in found:
            console.print(preview_laid_out(example))
            console.print()
        console.print(LEGEND, style="dim")
    return ExitCode.OK


def _plan(layers: Layered, *, json: bool) -> ExitCode:
    from refinesynth.cli.train_display import as_lines, laid_out
    from refinesynth.train.engine import plan

    found = plan(layers.config)
    if rank() == 0:
        console = output()
        if json:
            print_json(found.as_json())
        elif console.is_terminal:
            console.print(laid_out(found))
        else:
            console.print(as_lines(found), soft_wrap=True)
    return ExitCode.OK
