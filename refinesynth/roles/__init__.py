"""The typed actors: ScriptWriter, DungeonMaster, Player, Narrator, Verifier."""

from refinesynth.roles.actor import Actor, CallLimit, CallLimitReached, InvalidAnswer
from refinesynth.roles.dungeon_master import DungeonMaster, Words
from refinesynth.roles.narrator import Narrator
from refinesynth.roles.player import Flag, Player, ToolPlayer
from refinesynth.roles.script_writer import RulebookWriter, ScriptWriter
from refinesynth.roles.verifier import Judge, Verifier

__all__ = [
    "Actor",
    "CallLimit",
    "CallLimitReached",
    "DungeonMaster",
    "Flag",
    "InvalidAnswer",
    "Judge",
    "Narrator",
    "Player",
    "RulebookWriter",
    "ScriptWriter",
    "ToolPlayer",
    "Verifier",
    "Words",
]
