"""Refinement tuning from Python: training, plan, preview of the loss mask, and a file of token ids and labels."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from refinesynth.errors import InputError
from refinesynth.files.atomic_write import output_file, refuse_existing
from refinesynth.lazy_imports import check_installed
from refinesynth.text.json_reader import write_json
from refinesynth.train import engine
from refinesynth.train.config import SCRATCH, TrainConfig
from refinesynth.train.data.conversation_reader import is_dataset, read_configured, split_weight
from refinesynth.train.events import Events, NullEvents, TrainResult
from refinesynth.train.inputs import with_adapter_settings
from refinesynth.train.layered_settings import layered
from refinesynth.train.plan import Plan
from refinesynth.train.prepare import Counts, examples, fit
from refinesynth.train.ranks import rank
from refinesynth.train.tokens import Label, Rendered
from refinesynth.train.training_folder import ArtefactWriter, check_output, refuse_other_data


class Trainer:
    """Training with a plan and a preview.

        trainer = Trainer(model="Qwen/Qwen3-4B-Instruct-2507", data="runs/first", output="models/first", recipe="lora")
        print(trainer.plan().memory)
        result = trainer.train()

    `data` is a run folder, a file, the name of a dataset, a list of these, or data in memory: a `datasets.Dataset`,
    trajectories or records in any format. Weights are given as `"runs/b:0.3"` or `(dataset, 0.3)`.

    `model` is optional if the recipe names a model, as `smoke` does. `fields` are fields of `TrainConfig` and override
    the recipe. Every method blocks: in an event loop, call it in a thread or a process.

    Raises:
        ConfigurationError: A recipe or field does not exist, or a value is invalid.
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
        is_reusable = isinstance(data, str | Path | list | tuple | dict) or is_dataset(data)
        # Plan, preview and training all read the data: an iterator would be exhausted after the first.
        sources = _sources(data if is_reusable else list(cast("Iterable[Any]", data)))
        self._sources = None if all(isinstance(source, str | Path) for source in sources) else sources
        model_setting = {} if model is None else {"model": str(model)}
        settings = {**model_setting, "data": [*map(_describe_source, sources)], "output": str(output), **fields}
        self._config = layered(recipe=recipe, given=settings, given_by="argument").config

    @property
    def config(self) -> TrainConfig:
        """All settings."""
        return self._config

    def plan(self) -> Plan:
        """Plan the training from the data and the model's configuration, without loading weights or writing files.

        Raises:
            InputError: Data, tokenizer or model cannot be used, or the plan is infeasible.
        """
        return engine.plan(self._config, sources=self._sources)

    def preview(self, k: int = 1) -> "list[Preview]":
        """The first `k` examples as the model sees them, in labelled segments.

        Raises:
            InputError: Data or tokenizer cannot be read, or the labels are not certain with the chat template.
        """
        return preview_data(self._config, k, sources=self._sources)

    def train(self, *, events: Events | None = None) -> TrainResult:
        """Run the training, which may block for hours or days."""
        return train(self._config, events=events, sources=self._sources)


def train(config: TrainConfig, *, events: Events | None = None, sources: Sequence[Any] | None = None) -> TrainResult:
    """Train and write everything to the output folder.

    An interrupted training resumes from its newest sound checkpoint. A finished one returns its result: at once if its
    data or tokenizer are not there any more, else after the data is rendered and found to be the same.
    In the main thread, SIGTERM and Ctrl-C save a checkpoint and return a result with the signal.
    `events` is called on rank 0 only. `sources` is data in memory instead of `config.data`.

    Raises:
        InputError: The settings, data or model cannot be used, or the folder contains a training on other data.
        TrainingError: The training cannot continue.
        StorageError: The output folder cannot be written.
    """
    check_installed("train", "torch", "transformers")
    config = with_adapter_settings(config)
    if (done := check_output(config)) is not None:
        refuse_other_data(done.output, engine.data_digest(config, sources=sources))
        return done
    if rank() != 0:
        return engine.launch(config, sources=sources)
    with closing(ArtefactWriter(config, events or NullEvents())) as artefacts:
        result = engine.launch(config, events=artefacts, sources=sources)
        artefacts.finish(result)
    return result


def _sources(data: Any) -> list[Any]:
    """The sources in `data`, which is one source or a list of sources; a single record is a source."""
    if isinstance(data, dict) and not is_dataset(cast("object", data)):
        data = [cast("object", data)]
    if not isinstance(data, list | tuple) or split_weight(data)[0] is not data:
        return [data]
    items = list(cast("Iterable[Any]", data))
    return items if all(isinstance(item, str | Path | tuple) or is_dataset(item) for item in items) else [items]


def _describe_source(data: Any) -> str:
    """A description of a source for card and settings, which cannot contain the data."""
    source, weight = split_weight(data)
    if source is not data:
        return f"{_describe_source(source)}:{weight:g}"
    if isinstance(data, str | Path):
        return str(data)
    kind = type(data).__name__
    if isinstance(data, list) or kind == "Dataset":
        return f"in memory: {len(cast('list[Any]', data)):,} records"
    return f"in memory: {kind}"


