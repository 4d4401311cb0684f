"""The way into a training: in place, or as ranks that torchrun starts on this machine. Imports no torch.

Under torchrun itself (`RANK` is set) and for a single process the training runs in place.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from refinesynth.errors import ConfigurationError, TrainingError
from refinesynth.extras import check_installed, require
from refinesynth.train.adapter import with_own_settings
from refinesynth.train.config import TrainConfig, TrainerConfig
from refinesynth.train.events import Events, NullEvents, TrainResult
from refinesynth.train.folder import finished
from refinesynth.train.input_check import check_inputs
from refinesynth.train.plan import Plan
from refinesynth.train.ranks import OUTCOME, is_launched, read_outcome

_SAVING_SECONDS = 3600
"""How long ranks may take to save after SIGTERM before torchrun kills them; its own 30 s do not write a large
checkpoint."""


def launch(config: TrainConfig, *, events: Events | None = None, sources: Sequence[Any] | None = None) -> TrainResult:
    """Train with as many processes as `config.processes` says, and wait for the end.

    With several, each runs `python -m refinesynth.train --config FILE`, whose rank 0 shows what happens; `events` gets
    nothing then. SIGTERM and SIGINT are passed on: the ranks save a checkpoint and end, and so does this. `sources` is
    data in memory.

    Raises:
        ConfigurationError: Data in memory, and several processes to be started.
        RefinesynthError: What ended the training; `TrainingError` if the ranks ended without saying why.
        KeyboardInterrupt: Ctrl-C before the first step.
    """
    check_inputs(config, sources)
    if is_launched() or config.processes == 1:
        return run(config, events=events) if sources is None else run(config, events=events, sources=sources)
    if sources is not None:
        raise ConfigurationError(
            f"data that is in memory cannot be given to {config.processes} processes that are to be started; write it to a file (a line of "
            f"JSON each, or `save_to_disk`) and name that, or start this program itself with torchrun"
        )
    if config.trainer != TrainerConfig() or config.tensorboard or config.schedule != "cosine":
        check_trainer(config)
    with tempfile.TemporaryDirectory(prefix="refinesynth-train-") as folder:
        settings, outcome = Path(folder) / "train.yaml", Path(folder) / "outcome.json"
        settings.write_text(config.model_dump_json(indent=1), encoding="utf-8")  # JSON is YAML
        # A session of its own: Ctrl-C in a terminal must reach the ranks once, through us, not a second time from the
        # terminal.
        started = subprocess.Popen(  # noqa: S603 - this interpreter, on a file of ours
            command(config.processes, settings), env=_environment(outcome), start_new_session=True
        )
        with _passing_on(started) as passed:
            code = started.wait()
        result = read_outcome(outcome)
    if result is not None and result.signal is not None and passed:
        # The ranks get SIGTERM, whichever signal came here.
        result = replace(result, signal=passed[0])
    if result is None and code != 0 and passed:
        signal.raise_signal(passed[0])  # before the first step: as if nothing had been started
    if result is None and code == 0:
        result = finished(Path(config.output))  # it was finished before: nothing was done again
    if result is None or (code != 0 and result.signal is None):
        raise TrainingError(
            f"the {config.processes} training processes ended with exit code {code} and said no reason; it may stand above. "
            f"Killed by the system: memory was short; take fewer tokens_per_pack, or parallel zero3 or fsdp."
        )
    return result


def command(processes: int, settings: Path) -> list[str]:
    """What starts the ranks."""
    ranks = ["--standalone", "--nproc-per-node", str(processes)]
    return [
        sys.executable,
        "-m",
        "refinesynth.train.engine.agent",
        *ranks,
        "-m",
        "refinesynth.train",
        "--config",
        str(settings),
    ]


def _environment(outcome: Path) -> dict[str, str]:
    environment = dict(os.environ) | {OUTCOME: str(outcome)}
    environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_SAVING_SECONDS))
    environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


@contextmanager
def _passing_on(started: subprocess.Popen[bytes]) -> Generator[list[int]]:
    """Gives the signals that were passed on."""
    passed: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        passed.append(number)
        started.send_signal(signal.SIGTERM)

    try:
        before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread, which alone may handle signals
        before = {}
    try:
        yield passed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(config: TrainConfig, *, events: Events | None = None, sources: Sequence[Any] | None = None) -> TrainResult:
    """Train on this rank: see `refinesynth.train.engine.running.run_training`."""
    check_trainer(config)
    from refinesynth.train.engine.running import run_training

    return run_training(config, events=events or NullEvents(), sources=sources)


def plan(config: TrainConfig, *, sources: Sequence[Any] | None = None) -> Plan:
    """What the training will do and take: see `refinesynth.train.engine.running.plan_training`."""
    check_installed("train", "torch", "transformers")
    check_inputs(config, sources)
    check_trainer(config)
    from refinesynth.train.engine.running import plan_training

    return plan_training(with_own_settings(config), sources=sources)


def check_trainer(config: TrainConfig) -> None:
    """Make sure that the library is the one that this was written for, and takes what `config.trainer` gives it.

    Raises:
        ConfigurationError: It is not, or does not.
    """
    choose_accelerator()
    from refinesynth.train.engine.signatures import TRAINING, check

    check(TRAINING)
    from refinesynth.train.engine.parallel import check_loop

    check_loop(config)


def choose_accelerator() -> None:
    """Set for DeepSpeed that there is no GPU before it is imported: left to detect it, it warns on every command.

    Raises:
        ConfigurationError: torch or transformers is not installed.
    """
    # peft imports it, and it warns of kernels that a CPU could have.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    torch = require("torch", "train")
    require("transformers", "train")
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
