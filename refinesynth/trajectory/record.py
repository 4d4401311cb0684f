"""A trajectory: an accepted draft with its provenance."""

from typing import Literal

from pydantic import Field

from refinesynth.trajectory.draft import Draft
from refinesynth.trajectory.script import Persona, Script
from refinesynth.trajectory.turns import Turn, flagged_turns
from refinesynth.trajectory.value import Value

SCHEMA_VERSION = 1
"""Version of a line in trajectories.jsonl; raised when a field changes its meaning."""


class Usage(Value):
    """Tokens and requests of one episode or of a whole run."""

    requests: int = 0
    """Completions that were asked for and answered."""
    input_tokens: int = 0
    """Prompt tokens, cached ones included."""
    cached_tokens: int = 0
    """Prompt tokens that the provider read from its cache."""
    output_tokens: int = 0
    """Completion tokens, reasoning included."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


class Provenance(Value):
    """Where a trajectory comes from: enough to make it again on a deterministic backend."""

    models: dict[str, str]
    """Role name to litellm model string."""
    play: Literal["live", "narrated"]
    seed: int
    """The episode's own seed, derived from the run's seed and the persona's position."""
    rules: str
    """`repr` of the rule chain that accepted it."""
    package_version: str
    attempts: int = Field(ge=1)
    """Drafts played or written until this one was accepted."""
    script_attempts: int = Field(ge=1)
    """Scripts written until one passed."""
    usage: Usage = Usage()
    """Of the whole episode, refused attempts included."""
    cost_usd: float | None = None
    """US dollars for the whole episode; None where a model's price is unknown."""


class Trajectory(Value):
    """An accepted draft: one line of trajectories.jsonl."""

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str = Field(min_length=1)
    persona: Persona
    script: Script
    turns: tuple[Turn, ...] = Field(min_length=1)
    provenance: Provenance

    def draft(self) -> Draft:
        """This trajectory as a draft, to verify it again."""
        return Draft(script=self.script, turns=self.turns)

    def mistakes(self) -> tuple[int, ...]:
        """Indices of the player turns that the DungeonMaster flagged."""
        return flagged_turns(self.turns)
