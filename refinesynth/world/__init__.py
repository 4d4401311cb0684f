"""Executor of rulebooks over a JSON state: parse an action, check its preconditions, apply its effects, compute
visibility.
"""

from refinesynth.errors import RulebookError
from refinesynth.world.compiled_action import Change, Ruling, mentions
from refinesynth.world.executor import World, replay, world_of
from refinesynth.world.ground_actions import ground_actions
from refinesynth.world.planner import plan
from refinesynth.world.solvability import Solvability, check_solvability

__all__ = [
    "Change",
    "RulebookError",
    "Ruling",
    "Solvability",
    "World",
    "check_solvability",
    "ground_actions",
    "mentions",
    "plan",
    "replay",
    "world_of",
]
