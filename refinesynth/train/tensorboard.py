"""A training's metrics as TensorBoard event files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refinesynth.train.extra import require
from refinesynth.train.plan import Plan


class TensorBoard:
    """Writes what is logged under `train/` and what is evaluated under `held_out/`, by step.

    Raises:
        ConfigurationError: TensorBoard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        require("tensorboard")
        self._folder = folder
        self._writer: Any = None

    def planned(self, plan: Plan) -> None: ...

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write("train", step, metrics)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._write("held_out", step, metrics)

    def saved(self, path: Path) -> None: ...

    def note(self, text: str) -> None: ...

    def _write(self, group: str, step: int, metrics: Mapping[str, float]) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # pyright: ignore[reportPrivateImportUsage]

            # Steps that a resumed training does again replace those that are there.
            self._writer = SummaryWriter(str(self._folder), purge_step=step)
        for name, value in metrics.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)
        self._writer.flush()
