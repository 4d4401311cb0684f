"""Models that stand for several: a mixture that takes turns, and a fallback for the time in which the first cannot be
asked.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import cast

import anyio
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.errors import BudgetSpent, RunStopped


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


_LOG = logging.getLogger("refinesynth.backends")
_AGAIN = 300.0
"""Seconds after which a model that stopped for another reason than an outage is asked again."""


class FallbackModel(WrapperModel):
    """Asks `wrapped`; where that would stop the run, the same request goes to `fallback`.

    What would stop it: an outage, a key that is not accepted, an exhausted quota, an unknown model. `wrapped` should
    not wait for the end of an outage (its limiter has `outage=0`): it then says at once that it is down, except to the
    one request at a time with which it tries whether it is back. So requests return to it by themselves. A model that
    is up and will not be asked is left alone for five minutes at a time.

    A request that is refused or answered badly (`EpisodeAbandoned`) does not go to `fallback`, nor one that the budget
    does not pay for. The response names the model that answered.
    """

    def __init__(self, wrapped: Model, fallback: Model) -> None:
        super().__init__(wrapped)
        self.fallback = fallback
        self._left_alone_until = float("-inf")
        self._away = False

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """One answer, of either model.

        Raises:
            EpisodeAbandoned: This request cannot be answered; others can.
            RunStopped: Neither can be asked.
        """
        if anyio.current_time() >= self._left_alone_until:
            try:
                response = await self.wrapped.request(messages, model_settings, model_request_parameters)
            except BudgetSpent:
                raise
            except RunStopped as stopped:
                self._leave(str(stopped))
            else:
                self._return()
                return response
        return await self.fallback.request(messages, self._passed_on(model_settings), model_request_parameters)

    def _passed_on(self, settings: ModelSettings | None) -> ModelSettings | None:
        own = cast("dict[str, object]", self.wrapped.settings or {})
        given = cast("dict[str, object]", settings or {})
        kept = {name: value for name, value in given.items() if name not in own or own[name] != value}
        return cast("ModelSettings", kept) or None

    def _leave(self, why: str) -> None:
        limiter = getattr(self.wrapped, "limiter", None)
        # One that is down sees to its own return.
        if limiter is None or not limiter.down:
            self._left_alone_until = anyio.current_time() + _AGAIN
        if not self._away:
            self._away = True
            _LOG.warning("%s Requests go to %s meanwhile", why, self.fallback.model_name)

    def _return(self) -> None:
        if self._away:
            self._away = False
            _LOG.warning("%s answers again; requests return to it from %s", self.model_name, self.fallback.model_name)


def leaves_of(models: Iterable[Model]) -> tuple[Model, ...]:
    """Models without a fallback or a mixture around them, fallbacks included, each once."""
    found: dict[int, Model] = {}
    waiting = [*models]
    while waiting:
        model = waiting.pop(0)
        if isinstance(model, FallbackModel):
            waiting[:0] = (model.wrapped, model.fallback)
        elif isinstance(model, MixedModel):
            waiting[:0] = model.models
        else:
            found.setdefault(id(model), model)
    return tuple(found.values())


def limiters_in(models: Iterable[Model]) -> tuple[RateLimiter, ...]:
    """The limiters of models, fallbacks included, each once."""
    limiters = (getattr(model, "limiter", None) for model in leaves_of(models))
    found = {id(limiter): limiter for limiter in limiters if isinstance(limiter, RateLimiter)}
    return tuple(found.values())
