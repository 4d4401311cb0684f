"""Refinement tuning from Python."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from refinesynth.extras import check_installed
from refinesynth.train.artefacts import Artefacts
from refinesynth.train.config import TrainConfig
from refinesynth.train.data.conversation_reader import weighed
from refinesynth.train.data.record_files import is_dataset
from refinesynth.train.events import Events, NullEvents, TrainResult
from refinesynth.train.existing_adapter import with_own_settings
from refinesynth.train.layered_settings import layered
from refinesynth.train.plan import Plan
from refinesynth.train.ranks import is_launched, rank
from refinesynth.train.training_folder import check_output

if TYPE_CHECKING:
    from refinesynth.train.loss_mask_preview import Preview


class Trainer:
    """Training with a plan and a preview.

        trainer = Trainer(model="Qwen/Qwen3-4B-Instruct-2507", data="runs/first", output="models/first", recipe="lora")
        print(trainer.plan().memory)
        result = trainer.train()

    `data` is a run folder, a file or the name of a dataset, several of them, or data in memory: a `datasets.Dataset`,
    trajectories or records of any form. A weight follows a name (`"runs/b:0.3"`) or is in a pair (`(dataset, 0.3)`).

    `model` may be left out where the recipe names one, as `smoke` does. `fields` are those of `TrainConfig`; they
    override the recipe. Every method blocks: in an event loop, call it in a thread or a process.

    Raises:
        ConfigurationError: A recipe or field does not exist, or a field does not take its value.
    """

    def __init__(
        self,
        *,
        data: "str | Path | Iterable[Any]",
        output: str | Path,
        model: str | Path | None = None,
        recipe: str | None = None,
        **fields: Any,
    ) -> None:
        names, self._sources = _sources(data)
        named = {} if model is None else {"model": str(model)}
        given = {**named, "data": names, "output": str(output), **fields}
        self._config = layered(recipe=recipe, given=given, given_by="argument").config

    @property
    def config(self) -> TrainConfig:
        """All settings."""
        return self._config

    def plan(self) -> Plan:
        """Plan the training; reads the data and the model's description, loads no weights, writes nothing.

        Raises:
            InputError: It cannot work.
        """
        from refinesynth.train.engine import plan

        return plan(self._config, sources=self._sources)

    def preview(self, k: int = 1) -> "list[Preview]":
        """The first `k` conversations as the model sees them, in labelled pieces.

        Raises:
            InputError: Data or tokenizer cannot be read, or the chat template does not say which tokens a turn has.
        """
        from refinesynth.train.loss_mask_preview import preview_data

        return preview_data(self._config, k, sources=self._sources)

    def train(self, *, events: Events | None = None) -> TrainResult:
        """Run the training; blocks for hours or days."""
        return train(self._config, events=events, sources=self._sources)


def train(config: TrainConfig, *, events: Events | None = None, sources: Sequence[Any] | None = None) -> TrainResult:
    """Train and write everything to the output folder.

    An interrupted training resumes from its newest sound checkpoint; a finished one returns its result at once.
    SIGTERM, and Ctrl-C in the main thread, save a checkpoint and return a result that names the signal. With several
    `processes`, they are started here and `events` get nothing. `sources` are data in memory instead of `config.data`;
    they cannot go to processes that are started here.

    Raises:
        InputError: The settings, data or model cannot be used.
        TrainingError: The training cannot continue.
        StorageError: The output folder cannot be written.
    """
    check_installed("train", "torch", "transformers")
    from refinesynth.train.engine import launch

    config = with_own_settings(config)
    if (done := check_output(config)) is not None:
        return done
    if rank() != 0 or (config.processes > 1 and not is_launched()):
        return launch(config, sources=sources)
    artefacts = Artefacts(config, events or NullEvents())
    try:
        result = launch(config, events=artefacts, sources=sources)
        artefacts.finish(result)
    finally:
        artefacts.close()
    return result


def _sources(data: Any) -> tuple[list[str], list[Any] | None]:
    """Names for the settings, and the data itself if it is in memory or in a pair."""
    is_one = isinstance(data, str | Path) or is_dataset(data) or weighed(data)[0] is not data
    items: list[Any] = [data] if is_one or isinstance(data, dict) else list(cast("Iterable[Any]", data))
    if all(isinstance(each, str | Path) for each in items):
        return [str(each) for each in items], None
    sources = items if all(isinstance(each, str | Path | tuple) or is_dataset(each) for each in items) else [items]
    return [*map(_described, sources)], sources


def _described(data: Any) -> str:
    """A description for card and settings, which cannot hold the data."""
    source, weight = weighed(data)
    if source is not data:
        return f"{_described(source)}:{weight:g}"
    if isinstance(data, str | Path):
        return str(data)
    kind = type(data).__name__
    if isinstance(data, list) or kind == "Dataset":
        return f"in memory: {len(cast('list[Any]', data)):,} records"
    return f"in memory: {kind}"
