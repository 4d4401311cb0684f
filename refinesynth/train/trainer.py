"""Refinement tuning from Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refinesynth.train.config import TrainConfig
from refinesynth.train.events import Events
from refinesynth.train.layers import layered
from refinesynth.train.plan import Plan
from refinesynth.train.result import TrainResult

if TYPE_CHECKING:
    from refinesynth.train.preview import Preview


class Trainer:
    """A training that can be looked at before it is begun.

        trainer = Trainer(model="Qwen/Qwen3-8B", data="runs/first", output="models/first", recipe="paper-8b", epochs=3)
        print(trainer.plan().memory)
        result = trainer.train()

    `fields` are those of `TrainConfig`; they override the recipe. Every method blocks until it is done: in an event loop, call it in
    a thread or a process of its own.

    Raises:
        ConfigurationError: There is no such recipe or field, or a field does not take its value.
    """

    def __init__(
        self,
        *,
        model: str | Path,
        data: str | Path | Sequence[str | Path],
        output: str | Path,
        recipe: str | None = None,
        **fields: Any,
    ) -> None:
        sources = [data] if isinstance(data, str | Path) else data
        given = {"model": str(model), "data": [str(each) for each in sources], "output": str(output), **fields}
        self._config = layered(recipe=recipe, given=given, given_by="argument").config

    @property
    def config(self) -> TrainConfig:
        """Every setting."""
        return self._config

    def plan(self) -> Plan:
        """What the training will do and take; reads the data and the model's description, loads no weights, writes nothing.

        Raises:
            InputError: It cannot work; the message says why.
        """
        from refinesynth.train.engine import plan

        return plan(self._config)

    def preview(self, k: int = 1) -> "list[Preview]":
        """What the model will see of the first `k` conversations, piece by piece, each with what it is to the loss.

        Raises:
            InputError: Data or tokenizer cannot be read, or the chat template does not say which tokens a turn has.
        """
        from refinesynth.train.previewing import preview_data

        return preview_data(self._config, k)

    def train(self, *, events: Events | None = None) -> TrainResult:
        """Train; see `refinesynth.train.training.train`. It blocks, for hours or days."""
        from refinesynth.train.training import train

        return train(self._config, events=events)
