"""Trajectory: an accepted draft with its provenance."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from refinesynth.text.formatting import printable
from refinesynth.trajectory.draft import Draft
from refinesynth.trajectory.script import Persona, Script
from refinesynth.trajectory.turns import PlayerTurn, Turn, flagged_turns
from refinesynth.trajectory.value import Value, aliases, is_empty

SCHEMA_VERSION = 1
"""Version of a line in trajectories.jsonl; raised when the meaning of a field changes."""


class Usage(Value):
    """Tokens and requests of an episode or a run."""

    requests: int = 0
    """Number of paid completions."""
    input_tokens: int = 0
    """Prompt tokens, including cached ones."""
    cached_tokens: int = 0
    """Prompt tokens read from the provider's cache."""
    output_tokens: int = 0
    """Completion tokens, including reasoning."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: value + getattr(other, name) for name, value in self})


PLAY_NAME = r"^[a-z][a-z0-9_-]{0,63}$"

PlayName = Annotated[str, Field(pattern=PLAY_NAME)]
"""Name of the play: `live`, `narrated`, `grounded`, or a play of another package, which need not be installed."""


class Difficulty(Value):
    """Difficulty of a grounded script, measured by execution, see `refinesynth.world.check_solvability`."""

    steps: int = Field(ge=0)
    """Length of the shortest known solution, in actions."""
    branching: float = Field(ge=0)
    """Mean number of possible actions with an effect, over the states of that solution."""
    preconditions: int = Field(ge=0)
    """Number of different preconditions and goal conditions that the solution had to establish."""
    distractors: float = Field(ge=0, le=1)
    """Share of the actions' possible names that the solution does not use, 0 to 1."""
    hidden: int = Field(ge=0)
    """Number of names in the solution that are not visible at the beginning and become visible along it."""
    losable: bool | None = None
    """True if a single action can make the goal unreachable; None if the search ended without a result."""


class Branch(Value):
    """Position of this trajectory among several of one episode."""

    number: int = Field(ge=0)
    """Number from 0. The trajectories of one play are consecutive, and the first is played from the beginning."""
    of: int = Field(ge=1)
    """Number of requested trajectories."""
    shared_turns: int = Field(default=0, ge=0)
    """Length of the prefix shared with the first trajectory of the same play, in turns; 0 for the first."""


class Refinements(Value):
    """Counts of a trajectory's mistakes by outcome, as defined in `refinesynth.rules.repairs`."""

    answered: int = Field(default=0, ge=0)
    """Mistakes answered by a later action."""
    abandoned: int = Field(default=0, ge=0, validation_alias=aliases("abandoned", "given_up"))
    """Mistakes without an answer before the goal was reached; they count as refined."""
    unanswered: int = Field(default=0, ge=0, validation_alias=aliases("unanswered", "unrelated"))
    """Other mistakes."""
    again: int = Field(default=0, ge=0)
    """Mistakes right after a mistake: failed second attempts."""
    late: int = Field(default=0, ge=0)
    """Answered mistakes with a later answer than necessary."""

    @model_validator(mode="before")
    @classmethod
    def _convert_earlier(cls, counts: Any) -> Any:
        """Convert the counts of an earlier version, in which plans that were given up are among the answered ones."""
        match counts:
            case {"given_up": int(given_up), "answered": int(answered)}:
                return {**counts, "answered": answered - given_up}
            case _:
                return counts


class Provenance(Value):
    """Origin of a trajectory, sufficient to reproduce it with a deterministic backend."""

    models: dict[str, str]
    """Role name to litellm model string."""
    play: PlayName
    seed: int
    """Seed of the episode, derived from the run's seed and the persona's position."""
    rules: str
    """`repr` of the rule chain that accepted it."""
    package_version: str
    attempts: int = Field(ge=1)
    """Number of drafts, including the accepted one."""
    script_attempts: int = Field(ge=0)
    """Number of scripts, including the accepted one; 0 for a given script."""
    usage: Usage = Usage()
    """Usage of the whole episode, including refused attempts; an equal share of it for several trajectories."""
    cost_usd: float | None = None
    """Cost of the same in US dollars; None if a model's price is unknown."""
    script_id: str | None = Field(default=None, exclude_if=is_empty)
    """Digest of the script, the same for all trajectories in it; for splits. None before version 0.2."""
    difficulty: Difficulty | None = Field(default=None, exclude_if=is_empty)
    """Difficulty of a grounded script."""
    refinements: Refinements | None = Field(default=None, exclude_if=is_empty)
    """Counts for a grounded trajectory, made at acceptance because they require execution; None in records of earlier
    versions."""
    player_form: Literal["tools"] | None = Field(default=None, exclude_if=is_empty)
    """`tools` for a player with tool calls; None for a player that wrote text, also if its model supports no tools."""
    parallel_calls: bool = Field(default=False, exclude_if=is_empty)
    """True if the player's task allowed several calls in a message."""
    branch: Branch | None = Field(default=None, exclude_if=is_empty)
    """Position among the episode's trajectories; None for a single one."""


class Trajectory(Value):
    """An accepted draft: one line of trajectories.jsonl."""

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str = Field(min_length=1)
    persona: Persona
    script: Script
    turns: tuple[Turn, ...] = Field(min_length=1)
    provenance: Provenance

    def draft(self) -> Draft:
        """Return this trajectory as a draft, for verification."""
        return Draft(script=self.script, turns=self.turns)

    def mistakes(self) -> tuple[int, ...]:
        """Return the indices of the flagged player turns."""
        return flagged_turns(self.turns)

    def __str__(self) -> str:
        rows = [(label, printable(text).replace("\n", f"\n{'':<11}")) for label, text in self._rows()]
        return "\n".join(f"{label:<10} {text}" for label, text in rows)

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Yield label and text of the task and of each turn, for display."""
        yield "id", self.id
        yield "persona", self.persona.text
        yield "goal", self.script.goal
        yield "actions", "\n".join(action.name for action in self.script.actions)
        mistakes = frozenset(self.mistakes())
        for index, turn in enumerate(self.turns):
            if isinstance(turn, PlayerTurn):
                mark = "\n✗ mistake: kept as context, never trained on" if index in mistakes else ""
                text = f"{turn.thought}\n> {turn.action}{mark}".removeprefix("\n" * turn.parallel)
                yield f"{index + 1} {turn.by or 'player'}", text
            else:
                yield f"{index + 1} DM", turn.observation
