"""Factory of models for backends."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from refinesynth.backends.backend import Backend, Completion, Role
from refinesynth.backends.names import rehearsal_faults
from refinesynth.backends.providers import key_of, key_variables, split_model
from refinesynth.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from refinesynth.client.batch.batching import Batches
    from refinesynth.client.failure_policy import RequestCounts
    from refinesynth.client.limiter.rate_limiter import RateLimiter
    from refinesynth.client.model import BackendModel
    from refinesynth.client.request_arguments import UnsupportedFeatures


def open_model(
    backend: Backend,
    *,
    call: Completion | None = None,
    limiter: "RateLimiter | None" = None,
    calls: "RequestCounts | None" = None,
    lacks: "UnsupportedFeatures | None" = None,
    batches: "Batches | None" = None,
) -> "BackendModel":
    """Return the pydantic-ai model of a backend; other models may share `limiter`, `calls` and `lacks`.

    `call` replaces the backend's own completion function. `batches` sends requests in provider batches, which take up
    to a day, through a limiter of their own. litellm, whose import takes seconds, is imported only for backends that
    use it. `path=auto` means litellm here; in a run, `with_path` resolves it.

    Raises:
        ConfigurationError: The backend needs a key and no variable holds one, or its `path` is impossible.
    """
    from refinesynth.client.budget.price_table import price_of
    from refinesynth.client.model import BackendModel

    accepts_seed, price = True, price_of(backend, listings=call is None, batch=batches is not None)
    if batches is not None:
        from refinesynth.client.batch.batching import BATCH_TIMEOUT_S, BatchedCompletion
        from refinesynth.client.limiter.rate_limiter import limiter_of

        _require_key(backend)
        call = BatchedCompletion(backend, batches)
        accepts_seed, limiter = split_model(backend.model)[0] == "openai", limiter_of(backend, batched=True)
        backend = backend.model_copy(update={"timeout": BATCH_TIMEOUT_S})
    elif call is None and backend.is_rehearsal:
        call = _rehearsal(backend)
    elif call is None:
        _require_key(backend)
        if backend.path == "direct":
            from refinesynth.client.http.direct_client import DirectCompletion

            call = DirectCompletion(backend)
        else:
            from refinesynth.client import litellm_sdk

            call = litellm_sdk.completion
            accepts_seed = litellm_sdk.accepts(backend.model, "seed")
    return BackendModel(
        backend, call=call, price=price, accepts_seed=accepts_seed, limiter=limiter, counts=calls, unsupported=lacks
    )


def _rehearsal(backend: Backend) -> Completion:
    """Return the in-process rehearsal; the scenes of an episode live as long as its session."""
    from refinesynth.client.session import Session, current_request
    from refinesynth.rehearsal import Rehearsal
    from refinesynth.rehearsal.replayed_history import Scenes, scene_cache, using_scenes

    rehearsal = Rehearsal(faults=rehearsal_faults(backend.model))
    remembered: WeakKeyDictionary[Session, Scenes] = WeakKeyDictionary()

    async def call(**request: Any) -> dict[str, Any]:
        session = current_request().session
        if not session.id:
            return await rehearsal(**request)
        if session not in remembered:
            remembered[session] = scene_cache()
        with using_scenes(remembered[session]):
            return await rehearsal(**request)

    return call


def open_models(
    backends: Mapping[Role, Backend],
    *,
    call: Completion | None = None,
    fallback: Backend | None = None,
    calls: "RequestCounts | None" = None,
    lacks: "UnsupportedFeatures | None" = None,
    batches: "Batches | None" = None,
) -> "dict[Role, Model]":
    """Return a model for every role; a `RoundRobinModel` for a mixture of backends.

    Roles with equal backends share a model and its rate limits; backends with one server and key share a limiter.
    Requests go to `fallback` while their own backend is unusable. `calls` counts requests; `lacks` collects the
    features that servers lack. With `batches`, the ScriptWriter and the Narrator send provider batches.

    Raises:
        ConfigurationError: A backend needs a key and no variable holds one, or its `path` is impossible.
    """
    from refinesynth.client.batch.batching import BATCHED
    from refinesynth.client.failure_policy import RequestCounts
    from refinesynth.client.limiter.rate_limiter import endpoint, limiters_of
    from refinesynth.client.request_arguments import UnsupportedFeatures
    from refinesynth.client.routing import FallbackModel, mixture

    calls = RequestCounts() if calls is None else calls
    lacks = UnsupportedFeatures() if lacks is None else lacks
    fallbacks = () if fallback is None else (fallback,)
    members = [member for backend in backends.values() for member in backend.members]
    limiters = limiters_of((*members, *fallbacks), fallback=fallback)

    def open_backend(backend: Backend) -> "BackendModel":
        return open_model(backend, call=call, limiter=limiters[endpoint(backend)], calls=calls, lacks=lacks)

    reserve = None if fallback is None else open_backend(fallback)
    opened: list[tuple[Backend | None, bool, Model | None]] = [(fallback, False, reserve)]
    """Backend, True for provider batches, and the model."""

    def model_of(role: Role, backend: Backend) -> "Model":
        batched = batches is not None and role in BATCHED
        model = next((model for known, batch, model in opened if (known, batch) == (backend, batched)), None)
        if model is None:
            if batches is not None and batched:
                # Without the fallback: it would charge for requests that a batch may still answer.
                model = open_model(backend, calls=calls, lacks=lacks, batches=batches)
            else:
                model = open_backend(backend) if reserve is None else FallbackModel(open_backend(backend), reserve)
            opened.append((backend, batched, model))
        return model

    return {role: mixture([model_of(role, member) for member in backend.members]) for role, backend in backends.items()}


async def close_models(models: "Iterable[Model]") -> None:
    """Close the connections of models, which ends requests in flight."""
    from refinesynth.client.routing import leaves_of

    for model in leaves_of(models):
        if (close := getattr(model, "aclose", None)) is not None:
            await close()


def _require_key(backend: Backend) -> None:
    # Most self-hosted servers need no key and have no variable. One that needs a key answers 401, which stops the run.
    if (names := key_variables(backend)) and key_of(backend) is None:
        hint = ", leave api_key_env out where the server needs none" if backend.api_key_env else ""
        raise ConfigurationError(
            f"{backend.label} needs a key: set the environment variable {names[0]}{hint}, "
            "or choose another backend (`refinesynth backends` lists them; `rehearsal` needs none)"
        )
