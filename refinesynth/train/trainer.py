"""Refinement tuning from Python."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from refinesynth.extras import check_installed
from refinesynth.train.adapter import with_own_settings
from refinesynth.train.artefacts import Artefacts
from refinesynth.train.config import TrainConfig
from refinesynth.train.data.reading import weighed
from refinesynth.train.events import Events, NullEvents, TrainResult
from refinesynth.train.folder import check_output
from refinesynth.train.layers import layered
from refinesynth.train.plan import Plan
from refinesynth.train.ranks import is_launched, rank

if TYPE_CHECKING:
    from refinesynth.train.preview import Preview


class Trainer:
    """A training that can be looked at before it is begun.

        trainer = Trainer(model="Qwen/Qwen3-4B-Instruct-2507", data="runs/first", output="models/first", recipe="lora")
        print(trainer.plan().memory)
        result = trainer.train()

    `data` is a run folder, a file or the name of a dataset, or several; or what is in memory: a `datasets.Dataset`, or
    trajectories or records of any form that files may have. A weight stands behind a name (`"runs/b:0.3"`), or beside
    anything in a pair (`(dataset, 0.3)`). What can be read only once is read here, and kept.

    `model` may be left out where the recipe names one, as `smoke` does. `fields` are those of `TrainConfig`; they
    override the recipe. Every method blocks until it is done: in an event loop, call it in a thread or a process of its
    own.

    Raises:
        ConfigurationError: There is no such recipe or field, or a field does not take its value.
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
        """Every setting."""
        return self._config

    def plan(self) -> Plan:
        """What the training will do and take; reads the data and the model's description, loads no weights, writes
        nothing.

        Raises:
            InputError: It cannot work; the message says why.
        """
        from refinesynth.train.engine import plan

        return plan(self._config) if self._sources is None else plan(self._config, sources=self._sources)

    def preview(self, k: int = 1) -> "list[Preview]":
        """What the model will see of the first `k` conversations, piece by piece, each with what it is to the loss.

        Raises:
            InputError: Data or tokenizer cannot be read, or the chat template does not say which tokens a turn has.
        """
        from refinesynth.train.preview import preview_data

        return preview_data(self._config, k, sources=self._sources)

    def train(self, *, events: Events | None = None) -> TrainResult:
        """Train; see `refinesynth.train.trainer.train`. It blocks, for hours or days."""
        return train(self._config, events=events, sources=self._sources)


def train(config: TrainConfig, *, events: Events | None = None, sources: Sequence[Any] | None = None) -> TrainResult:
    """Train as `config` says and write everything to its output folder; returns when that is done, which may take days.

    A training that was interrupted goes on from its newest sound checkpoint; one that is finished is not done again,
    and gives its result. SIGTERM, and Ctrl-C in the main thread, make it save a checkpoint and return a result that
    names the signal. With several `processes` they are started here, and `events` get nothing: rank 0 shows its own.
    `sources` are data in memory, in the place of `config.data`; they cannot go to processes that are started here.

    Raises:
        InputError: What was asked for cannot be; the message says why.
        TrainingError: It cannot go on.
        StorageError: The output folder cannot be written.
    """
    check_installed("train", "torch", "transformers")
    from refinesynth.train.engine import launch

    config = with_own_settings(config)
    given: dict[str, Any] = {} if sources is None else {"sources": sources}
    if (done := check_output(config)) is not None:
        return done
    if rank() != 0 or (config.processes > 1 and not is_launched()):
        return launch(config, **given)
    artefacts = Artefacts(config, events or NullEvents())
    try:
        result = launch(config, events=artefacts, **given)
        artefacts.finish(result)
    finally:
        artefacts.close()
    return result


def _sources(data: Any) -> tuple[list[str], list[Any] | None]:
    """What is named of the data, and the data itself where it is in memory or given as a pair."""
    if isinstance(data, str | Path):
        return [str(data)], None
    if _is_table(data) or (isinstance(data, tuple) and weighed(data)[0] is not data):
        return [_described(data)], [data]
    items: list[Any] = [data] if isinstance(data, dict) else list(cast("Iterable[Any]", data))
    if all(isinstance(each, str | Path) for each in items):
        return [str(each) for each in items], None
    if all(isinstance(each, str | Path | tuple) or _is_table(each) for each in items):
        return [_described(each) for each in items], items
    return [_described(items)], [items]


def _is_table(data: Any) -> bool:
    """A `datasets` object; the package is not imported for it."""
    return type(data).__module__.partition(".")[0] == "datasets"


def _described(data: Any) -> str:
    """For the card and the settings, which cannot hold it; tokens and labels are recorded by their digest."""
    source, weight = weighed(data)
    if source is not data:
        return f"{_described(source)}:{weight:g}"
    if isinstance(data, str | Path):
        return str(data)
    kind = type(data).__name__
    if isinstance(data, list) or kind == "Dataset":
        return f"in memory: {len(cast('list[Any]', data)):,} records"
    return f"in memory: {kind}"
