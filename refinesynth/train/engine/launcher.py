"""Entry to a training, in this process (also under torchrun) or in new processes on this machine. Imports no torch."""

import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, Final

from refinesynth.errors import ConfigurationError, TrainingError
from refinesynth.extras import require
from refinesynth.train.config import TrainConfig, TrainerConfig
from refinesynth.train.events import Events, NullEvents, TrainResult
from refinesynth.train.inputs import check_inputs, with_adapter_settings
from refinesynth.train.plan import Plan
from refinesynth.train.ranks import OUTCOME, free_port, is_launched, read_outcome, signals_handled
from refinesynth.train.training_folder import read_result

_KILL_TIMEOUT: Final = 10.0
"""Seconds until the other ranks are killed after one rank has failed."""
_POLL_INTERVAL: Final = 0.2


def launch(config: TrainConfig, *, events: Events | None = None, sources: Sequence[Any] | None = None) -> TrainResult:
    """Train with `config.processes` processes, and wait for the end.

    Several processes run `python -m refinesynth.train --config FILE`; rank 0 reports, and `events` is not called.
    SIGTERM and SIGINT are passed on: the ranks save a checkpoint and end. `sources` is data in memory.

    Raises:
        ConfigurationError: `sources` is given, and several processes are to be started.
        RefinesynthError: The error of the training; `TrainingError` if the ranks ended without an error.
        KeyboardInterrupt: Ctrl-C before the first step.
    """
    check_inputs(config, sources)
    if is_launched() or config.processes == 1:
        check_trainer(config)
        from refinesynth.train.engine.rank_training import run_training

        return run_training(config, events=events or NullEvents(), sources=sources)
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
        code, signals = _run_ranks(config.processes, settings, outcome)
        result = read_outcome(outcome)
    if result is not None and result.signal is not None and signals:
        # The ranks always get SIGTERM: report the signal that this process received.
        result = replace(result, signal=signals[0])
    if result is None and code != 0 and signals:
        signal.raise_signal(signals[0])  # before the first step: the usual effect of the signal
    if result is None and code == 0:
        result = read_result(Path(config.output))  # the training was already finished
    if result is None or (code != 0 and result.signal is None):
        raise TrainingError(
            f"the {config.processes} training processes ended with exit code {code} and said no reason; it may stand above. "
            f"Killed by the system: memory was short; take fewer tokens_per_pack, or parallel zero3 or fsdp."
        )
    return result


def _run_ranks(number: int, settings: Path, outcome: Path) -> tuple[int, list[int]]:
    """Start the ranks and wait; return the exit code of the first failed rank, else 0, and the received signals.

    The first signal is passed on as SIGTERM; a second one kills the ranks. After a failure, the other ranks are killed
    after `_KILL_TIMEOUT` seconds.
    """
    processes: list[subprocess.Popen[bytes]] = []
    signals: list[int] = []

    def forward(received: int, _frame: FrameType | None) -> None:
        signals.append(received)
        for process in processes:
            process.send_signal(signal.SIGTERM if len(signals) == 1 else signal.SIGKILL)

    base = {**os.environ, OUTCOME: str(outcome), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    base |= {"WORLD_SIZE": str(number), "LOCAL_WORLD_SIZE": str(number)}
    base.setdefault("OMP_NUM_THREADS", "1")
    code, deadline = 0, math.inf
    with signals_handled(forward, hangup=True):  # the ranks have their own sessions and would outlive this process
        try:
            for rank in range(number):
                # In an own session, a rank gets Ctrl-C of the terminal once, through this process.
                environment = base | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                processes.append(subprocess.Popen(rank_command(settings), env=environment, start_new_session=True))  # noqa: S603
            if signals:  # received before all ranks were started
                for process in processes:
                    process.send_signal(signal.SIGTERM)
            while running := [process for process in processes if process.poll() is None]:
                if not code and (code := _first_exit_code(processes)):
                    deadline = monotonic() + _KILL_TIMEOUT
                if monotonic() > deadline:
                    break
                with suppress(subprocess.TimeoutExpired):
                    running[0].wait(_POLL_INTERVAL)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return code or _first_exit_code(processes), signals


def _first_exit_code(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    return next((process.returncode for process in processes if process.returncode), 0)


def rank_command(settings: Path) -> list[str]:
    return [sys.executable, "-m", "refinesynth.train", "--config", str(settings)]


def plan(config: TrainConfig, *, sources: Sequence[Any] | None = None) -> Plan:
    """Plan a training, without loading weights or writing files."""
    check_inputs(config, sources)
    check_trainer(config)
    from refinesynth.train.engine.parallel import Distributed
    from refinesynth.train.engine.rank_training import libraries_silenced, prepare_training

    config = with_adapter_settings(config)
    with libraries_silenced():
        return prepare_training(config, Distributed.from_environment(config), sources).plan


def check_trainer(config: TrainConfig) -> None:
    """Raises: ConfigurationError: A library is missing, or rejects the optimizer or schedule settings."""
    choose_accelerator()
    from refinesynth.train.engine.parallel import check_loop

    check_loop(config)


def choose_accelerator() -> None:
    """Set DeepSpeed's accelerator on machines without a GPU: its own detection prints a warning on every command."""
    # peft imports bitsandbytes, which warns about missing CPU kernels.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    torch = require("torch", "train")
    require("transformers", "train")
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
