"""Roles: the parts of an episode that models play."""

from enum import StrEnum


class Role(StrEnum):
    """Part that a model plays; key of models, usage and cost."""

    SCRIPT_WRITER = "script_writer"
    """Writes the script of an episode from its persona."""
    DUNGEON_MASTER = "dungeon_master"
    """Plays the environment in live play."""
    PLAYER = "player"
    """The agent in live play."""
    NARRATOR = "narrator"
    """Writes both voices in narrated play."""
    REPAIRER = "repairer"
    """Acts after a mistake of the Player, where a run has one."""
    JUDGE = "judge"
    """Gives the Verifier's second opinion, off by default."""
