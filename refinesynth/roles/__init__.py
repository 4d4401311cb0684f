"""The typed actors: ScriptWriter, DungeonMaster, Player, Narrator, Verifier."""

from refinesynth.roles.asking import Calls, CallsSpent, InvalidAnswer
from refinesynth.roles.dungeon_master import DungeonMaster
from refinesynth.roles.narrator import Narrator
from refinesynth.roles.player import Player
from refinesynth.roles.script_writer import ScriptWriter
from refinesynth.roles.verifier import Judge, Verifier

__all__ = [
    "Calls",
    "CallsSpent",
    "DungeonMaster",
    "InvalidAnswer",
    "Judge",
    "Narrator",
    "Player",
    "ScriptWriter",
    "Verifier",
]
