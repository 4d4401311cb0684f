"""Where completions come from: names to models, the pydantic-ai model on the litellm SDK, the rehearsal.

Importing this imports neither litellm nor pydantic-ai; `open_model` does.
"""

from typing import TYPE_CHECKING

from refinesynth.backends.backend import Backend, OutputMode
from refinesynth.backends.completion import Completion
from refinesynth.backends.listing import BackendRow, describe
from refinesynth.backends.names import BackendSpec, resolve, resolve_roles
from refinesynth.backends.opening import close_models, open_model, open_models
from refinesynth.backends.presets import PRESETS, Preset
from refinesynth.backends.role import Role

if TYPE_CHECKING:
    from refinesynth.backends.embedding import open_embedder

__all__ = [
    "PRESETS",
    "Backend",
    "BackendRow",
    "BackendSpec",
    "Completion",
    "OutputMode",
    "Preset",
    "Role",
    "close_models",
    "describe",
    "open_embedder",
    "open_model",
    "open_models",
    "resolve",
    "resolve_roles",
]


def __getattr__(name: str) -> object:
    if name == "open_embedder":
        from refinesynth.backends.embedding import open_embedder

        return open_embedder
    raise AttributeError(f"module 'refinesynth.backends' has no attribute {name!r}")
