"""The first examples of a training's data as the model will see them; no weights are loaded and nothing is written."""

from collections.abc import Generator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from refinesynth.extras import check_installed
from refinesynth.train.config import SCRATCH, TrainConfig
from refinesynth.train.engine.starting import choose_accelerator
from refinesynth.train.given import check_given
from refinesynth.train.preview import Preview


def preview_data(config: TrainConfig, number: int, *, sources: Sequence[Any] | None = None) -> list[Preview]:
    """The first `number` examples, cut to `max_length` as they would be; fewer where there are not so many.

    What would be left out is left out here too. No more of the data is read than that takes.

    Raises:
        InputError: Data or tokenizer cannot be read, or the chat template does not say which tokens a turn has.
    """
    check_installed("train", "torch", "transformers")
    check_given(config, sources)
    choose_accelerator()
    from refinesynth.train.engine.quiet import libraries_silent
    from refinesynth.train.engine.signatures import check_rendering

    check_rendering()
    with libraries_silent(), closing(_previews(config, sources)) as found:
        return list(islice(found, number))


def _previews(config: TrainConfig, sources: Sequence[Any] | None) -> Generator[Preview]:
    from refinesynth.train.data import read_conversations
    from refinesynth.train.engine.loading import load_tokenizer, make_renderer
    from refinesynth.train.preview import preview
    from refinesynth.train.render.fitting import fit

    reading = read_conversations(
        sources or config.data, without_refinement=config.without_refinement, seed=config.seed
    ).open()
    with closing(reading):
        conversations = list(reading) if config.model == SCRATCH else reading
        tokenizer = load_tokenizer(config, conversations)
        renderer = make_renderer(config, tokenizer)
        for conversation in conversations:
            for rendered in renderer.render(conversation):
                fitted = fit(rendered, config.max_length, config.over_length) if rendered.trained else None
                if fitted is not None:
                    yield preview(fitted, tokenizer)
