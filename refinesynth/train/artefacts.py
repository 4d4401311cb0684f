"""What a training leaves in its output folder beside the model: everything to understand it and to repeat it."""

import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from refinesynth._version import __version__
from refinesynth.extras import require
from refinesynth.files.atomic_write import write_json_file, write_text_file
from refinesynth.files.output_folder import FolderLock
from refinesynth.train import folder
from refinesynth.train.card import ModelFacts, render_card
from refinesynth.train.config import TrainConfig
from refinesynth.train.events import NullEvents
from refinesynth.train.metrics import MetricsFile, read_metrics
from refinesynth.train.plan import Devices, Plan
from refinesynth.train.plots import draw_plots
from refinesynth.train.pushing import Pushing
from refinesynth.train.result import TrainResult

_PACKAGES: Final = (
    *("torch", "transformers", "accelerate", "peft", "deepspeed", "tokenizers", "safetensors", "datasets", "numpy"),
    *("liger-kernel", "flash-attn"),
)


class Artefacts(NullEvents):
    """Writes settings, plan, versions, metrics and plots as a training goes on, and its card when it is finished; for
    rank 0.

    Raises:
        ConfigurationError: A library that was asked for is not installed.
        StorageError: From every method: a file cannot be written.
    """

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._output = Path(config.output)
        self._metrics = MetricsFile(self._output / folder.METRICS)
        if config.plots:
            require("matplotlib", "train")
        self._pushing = Pushing(config)
        self._plan: Plan | None = None
        self._lock: FolderLock | None = None

    def planned(self, plan: Plan) -> None:
        self._plan = plan
        self.close()
        self._lock = folder.open_output(self._config, plan)
        self._pushing.prepare()
        write_json_file(self._output / folder.VERSIONS, versions(plan.devices))

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics.logged(step, metrics)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics.evaluated(step, metrics)
        self._draw()

    def finish(self, result: TrainResult) -> None:
        """Draw the curves; if the training is finished, and not interrupted, write its card and its result, and push
        them.

        Raises:
            TrainingError: The model is whole, but could not be pushed.
        """
        self._draw()
        if result.signal is None and self._plan is not None:
            facts = ModelFacts(self._config, self._plan, result, versions(self._plan.devices))
            write_text_file(self._output / folder.CARD, render_card(facts))
            folder.note_result(result)
            self._pushing.push()

    def close(self) -> None:
        """Let other trainings have the folder, however this one ended."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _draw(self) -> None:
        """The curves of all steps, those before a resume too."""
        if self._config.plots:
            draw_plots(list(read_metrics(self._output / folder.METRICS)), self._output / folder.PLOTS)


def versions(devices: Devices) -> dict[str, str | int]:
    """What a training ran on, so that it can be repeated: packages by name, Python, operating system and device.

    What is not installed is left out, and so is all that names a person or a machine.
    """
    found: dict[str, str | int] = {"refinesynth": __version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        **found,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": devices.name,
        "ranks": devices.ranks,
    }
