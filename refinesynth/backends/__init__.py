"""Where completions come from: names to models, the pydantic-ai model on the litellm SDK, the rehearsal.

Importing this imports neither litellm nor pydantic-ai; `open_model` does.
"""

from refinesynth.backends.backend import Backend, OutputMode
from refinesynth.backends.completion import Completion
from refinesynth.backends.listing import BackendRow, describe
from refinesynth.backends.names import BackendSpec, resolve, resolve_roles
from refinesynth.backends.opening import close_models, open_model, open_models
from refinesynth.backends.presets import PRESETS, Preset
from refinesynth.backends.role import Role

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
    "open_model",
    "open_models",
    "resolve",
    "resolve_roles",
]
