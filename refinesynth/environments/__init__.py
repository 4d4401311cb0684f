"""Grounded worlds as environments, for reinforcement learning and for any agent."""

from refinesynth.environments.grounded import STEPS, GroundedEnvironment, NamedWorld, find_world, read_worlds

__all__ = ["STEPS", "GroundedEnvironment", "NamedWorld", "find_world", "read_worlds"]
