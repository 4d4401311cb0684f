"""A whole training: output folder, engine, artefacts."""

from collections.abc import Sequence
from typing import Any

from refinesynth.extras import check_installed
from refinesynth.train.adapter import with_own_settings
from refinesynth.train.artefacts import Artefacts
from refinesynth.train.config import TrainConfig
from refinesynth.train.events import Events, Several, Silent
from refinesynth.train.folder import check_output
from refinesynth.train.pushing import Pushing
from refinesynth.train.ranks import is_started, rank
from refinesynth.train.result import TrainResult


def train(config: TrainConfig, *, events: Events | None = None, sources: Sequence[Any] | None = None) -> TrainResult:
    """Train as `config` says and write everything to its output folder; returns when that is done, which may take days.

    A training that was interrupted goes on from its newest sound checkpoint; one that is finished is not done again, and gives its
    result. SIGTERM, and Ctrl-C in the main thread, make it save a checkpoint and return a result that names the signal. With several
    `processes` they are started here, and `events` are told nothing: rank 0 shows its own. `sources` are data in memory, in the place
    of `config.data`; they cannot go to processes that are started here.

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
        if rank() == 0:
            Pushing(config).push()
        return done
    if rank() != 0 or (config.processes > 1 and not is_started()):
        return launch(config, **given)
    artefacts = Artefacts(config)
    try:
        result = launch(config, events=Several(artefacts, events or Silent()), **given)
        artefacts.finish(result)
    finally:
        artefacts.close()
    return result
