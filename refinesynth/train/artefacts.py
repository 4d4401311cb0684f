"""What a training leaves in its output folder beside the model: everything to understand it and to repeat it."""

import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from refinesynth._version import __version__
from refinesynth.files.atomic_write import write_json_file, write_text_file
from refinesynth.files.output_folder import FolderLock
from refinesynth.train import folder
from refinesynth.train.card import ModelFacts, render_card
from refinesynth.train.config import TrainConfig
from refinesynth.train.events import NullEvents
from refinesynth.train.metrics import MetricsFile
from refinesynth.train.plan import Devices, Plan
from refinesynth.train.result import TrainResult

_PACKAGES: Final = (
    *("torch", "transformers", "accelerate", "peft", "deepspeed", "tokenizers", "safetensors", "datasets", "numpy"),
    *("liger-kernel", "flash-attn"),
)


class Artefacts(NullEvents):
    """Writes settings, plan, versions and metrics as a training goes on, and its card when it is finished; for rank 0.

    Raises:
        StorageError: From every method: a file cannot be written.
    """

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._output = Path(config.output)
        self._metrics = MetricsFile(self._output / folder.METRICS)
        self._plan: Plan | None = None
        self._lock: FolderLock | None = None

    def planned(self, plan: Plan) -> None:
        self._plan = plan
        self.close()
        self._lock = folder.open_output(self._config, plan)
        write_json_file(self._output / folder.VERSIONS, versions(plan.devices))

    def logged(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics.logged(step, metrics)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics.evaluated(step, metrics)

    def finish(self, result: TrainResult) -> None:
        """Write the card and the result of a training that is finished, and not interrupted."""
        if result.signal is None and self._plan is not None:
            facts = ModelFacts(self._config, self._plan, result, versions(self._plan.devices))
            write_text_file(self._output / folder.CARD, render_card(facts))
            folder.note_result(result)

    def close(self) -> None:
        """Let other trainings have the folder, however this one ended."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


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
