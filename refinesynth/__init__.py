"""Verified agent trajectories that contain mistakes and their repair, synthesized from personas by any LLM."""

from refinesynth._version import __version__

__all__ = ["__version__"]
