"""From a backend to the model that asks it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from refinesynth.backends.backend import Backend
from refinesynth.backends.completion import Completion
from refinesynth.backends.names import rehearsal_faults
from refinesynth.backends.providers import key_of, key_variables
from refinesynth.backends.role import Role
from refinesynth.errors import ConfigurationError

if TYPE_CHECKING:
    from refinesynth.backends.litellm_model import LiteLLMModel


def open_model(backend: Backend, *, call: Completion | None = None) -> "LiteLLMModel":
    """The pydantic-ai model for a backend.

    With `call`, requests go to that function and litellm is not imported; so for the rehearsal. Otherwise litellm is
    imported here, which takes seconds once.

    Raises:
        ConfigurationError: The backend needs a key, and no variable holds one.
    """
    from refinesynth.backends.litellm_model import LiteLLMModel, free

    if call is not None:
        return LiteLLMModel(backend, call=call)
    if backend.rehearses:
        from refinesynth.backends.rehearsal import Faults, Rehearsal

        faults = Faults.model_validate(rehearsal_faults(backend.model))
        return LiteLLMModel(backend, call=Rehearsal(faults=faults), price=free)
    _require_key(backend)
    from refinesynth.backends import litellm_sdk

    return LiteLLMModel(
        backend,
        call=litellm_sdk.completion,
        price=litellm_sdk.pricer(backend.model),
        accepts_seed=litellm_sdk.accepts(backend.model, "seed"),
    )


def open_models(backends: Mapping[Role, Backend], *, call: Completion | None = None) -> dict[Role, "LiteLLMModel"]:
    """A model for every role; roles with equal backends share one, and with it the rate limit.

    Raises:
        ConfigurationError: A backend needs a key, and no variable holds one.
    """
    opened: list[tuple[Backend, LiteLLMModel]] = []
    models: dict[Role, LiteLLMModel] = {}
    for role, backend in backends.items():
        model = next((model for known, model in opened if known == backend), None)
        if model is None:
            model = open_model(backend, call=call)
            opened.append((backend, model))
        models[role] = model
    return models


def _require_key(backend: Backend) -> None:
    names = key_variables(backend)
    # Servers of one's own mostly want no key; one that does answers 401, and the run stops with that.
    if names and backend.base_url is None and key_of(backend) is None:
        raise ConfigurationError(
            f"{backend.label} needs a key: set the environment variable {names[0]}, or choose another backend "
            "(`refinesynth backends` lists them; `rehearsal` needs none)"
        )
