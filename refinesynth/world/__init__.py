"""Executes a rulebook over a JSON state: parse the action, check what it requires, apply its effects, see what is
visible.
"""

from refinesynth.world.executor import World, replay, world_of
from refinesynth.world.ground_actions import ground_actions
from refinesynth.world.planner import plan
from refinesynth.world.rulebook_errors import RulebookError
from refinesynth.world.ruling import Change, Ruling, mentions
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
