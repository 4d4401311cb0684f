"""Backends, presets and providers as values, and the resolution of their names.

This package imports neither litellm nor pydantic-ai.
"""

from refinesynth.backends.backend import Backend, Completion, OutputMode
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
