"""What `refinesynth train` does with its settings: show them, look at the data, plan, or train and say what came of
it.
"""

import shlex
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

from refinesynth.cli.exits import ExitCode, code_of
from refinesynth.cli.interrupt import EXIT_CODES
from refinesynth.cli.terminal import notes, output, styled
from refinesynth.errors import ConfigurationError, InputError, RefinesynthError
from refinesynth.text.jsontext import write_json
from refinesynth.text.printable import one_line, printable
from refinesynth.train.config import ALL, TrainConfig
from refinesynth.train.events import TrainResult
from refinesynth.train.folder import CHECKPOINTS, CONFIG, finished
from refinesynth.train.layers import TO_BE_GIVEN, Layered, layered
from refinesynth.train.ranks import is_launched, rank

_NOWHERE: Final = "models/not-written"
_UNNAMED: Final = {"data": ["DATA"], "model": "MODEL", "output": "FOLDER"}
_HEAD_START: Final = 3.0
"""Seconds for which other ranks let rank 0 say what is wrong, before their end makes a launcher end it."""


class Asked(Enum):
    """What is wanted."""

    CONFIG = auto()
    PREVIEW = auto()
    PLAN = auto()
    TRAINING = auto()


def act(
    wanted: Asked, recipe: str | None, file: Path | None, given: Mapping[str, Any], *, sample: int, json: bool
) -> ExitCode:
    """Do what is wanted, and return the exit code; under torchrun only rank 0 says anything.

    Raises:
        RefinesynthError: It cannot be done; on rank 0 alone.
    """

    def settle(defaults: Mapping[str, Any]) -> Layered:
        return layered(recipe=recipe, file=file, given=given, defaults=defaults)

    try:
        if wanted is Asked.CONFIG:
            return _show_config(settle(_UNNAMED))
        if wanted is Asked.PREVIEW:
            return _preview(settle({"output": _NOWHERE}), sample)
        if wanted is Asked.PLAN:
            return _plan(settle({"output": _NOWHERE}), json=json)
        return _train(_settled(settle), json=json)
    except KeyboardInterrupt:
        if rank() == 0:
            notes().print("interrupted; nothing was written")
        return ExitCode.INTERRUPTED
    except RefinesynthError as error:
        return _reported(error)


def _settled(settle: Callable[[Mapping[str, Any]], Layered]) -> TrainConfig:
    """All settings; where some are missing, data that is not here is named in the same breath."""
    try:
        return settle({}).config
    except ConfigurationError as error:
        raise ConfigurationError(f"{_wrong_data(settle)}{error}") from None


def _wrong_data(settle: Callable[[Mapping[str, Any]], Layered]) -> str:
    from refinesynth.train.input_check import check_data

    try:
        drafted = settle(_UNNAMED)
        if drafted.origin("data") != TO_BE_GIVEN:
            check_data(drafted.config.data)
    except ConfigurationError:  # more is wrong than what is missing
        return ""
    except InputError as error:
        return f"{error}\n"
    return ""


def _train(config: TrainConfig, *, json: bool) -> ExitCode:
    """Train; of an interruption that saves no checkpoint, before the first step or by a second Ctrl-C, say what is
    kept.
    """
    try:
        return _train_and_report(config, json=json)
    except KeyboardInterrupt:
        if rank() == 0:
            checkpoints = Path(config.output, CHECKPOINTS)
            kept = (
                f"the same command goes on from the newest checkpoint in {one_line(str(checkpoints))}"
                if any(checkpoints.glob("checkpoint-*"))
                else "there is no checkpoint yet: the same command begins again"
            )
            notes().print(f"interrupted; {kept}", soft_wrap=True)
        return ExitCode.INTERRUPTED


def _train_and_report(config: TrainConfig, *, json: bool = False) -> ExitCode:
    """Train, and return the exit code. Standard output gets the report, standard error everything before it.

    Raises:
        RefinesynthError: As `train` raises it.
    """
    from refinesynth.cli.train_display import TrainDisplay
    from refinesynth.train.ranks import is_reported_by_launcher, write_outcome
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


def _exit_code(result: TrainResult) -> ExitCode:
    return ExitCode.OK if result.signal is None else EXIT_CODES[signal.Signals(result.signal)]


def _report(result: TrainResult, *, json: bool) -> None:
    from refinesynth.cli.train_display import held_out

    where = one_line(str(result.output))
    if json:
        fields = {name: getattr(result, name) for name in TrainResult.__dataclass_fields__}
        output().print(printable(write_json({**fields, "output": str(result.output)}).decode()), soft_wrap=True)
    if result.signal is not None:
        console = notes()
        console.print(
            f"interrupted at step {result.steps:,} of {result.planned_steps:,}; a checkpoint is saved in {where}. To continue:",
            soft_wrap=True,
        )
        console.print(f"  {one_line(_how_to_continue(result.output))}", style="bold", soft_wrap=True)
        return
    if json:
        return
    console = output()
    early = ", stopped early" if result.stopped_early else ""
    console.print(
        f"\n{result.steps:,} of {result.planned_steps:,} steps{early}, {result.epochs:.2f} epochs; training loss {result.loss:.4f}",
        soft_wrap=True,
    )
    if result.held_out:
        best = "" if result.best_step is None else f" (the model of step {result.best_step:,}, the best)"
        console.print(f"{held_out(result.held_out)}{best}", soft_wrap=True)
    console.print(styled(f"The model is in {where}, with its card in README.md."), soft_wrap=True)


def _how_to_continue(folder: Path) -> str:
    if is_launched():
        return f"torchrun ... -m refinesynth.train --config {shlex.quote(str(folder / CONFIG))}"
    return shlex.join(["refinesynth", "train", "--config", str(folder / CONFIG)])


def _reported(error: RefinesynthError) -> ExitCode:
    """One process reports what every rank finds wrong; the launcher may report it itself."""
    from refinesynth.train.ranks import is_reported_by_launcher, write_outcome

    if rank() != 0 and isinstance(error, InputError):
        time.sleep(_HEAD_START)
        return code_of(error)
    write_outcome(error)
    if is_reported_by_launcher():
        return code_of(error)
    raise error


def _show_config(layers: Layered) -> ExitCode:
    from refinesynth.train.layers import explained_yaml

    if rank() == 0:
        output().print(printable(explained_yaml(layers)), end="", soft_wrap=True)
    return ExitCode.OK


def _preview(layers: Layered, sample: int) -> ExitCode:
    from refinesynth.cli.train_display import LEGEND, preview_laid_out
    from refinesynth.train.preview import preview_data

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
    from refinesynth.cli.train_plan import as_lines, laid_out
    from refinesynth.train.engine import plan

    found = plan(layers.config)
    if rank() == 0:
        console = output()
        if json:
            console.print(printable(write_json(found.as_json()).decode()), soft_wrap=True)
        elif console.is_terminal:
            console.print(laid_out(found))
        else:
            console.print(as_lines(found), soft_wrap=True)
    return ExitCode.OK
