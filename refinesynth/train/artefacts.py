"""What a training leaves in its output folder beside the model: everything to understand it and to repeat it."""

from collections.abc import Mapping
from pathlib import Path

from refinesynth.atomic_write import write_json_file, write_text_file
from refinesynth.output_folder import FolderLock
from refinesynth.train import folder
from refinesynth.train.card import ModelFacts, render_card
from refinesynth.train.config import TrainConfig
from refinesynth.train.events import Events, Several
from refinesynth.train.metrics import MetricsFile
from refinesynth.train.plan import Plan
from refinesynth.train.plots import Plots
from refinesynth.train.pushing import Pushing
from refinesynth.train.result import TrainResult
from refinesynth.train.versions import versions


class Artefacts:
    """Writes settings, plan, versions, metrics and plots as a training goes on, and its card when it is finished; for rank 0.

    Raises:
        ConfigurationError: A library that was asked for is not installed.
        StorageError: From every method: a file cannot be written.
    """

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._output = Path(config.output)
        metrics = self._output / folder.METRICS
        self._plots = Plots(metrics, self._output / folder.PLOTS) if config.plots else None
        writers: list[Events] = [MetricsFile(metrics)]
        if self._plots is not None:
            writers.append(self._plots)
        self._writers = Several(*writers)
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
        self._writers.logged(step, metrics)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        self._writers.evaluated(step, metrics)

    def saved(self, path: Path) -> None: ...

    def note(self, text: str) -> None: ...

    def finish(self, result: TrainResult) -> None:
        """Draw the curves; if the training is finished, and not interrupted, write its card and its result, and push them.

        Raises:
            TrainingError: The model is whole, but could not be pushed.
        """
        if self._plots is not None:
            self._plots.draw()
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
