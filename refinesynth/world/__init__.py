"""Executes a rulebook over a JSON state: parse the action, check what it requires, apply its effects."""

from refinesynth.world.errors import RulebookError
from refinesynth.world.executor import Ruling, World
from refinesynth.world.ground import ground_actions
from refinesynth.world.search import plan

__all__ = [
    "RulebookError",
    "Ruling",
    "World",
    "ground_actions",
    "plan",
]
