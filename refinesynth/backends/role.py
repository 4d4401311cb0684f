"""Roles that models play in an episode."""

from enum import StrEnum


class Role(StrEnum):
    """Role of a model; key of models, usage and cost."""

    SCRIPT_WRITER = "script_writer"
    """Author of an episode's script, from its persona."""
    DUNGEON_MASTER = "dungeon_master"
    """Environment in live play."""
    PLAYER = "player"
    """Agent in live play."""
    NARRATOR = "narrator"
    """Author of both voices in narrated play."""
    REPAIRER = "repairer"
    """Actor after a mistake of the Player, in runs with a repairer."""
    JUDGE = "judge"
    """Second opinion for the Verifier, off by default."""
