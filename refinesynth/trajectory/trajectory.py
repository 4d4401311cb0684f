"""A trajectory: an accepted draft with its provenance."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast

from pydantic import Field, model_validator

from refinesynth.text.markup import html_table
from refinesynth.text.printable import printable
from refinesynth.trajectory.draft import Draft
from refinesynth.trajectory.script import Persona, Script
from refinesynth.trajectory.turns import PlayerTurn, Turn, flagged_turns
from refinesynth.trajectory.value import Value, absent

SCHEMA_VERSION = 1
"""Version of a line in trajectories.jsonl; raised when a field changes its meaning."""


class Usage(Value):
    """Tokens and requests of one episode or of a whole run."""

    requests: int = 0
    """Completions that were paid for."""
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


PLAY_NAME = r"^[a-z][a-z0-9_-]{0,63}$"

PlayName = Annotated[str, Field(pattern=PLAY_NAME)]
"""Name of the kind of play: `live`, `narrated`, `grounded`, or a play of another package, which need not be
installed here."""


class Difficulty(Value):
    """Difficulty of a grounded script, measured by executing it; shares and counts, see
    `refinesynth.world.check_solvability`.
    """

    steps: int = Field(ge=0)
    """Length of the shortest solution that was found, in actions."""
    branching: float = Field(ge=0)
    """Actions that are possible and change something, on average over the states along that solution."""
    preconditions: int = Field(ge=0)
    """Different requirements and conditions that the solution had to make true."""
    distractors: float = Field(ge=0, le=1)
    """Share of the names that actions can be given and that the solution does not use."""
    hidden: int = Field(ge=0)
    """Names that the solution uses and that cannot be seen at the beginning."""
    losable: bool | None = None
    """True if a single action can make the goal unreachable; None where the search ended without knowing."""


class Branch(Value):
    """Place of this trajectory among several of one episode."""

    number: int = Field(ge=0)
    """From 0. Those of one play follow on each other, and the first of them is played from the beginning."""
    of: int = Field(ge=1)
    """Number that was asked for."""
    shared_turns: int = Field(default=0, ge=0)
    """Turns at the beginning that it has in common with the first of the same play; 0 for that one."""


class Refinements(Value):
    """Fates of a trajectory's mistakes; `refinesynth.rules.repairs` says what counts."""

    answered: int = Field(default=0, ge=0)
    """Mistakes that a later action answers."""
    abandoned: int = Field(default=0, ge=0)
    """Mistakes without whose answer the goal was reached; they are refined too."""
    unanswered: int = Field(default=0, ge=0)
    """Mistakes that are neither."""
    again: int = Field(default=0, ge=0)
    """Mistakes right after another: second tries that failed too."""
    late: int = Field(default=0, ge=0)
    """Of the answered ones, those whose answer came later than it had to."""

    @model_validator(mode="before")
    @classmethod
    def _of_earlier(cls, given: object) -> object:
        """An earlier version counted plans that were given up, among the answered ones, and unrelated answers."""
        if not isinstance(given, dict):
            return given
        found = dict(cast("dict[str, Any]", given))
        if not {"given_up", "unrelated"} & found.keys():
            return found
        given_up, unrelated, answered = found.get("given_up", 0), found.get("unrelated", 0), found.get("answered")
        if not isinstance(given_up, int) or not isinstance(answered, int):
            return found
        found = {key: value for key, value in found.items() if key not in {"given_up", "unrelated"}}
        answered -= given_up
        return found | {"answered": answered, "abandoned": given_up, "unanswered": unrelated}


class Provenance(Value):
    """Origin of a trajectory: enough to make it again on a deterministic backend."""

    models: dict[str, str]
    """Role name to litellm model string."""
    play: PlayName
    seed: int
    """The episode's own seed, derived from the run's seed and the persona's position."""
    rules: str
    """`repr` of the rule chain that accepted it."""
    package_version: str
    attempts: int = Field(ge=1)
    """Drafts played or written until this one was accepted."""
    script_attempts: int = Field(ge=0)
    """Scripts written until one passed; 0 where the script was there already."""
    usage: Usage = Usage()
    """Of the whole episode, refused attempts included; an equal share of it where the episode gave several
    trajectories."""
    cost_usd: float | None = None
    """US dollars for the same; None where a model's price is unknown."""
    script_id: str | None = Field(default=None, exclude_if=absent)
    """Digest of the script, the same for all trajectories that were played in it; to be split by. None before 0.2."""
    difficulty: Difficulty | None = Field(default=None, exclude_if=absent)
    """Of a grounded script."""
    refinements: Refinements | None = Field(default=None, exclude_if=absent)
    """Of a grounded trajectory, counted when it was accepted, since the world has to be executed for it; None where an
    earlier version wrote it."""
    player_form: Literal["tools"] | None = Field(default=None, exclude_if=absent)
    """`tools` where the player was asked with tool calls; None where it wrote text, also because its model took no
    tools."""
    parallel_calls: bool = Field(default=False, exclude_if=absent)
    """True where the player's task allowed several calls in a message."""
    branch: Branch | None = Field(default=None, exclude_if=absent)
    """Which of its episode's trajectories this is; None where an episode has one."""


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

    def __str__(self) -> str:
        rows = [(head, printable(text).replace("\n", f"\n{'':<11}")) for head, text in self._rows()]
        return "\n".join(f"{head:<10} {text}" for head, text in rows)

    def _repr_html_(self) -> str:
        return html_table(self._rows())

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Return what a reader is shown: label and text of the task, then of each turn."""
        yield "id", self.id
        yield "persona", self.persona.text
        yield "goal", self.script.goal
        yield "actions", "\n".join(action.name for action in self.script.actions)
        mistakes = frozenset(self.mistakes())
        for at, turn in enumerate(self.turns):
            yield _told(at + 1, turn, mistake=at in mistakes)


def _told(number: int, turn: Turn, *, mistake: bool) -> tuple[str, str]:
    """A turn as a row: who, and what the player reads of it."""
    if not isinstance(turn, PlayerTurn):
        return f"{number} DM", turn.observation
    mark = "\n✗ mistake: kept as context, never trained on" if mistake else ""
    return f"{number} {turn.by or 'player'}", f"{turn.thought}\n> {turn.action}{mark}".removeprefix(
        "\n" * turn.parallel
    )
