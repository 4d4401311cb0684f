"""What all episodes of a run have in common."""

from dataclasses import dataclass, field

from refinesynth.attempts import DEADLINE, Attempts
from refinesynth.errors import ConfigurationError
from refinesynth.mistakes import Mistakes
from refinesynth.mix import Mix
from refinesynth.prompts import Prompts
from refinesynth.rules.rule import Rule
from refinesynth.trajectory import PlayName

MAX_TURNS = 60
"""Turns of both voices at which a live play is broken off, unless the settings say otherwise; evaluations allow 30 actions."""


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """How an episode is played and what is accepted.

    Raises:
        ConfigurationError: A share, a count or a band is out of its range.
    """

    rules: Rule
    """What a draft must satisfy."""
    script_rules: Rule
    """What a script must satisfy; seen as a draft without turns."""
    prompts: Prompts
    play: PlayName = "live"
    """Its name in the table of plays."""
    mistakes: Mistakes = field(default_factory=Mistakes)
    attempts: Attempts = field(default_factory=Attempts)
    seed: int = 0
    """The run's seed."""
    max_turns: int = MAX_TURNS
    """Turns of both voices at which an attempt at a live play is broken off: the world may have no way to its goal. From half of
    them on the DungeonMaster is reminded of how the play ends."""
    deadline: float | None = DEADLINE
    """Seconds that an episode may take before it is given up, what it had refused so far being kept; the time in which its
    backend is down does not count. None: as long as it takes."""
    judge: bool = False
    """Whether an LLM judge must agree to a draft that the rules accept."""

    terse: bool = False
    """Grounded play: the world answers in the rulebook's own words, without a DungeonMaster."""
    transient: float = 0.0
    """Grounded play: the share, below 1, of right actions that fail for a moment, announced as such."""
    mix: Mix = field(default_factory=Mix)
    """Grounded play: the features that scripts are asked for."""
    difficulty: tuple[int, int] | None = None
    """Grounded play: fewest and most actions of the shortest solution, as the ScriptWriter is told; a rule refuses what is
    outside. None: it is told the usual range."""
    branches: int = 1
    """Trajectories that are to share a verified prefix."""
    episodes_per_script: int = 1
    """Plays from the beginning in one script."""

    def __post_init__(self) -> None:
        if not 0 <= self.transient < 1:
            raise ConfigurationError(f"transient is {self.transient!r}; expected a share, 0 or more and below 1")
        for name in ("branches", "episodes_per_script"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)!r}; expected a whole number, 1 or more")
        if self.difficulty is not None and not 1 <= self.difficulty[0] <= self.difficulty[1]:
            raise ConfigurationError(
                f"difficulty is {self.difficulty!r}; expected two numbers of actions, 1 or more, the smaller one first"
            )
