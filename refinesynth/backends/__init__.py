"""Backends, presets and providers as values, and the resolution of their names.

This package imports neither litellm nor pydantic-ai.
"""

from refinesynth.backends.backend import Backend, Completion, OutputMode, Role
from refinesynth.backends.names import PRESETS, BackendSpec, Preset, resolve, resolve_roles

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
