"""Composite models: a mixture that takes turns, and a fallback for an unusable model."""

from collections.abc import Iterable, Sequence
from typing import cast

import anyio
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from refinesynth.backends.backend import LOG
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.errors import BudgetSpent, RunStopped


class RoundRobinModel(WrapperModel):
    """Models that take turns. `in_turn` selects one of them; a direct request goes to the first."""

    def __init__(self, models: Sequence[Model]) -> None:
        super().__init__(models[0])
        self.models = tuple(models)


def mixture(models: Sequence[Model]) -> Model:
    """Return one model for all of `models`; a single model itself."""
    return RoundRobinModel(models) if len(models) > 1 else models[0]


def in_turn(model: Model, number: int) -> Model:
    """Return the model of play `number`, from 0; a model that is no mixture itself."""
    return model.models[number % len(model.models)] if isinstance(model, RoundRobinModel) else model


_UNUSED_S = 300.0
"""Seconds until a model that failed for another reason than an outage is tried again."""


class FallbackModel(WrapperModel):
    """Model that sends a request to `fallback` if `wrapped` would stop the run.

    Causes are an outage, a rejected key, an exhausted quota or an unknown model. The limiter of `wrapped` should have
    `outage=0`: while down it then fails at once, except for one trial request at a time, and requests return to it
    after a successful trial. A model that is up and fails is not used for five minutes.

    A request that abandons its episode (`EpisodeAbandoned`) or exceeds the budget does not go to `fallback`. The
    response names the model that answered.
    """

    def __init__(self, wrapped: Model, fallback: Model) -> None:
        super().__init__(wrapped)
        self.fallback = fallback
        self._unused_until = float("-inf")
        self._uses_fallback = False

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return one completion of either model.

        Raises:
            EpisodeAbandoned: This request fails; others may succeed.
            RunStopped: Both models are unusable, or the budget is spent.
        """
        if anyio.current_time() >= self._unused_until:
            try:
                response = await self.wrapped.request(messages, model_settings, model_request_parameters)
            except BudgetSpent:
                raise
            except RunStopped as stopped:
                self._switch_to_fallback(str(stopped))
            else:
                if self._uses_fallback:
                    self._uses_fallback = False
                    text = f"{self.model_name} answers again; requests return to it"
                    LOG.warning("%s from %s", text, self.fallback.model_name)
                return response
        return await self.fallback.request(messages, self._forwarded_settings(model_settings), model_request_parameters)

    def _forwarded_settings(self, settings: ModelSettings | None) -> ModelSettings | None:
        defaults = cast("dict[str, object]", self.wrapped.settings or {})
        values = cast("dict[str, object]", settings or {})
        changed = {name: value for name, value in values.items() if name not in defaults or defaults[name] != value}
        return cast("ModelSettings", changed) or None

    def _switch_to_fallback(self, reason: str) -> None:
        limiter = getattr(self.wrapped, "limiter", None)
        # A limiter that is down sends trial requests itself.
        if limiter is None or not limiter.is_down:
            self._unused_until = anyio.current_time() + _UNUSED_S
        if not self._uses_fallback:
            self._uses_fallback = True
            LOG.warning("%s Requests go to %s meanwhile", reason, self.fallback.model_name)


def leaves_of(models: Iterable[Model]) -> tuple[Model, ...]:
    """Return the models inside fallbacks and mixtures, without duplicates."""
    leaves: dict[int, Model] = {}
    queue = [*models]
    while queue:
        model = queue.pop(0)
        if isinstance(model, FallbackModel):
            queue[:0] = (model.wrapped, model.fallback)
        elif isinstance(model, RoundRobinModel):
            queue[:0] = model.models
        else:
            leaves.setdefault(id(model), model)
    return tuple(leaves.values())


def limiters_in(models: Iterable[Model]) -> tuple[RateLimiter, ...]:
    """Return the limiters of models, fallbacks included, without duplicates."""
    limiters = (getattr(model, "limiter", None) for model in leaves_of(models))
    distinct = {id(limiter): limiter for limiter in limiters if isinstance(limiter, RateLimiter)}
    return tuple(distinct.values())
