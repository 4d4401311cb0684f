"""Grounded worlds to act in, for reinforcement learning and for agents of any kind."""

from refinesynth.environments.grounded import STEPS, GroundedEnvironment, NamedWorld, find_world, read_worlds

__all__ = ["STEPS", "GroundedEnvironment", "NamedWorld", "find_world", "read_worlds"]
