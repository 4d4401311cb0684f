"""What all episodes of a run have in common."""

from dataclasses import dataclass, field
from typing import Literal

from refinesynth.attempts import DEADLINE, Attempts
from refinesynth.backends.role import Role
from refinesynth.mistakes import Mistakes
from refinesynth.prompts import Prompts
from refinesynth.rules.rule import Rule

MAX_TURNS = 60
"""Turns of both voices at which a live play is broken off, unless the settings say otherwise; evaluations allow 30 actions."""


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """How an episode is played and what is accepted."""

    rules: Rule
    """What a draft must satisfy."""
    script_rules: Rule
    """What a script must satisfy; seen as a draft without turns."""
    prompts: Prompts
    play: Literal["live", "narrated"] = "live"
    mistakes: Mistakes = field(default_factory=Mistakes)
    attempts: Attempts = field(default_factory=Attempts)
    seed: int = 0
    """The run's seed."""
    max_turns: int = MAX_TURNS
    """Turns of both voices at which a live play is broken off and given up: the world may have no way to its goal."""
    deadline: float | None = DEADLINE
    """Seconds that an episode may take before it is given up, what it had refused so far being kept; the time in which its
    backend is down does not count. None: as long as it takes."""
    judge: bool = False
    """Whether an LLM judge must agree to a draft that the rules accept."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that such an episode asks models for."""
        scene = (Role.NARRATOR,) if self.play == "narrated" else (Role.DUNGEON_MASTER, Role.PLAYER)
        return (Role.SCRIPT_WRITER, *scene, *((Role.JUDGE,) if self.judge else ()))
