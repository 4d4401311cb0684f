"""The name under which verifiers finds the worlds of refinesynth: `vf-eval refinesynth-worlds`. It looks for a taskset
in a module of its own.
"""

from refinesynth.environments.verifiers import WorldsEnv, WorldsEnvConfig, WorldsTaskset

__all__ = ["WorldsEnv", "WorldsEnvConfig", "WorldsTaskset"]
