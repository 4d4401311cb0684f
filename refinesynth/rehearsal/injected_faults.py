"""Faults of an LLM, and the draw of those that strike a request."""

from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, BaseModel, Field

from refinesynth.rehearsal.families import CLASSIC, FAMILIES

T = TypeVar("T")

Rate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""Share of the requests that it can strike, 0 to 1."""


def _known(family: str) -> str:
    if family not in FAMILIES:
        raise ValueError(f"there is no family {family!r}; there are {', '.join(FAMILIES)}")
    return family


class Faults(BaseModel, frozen=True, extra="forbid"):
    """Rates of an LLM's faults, and the worlds that it writes."""

    families: tuple[Annotated[str, AfterValidator(_known)], ...] = Field(default=CLASSIC, min_length=1)
    """ScriptWriter: families of worlds, of which each scene takes one."""

    invalid_json: Rate = 0.02
    """Any role but the Player: prose instead of JSON, or JSON cut off so that required keys are lost. The Player: no
    action."""
    missing_keys: Rate = 0.02
    """ScriptWriter, DungeonMaster, Narrator, Judge: JSON in which something required is missing."""
    wrong_parameters: Rate = 0.05
    """Narrator: an unflagged action with a value that is not available. DungeonMaster: of the actions that are none, or
    have such a value, those that it waves through."""
    no_success: Rate = 0.02
    """DungeonMaster, Narrator: the last observation does not say `Task Succeed`."""
    too_few_errors: Rate = 0.05
    """Narrator: fewer mistakes than asked for."""
    ambiguous_pattern: Rate = 0.05
    """ScriptWriter: one action's pattern matches another action too."""
    false_alarm: Rate = 0.005
    """DungeonMaster: of the right actions that it is asked about, those that it calls a parameter error and does not
    carry out."""
    natural_mistake: Rate = 0.1
    """Player: mistakes that were not asked for."""
    skill: Rate | None = None
    """Player: share of its turns that a weak policy gets right, about; its mistakes follow from where it is, and
    `natural_mistake` has no effect. None for a policy that errs by chance alone."""
    bad_condition: Rate = 0.03
    """ScriptWriter, grounded: a condition that is no CEL, or uses what CEL has not."""
    dangling_pointer: Rate = 0.02
    """ScriptWriter, grounded: an effect of an action that the solution needs, at a place that does not exist."""
    wrong_solution: Rate = 0.03
    """ScriptWriter, grounded: a solution that does not reach the goal."""
    met_goal: Rate = 0.02
    """ScriptWriter, grounded: a goal that is reached at the beginning."""
    unreachable_goal: Rate = 0.02
    """ScriptWriter, grounded: a goal that nothing can reach, and no solution."""
    useless_action: Rate = 0.02
    """ScriptWriter, grounded: an action that is never possible."""
    misaligned_goal: Rate = 0.02
    """ScriptWriter, grounded: more or fewer conditions of the goal than sentences."""
    unseen_name: Rate = 0.03
    """DungeonMaster, grounded: something is named that the player can neither see nor has heard of, if there is such a
    thing."""
    contradiction: Rate = 0.03
    """DungeonMaster, grounded: what was carried out is reported as a failure, a mistake as a success."""
    said_success: Rate = 0.02
    """DungeonMaster, grounded: the words `Task Succeed`, which are the program's."""
    ignored_failure: Rate = 0.2
    """DungeonMaster, grounded: of the actions that fail for a moment, those that are reported as carried out."""

    @classmethod
    def none(cls) -> Self:
        return cls.model_validate(dict.fromkeys(cls.model_fields.keys() - {"skill", "families"}, 0.0))


@dataclass(frozen=True)
class Luck:
    """Draws for one request. Each depends on the request, the seed and its name only."""

    digest: bytes
    faults: Faults

    def rng(self, name: str) -> Random:
        return Random(int.from_bytes(self._draw(name)))

    def pick(self, name: str, choices: tuple[T, ...]) -> T:
        return choices[int.from_bytes(self._draw(name)) % len(choices)]

    def strikes(self, fault: str, part: str = "") -> bool:
        """True if this fault strikes this request, or this part of its answer."""
        rate: float = getattr(self.faults, fault)
        return rate > 0 and int.from_bytes(self._draw(f"{fault}/{part}")) < rate * 2**64

    def turn(self, number: int) -> "Luck":
        """Draws for one turn of a longer answer."""
        return Luck(self._draw(f"turn {number}"), self.faults)

    def _draw(self, name: str) -> bytes:
        return blake2b(name.encode(), key=self.digest, digest_size=8).digest()
