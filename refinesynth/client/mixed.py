"""Several models for one role: each episode, and each play of it, takes one of them in turn."""

from collections.abc import Sequence

from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel


class MixedModel(WrapperModel):
    """Models that take turns. A role is given one by `in_turn`; asked itself, it is the first."""

    def __init__(self, models: Sequence[Model]) -> None:
        """Of one model or more, none of them a mixture."""
        super().__init__(models[0])
        self.models = tuple(models)


def mixture(models: Sequence[Model]) -> Model:
    """All of `models`, of which there is one at least; of one alone, that one."""
    every = [one for model in models for one in (model.models if isinstance(model, MixedModel) else (model,))]
    return MixedModel(every) if len(every) > 1 else every[0]


def in_turn(model: Model, number: int) -> Model:
    """The model whose turn it is in the `number`-th play, from 0; a model that is no mixture always is."""
    return model.models[number % len(model.models)] if isinstance(model, MixedModel) else model
