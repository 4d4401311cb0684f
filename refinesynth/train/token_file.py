"""File with the token ids and labels of a training, for other trainers.

A row is `{"input_ids": [...], "labels": [...]}`; a label is the token's own id, or -100 where nothing is trained. TRL's
SFTTrainer and transformers' Trainer take such rows as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.files.atomic_write import output_file, refuse_existing
from refinesynth.text.json_reader import write_json
from refinesynth.train.config import SCRATCH
from refinesynth.train.data import read_configured
from refinesynth.train.input_check import check_inputs
from refinesynth.train.layered_settings import layered
from refinesynth.train.prepare import Counts, DataCounter, examples
from refinesynth.train.tokens import Label

IGNORED: Final = -100
"""Label of a token that gives no loss."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Counts of a written file."""

    path: Path
    counts: Counts
    trained_turns: int
    """Trained assistant turns, over all rows."""
    other_turns: int
    """Assistant turns that are context."""
    longest: int
    """Tokens of the longest row."""


def write_tokens(
    data: Any, path: str | Path, *, model: str | Path, overwrite: bool = False, **fields: Any
) -> TokenFile:
    """Write the examples of a training with these settings, nothing held out, one row per line.

    The file appears whole or not at all; `.gz` and `.zst` compress it. Memory does not grow with the data, except for
    sources with a weight.

    Args:
        data: A run folder, a file, a dataset, several with weights, or trajectories; as for `read_conversations`.
        path: The file.
        model: Hub name, folder or GGUF file; only its tokenizer is loaded.
        overwrite: Replace an existing file.
        fields: Fields of `TrainConfig` for data and rendering: `max_length`, `over_length`, `loss_on`, `chat_template`,
            `tokenizer`, `on_rewrite`, `seed`, ...

    Raises:
        InputError: Data or tokenizer cannot be read, nothing is trained, or the file exists.
    """
    path = Path(path)
    refuse_existing(path, overwrite=overwrite)
    every = list(cast("Sequence[Any]", data)) if isinstance(data, list | tuple) else [data]
    sources: Sequence[Any] = every if all(isinstance(each, str | Path | tuple) for each in every) else [data]
    config = layered(
        given={**fields, "data": ["given"], "model": str(model), "output": str(path)}, given_by="argument"
    ).config
    check_installed("train", "torch", "transformers")
    check_inputs(config, sources)
    from refinesynth.train.engine.loading import load_tokenizer, make_renderer
    from refinesynth.train.engine.rank_training import libraries_silenced

    if (config.tokenizer or config.model) == SCRATCH:
        raise InputError(
            "tokens are written for a model that is there, and 'scratch' is made when it is trained; give its name or folder"
        )
    with libraries_silenced():
        renderer = make_renderer(config, load_tokenizer(config))
    reading = read_configured(config, sources)
    account = DataCounter()
    with output_file(path, overwrite=overwrite) as file:
        for example in examples(reading, renderer, config.max_length, config.over_length, account):
            labels = np.where(example.labels == Label.TRAINED, example.input_ids, IGNORED)
            row = {"input_ids": example.input_ids.tolist(), "labels": labels.tolist()}
            file.write(write_json(row) + b"\n")
        counts = account.counts()
        if not counts.records:
            raise InputError(
                f"nothing to write: none of {counts.conversations} conversations has a turn to train on within {config.max_length:,} tokens"
            )
    turns = account.numbers["trained_turns"], account.numbers["other_turns"]
    return TokenFile(path, counts, *turns, account.longest)
