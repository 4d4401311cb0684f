"""Where completions come from, as values: backends, presets, providers, from names to these.

Importing this imports neither litellm nor pydantic-ai.
"""

from refinesynth.backends.backend import Backend, OutputMode
from refinesynth.backends.completion import Completion
from refinesynth.backends.names import BackendSpec, resolve, resolve_roles
from refinesynth.backends.presets import PRESETS, Preset
from refinesynth.backends.role import Role

__all__ = [
    "PRESETS",
    "Backend",
    "BackendSpec",
    "Completion",
    "OutputMode",
    "Preset",
    "Role",
    "resolve",
    "resolve_roles",
]
