"""A training from start to report: train under a display, and say what came of it."""

import shlex
import signal
from contextlib import suppress
from pathlib import Path

from refinesynth.cli.exits import ExitCode
from refinesynth.cli.interrupt import EXIT_CODES
from refinesynth.cli.terminal import notes, output, styled
from refinesynth.cli.train_display import TrainDisplay, held_out
from refinesynth.jsontext import write_json
from refinesynth.printable import one_line, printable
from refinesynth.train.config import ALL, TrainConfig
from refinesynth.train.engine.outcome import tell, told_elsewhere
from refinesynth.train.folder import CHECKPOINTS, CONFIG, finished
from refinesynth.train.ranks import is_started, rank
from refinesynth.train.result import TrainResult
from refinesynth.train.training import train


def train_and_report(config: TrainConfig, *, json: bool = False) -> ExitCode:
    """Train, and return the exit code. Standard output gets the report, standard error everything before it.

    Raises:
        RefinesynthError: As `train` raises it.
    """
    if rank() != 0:
        return _code(train(config))
    done_before = config.resume != "never" and finished(Path(config.output)) is not None
    console = notes()
    display = TrainDisplay(console)
    try:
        result = train(config, events=display)
    finally:
        display.close()
    tell(result)
    if told_elsewhere():
        return _code(result)
    # Whoever does not read the report still gets the exit code: the training is done, and its files are there.
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
    return _code(result)


def _code(result: TrainResult) -> ExitCode:
    return ExitCode.OK if result.signal is None else EXIT_CODES[signal.Signals(result.signal)]


def _report(result: TrainResult, *, json: bool) -> None:
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
        console.print(f"  {one_line(how_to_continue(result.output))}", style="bold", soft_wrap=True)
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


def how_to_continue(folder: Path) -> str:
    """The command that continues an interrupted training."""
    if is_started():
        return f"torchrun ... -m refinesynth.train --config {shlex.quote(str(folder / CONFIG))}"
    return shlex.join(["refinesynth", "train", "--config", str(folder / CONFIG)])