class Segment(NamedTuple):
    """Consecutive tokens with one label."""

    text: str
    """Decoded text with control tokens; may contain untrusted control characters."""
    label: Label
    tokens: int


@dataclass(frozen=True, slots=True)
class Preview:
    """One example in segments."""

    id: str
    segments: tuple[Segment, ...]
    """Segments in order; neighbours have different labels."""
    tokens: int
    trained: int
    """Number of tokens that give loss."""
    mistakes: int
    """Number of tokens of mistakes, which give loss only with `loss_on` `all_turns`."""

    @property
    def trained_share(self) -> float:
        """Share of trained tokens, 0 to 1."""
        return self.trained / self.tokens if self.tokens else 0.0


def preview(rendered: Rendered, tokenizer: Any) -> Preview:
    """Split `rendered` into segments. Time grows with tokens times segments: use it for a few examples."""
    labels, ids = rendered.labels, rendered.input_ids.tolist()
    edges = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(ids)] if ids else [0]

    def decoded(start: int, stop: int) -> str:
        return str(tokenizer.decode(ids[start:stop], skip_special_tokens=False, clean_up_tokenization_spaces=False))

    segments: list[Segment] = []
    previous = ""
    for start, stop in pairwise(edges):
        # Decode the prefix and take what the segment adds: tokenizers join spaces with words.
        prefix = decoded(0, stop)
        text = prefix.removeprefix(previous)
        if not prefix.startswith(previous):  # The bytes of a character lie on both sides of the edge.
            text = decoded(start, stop)
        segments.append(Segment(text, Label(int(labels[start])), stop - start))
        previous = prefix
    return Preview(rendered.id, tuple(segments), len(rendered), rendered.trained, rendered.mistakes)


def preview_data(config: TrainConfig, number: int, *, sources: Sequence[Any] | None = None) -> list[Preview]:
    """The first `number` examples that a training would keep, cut to `max_length`. Loads no weights and writes nothing.

    Raises:
        InputError: Data or tokenizer cannot be read, or the labels are not certain with the chat template.
    """
    engine.prepare(config, sources)
    from refinesynth.train.engine.loading import load_tokenizer, make_renderer
    from refinesynth.train.engine.rank_training import libraries_silenced

    with libraries_silenced(), closing(iter(read_configured(config, sources))) as rest:
        conversations = list(rest) if config.model == SCRATCH else rest
        tokenizer = load_tokenizer(config, conversations)
        renderer = make_renderer(config, tokenizer)
        rendered = (item for conversation in conversations for item in renderer.render(conversation) if item.trained)
        fitted = (fit(item, config.max_length) for item in rendered)
        return [preview(item, tokenizer) for item in islice(filter(None, fitted), number)]


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Counts of a written token file."""

    path: Path
    counts: Counts
    remarks: tuple[str, ...] = ()
    """Notes on conversations that are left out."""


def write_tokens(
    data: Any, path: str | Path, *, model: str | Path, overwrite: bool = False, **fields: Any
) -> TokenFile:
    """Write the examples of a training for other trainers, one row per line, without a held-out split.

    A row is `{"input_ids": [...], "labels": [...]}`. The label of a trained token is its id, all other labels are -100.
    TRL's SFTTrainer and transformers' Trainer accept such rows.
    The file appears whole or not at all; `.gz` compresses it. Sources with a weight are read into memory;
    other sources are streamed.

    Args:
        data: A run folder, a file, a dataset, a list of these with optional weights, or trajectories.
        path: The file.
        model: Hub name, folder or GGUF file; only its tokenizer is loaded.
        overwrite: Replace an existing file.
        fields: Fields of `TrainConfig` for data and rendering: `max_length`, `loss_on`, `chat_template`,
            `tokenizer`, `on_rewrite`, `seed`, ...

    Raises:
        InputError: Data or tokenizer cannot be read, nothing is trained, or the file exists.
    """
    path = Path(path)
    refuse_existing(path, overwrite=overwrite)
    sources = _sources(data)
    config = layered(
        given={**fields, "data": ["given"], "model": str(model), "output": str(path)}, given_by="argument"
    ).config
    if (config.tokenizer or config.model) == SCRATCH:
        raise InputError(
            "tokens are written for a model that is there, and 'scratch' is made when it is trained; give its name or folder"
        )
    engine.prepare(config, sources)
    from refinesynth.train.engine.loading import load_tokenizer, make_renderer
    from refinesynth.train.engine.rank_training import libraries_silenced

    with libraries_silenced():
        renderer = make_renderer(config, load_tokenizer(config))
    reader, counts = read_configured(config, sources), Counts()
    with output_file(path, overwrite=overwrite) as file:
        for example in examples(reader, renderer, config.max_length, counts):
            labels = np.where(example.labels == Label.TRAINED, example.input_ids, -100)
            row = {"input_ids": example.input_ids.tolist(), "labels": labels.tolist()}
            file.write(write_json(row) + b"\n")
        if not counts.records:
            raise InputError(
                f"nothing to write: none of {counts.conversations} conversations has a turn to train on within {config.max_length:,} tokens"
            )
    return TokenFile(path, counts, tuple(reader.remarks()))
