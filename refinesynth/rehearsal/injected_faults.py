"""Injected faults of an LLM, and their random draw per request."""

from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, BaseModel, Field

from refinesynth.rehearsal.families import CLASSIC, FAMILIES

T = TypeVar("T")

Rate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""Share of the requests with the fault, among those that it can affect, 0 to 1."""


def _known(family: str) -> str:
    if family not in FAMILIES:
        raise ValueError(f"there is no family {family!r}; there are {', '.join(FAMILIES)}")
    return family


class Faults(BaseModel, frozen=True, extra="forbid"):
    """Rates of an LLM's faults, and the families of its worlds."""

    families: tuple[Annotated[str, AfterValidator(_known)], ...] = Field(default=CLASSIC, min_length=1)
    """ScriptWriter: families of worlds; each scene uses one."""

    invalid_json: Rate = 0.02
    """All roles but the Player: prose instead of JSON, or JSON without required keys because it is cut off. The Player:
    no action."""
    missing_keys: Rate = 0.02
    """ScriptWriter, DungeonMaster, Narrator, Judge: JSON without a required key."""
    wrong_parameters: Rate = 0.05
    """Narrator: an unflagged action with an unavailable value. DungeonMaster: share of invalid actions that it accepts.
    """
    no_success: Rate = 0.02
    """DungeonMaster, Narrator: the last observation lacks `Task Succeed`."""
    too_few_errors: Rate = 0.05
    """Narrator: fewer mistakes than requested."""
    ambiguous_pattern: Rate = 0.05
    """ScriptWriter: the pattern of one action matches another action too."""
    false_alarm: Rate = 0.005
    """DungeonMaster: share of right actions that it refuses with a parameter error."""
    natural_mistake: Rate = 0.1
    """Player: unrequested mistakes."""
    skill: Rate | None = None
    """Player: approximate share of a weak policy's turns that are right. Its mistakes depend on the situation, and
    `natural_mistake` has no effect. None for a policy with random mistakes only."""
    bad_condition: Rate = 0.03
    """ScriptWriter, grounded: a condition that is no CEL, or uses unsupported syntax."""
    dangling_pointer: Rate = 0.02
    """ScriptWriter, grounded: an effect at a path that does not exist, in an action of the solution."""
    wrong_solution: Rate = 0.03
    """ScriptWriter, grounded: a solution that does not reach the goal."""
    met_goal: Rate = 0.02
    """ScriptWriter, grounded: a goal that is reached at the beginning."""
    unreachable_goal: Rate = 0.02
    """ScriptWriter, grounded: an unreachable goal, and no solution."""
    useless_action: Rate = 0.02
    """ScriptWriter, grounded: an action that is never possible."""
    misaligned_goal: Rate = 0.02
    """ScriptWriter, grounded: different numbers of goal conditions and sentences."""
    unseen_name: Rate = 0.03
    """DungeonMaster, grounded: an observation names something that the player can neither see nor has heard of, if
    there is such a thing."""
    contradiction: Rate = 0.03
    """DungeonMaster, grounded: a success is reported as a failure, or a mistake as a success."""
    said_success: Rate = 0.02
    """DungeonMaster, grounded: the words `Task Succeed`, which only the program may write."""
    ignored_failure: Rate = 0.2
    """DungeonMaster, grounded: share of transient failures that are reported as success."""

    @classmethod
    def none(cls) -> Self:
        return cls.model_validate(dict.fromkeys(cls.model_fields.keys() - {"skill", "families"}, 0.0))


@dataclass(frozen=True)
class Draws:
    """Random draws for one request; each depends on the request, the seed and its own name only."""

    digest: bytes
    faults: Faults

    def rng(self, name: str) -> Random:
        return Random(int.from_bytes(self._draw(name)))

    def pick(self, name: str, choices: tuple[T, ...]) -> T:
        return choices[int.from_bytes(self._draw(name)) % len(choices)]

    def has_fault(self, fault: str) -> bool:
        """Return whether the fault affects this request."""
        rate: float = getattr(self.faults, fault)
        return rate > 0 and int.from_bytes(self._draw(f"{fault}/")) < rate * 2**64

    def for_turn(self, number: int) -> "Draws":
        """Return the draws for one turn of a longer answer."""
        return Draws(self._draw(f"turn {number}"), self.faults)

    def _draw(self, name: str) -> bytes:
        return blake2b(name.encode(), key=self.digest, digest_size=8).digest()
