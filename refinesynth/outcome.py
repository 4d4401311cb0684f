"""Outcome of one episode: its trajectories or the reason why there is none, and all that was refused."""

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field

from refinesynth.cost import Cost
from refinesynth.rules.rule import Violation, rejects
from refinesynth.trajectory import Draft, Persona, Script, Trajectory, Usage, Value
from refinesynth.trajectory.value import absent


class Refused(Value):
    """A script or a draft that was paid for and not kept: one line of rejected.jsonl.

    It holds what a rule needs to look at it again, see `evidence`.
    """

    episode: str
    """Id of the episode that it belongs to."""
    persona: Persona
    stage: Literal["script", "draft"]
    attempt: int = Field(ge=0)
    """The how-many-th script or draft of its episode this is, from 1; 0 for a script that was there already."""
    script: Script | None = None
    """The refused script; None for a draft (which holds its own) and for a script that could not be read."""
    draft: Draft | None = None
    """The refused draft, as far as it came."""
    text: str | None = None
    """Fault of an answer that could not be read at all; None where a script or draft is there."""
    record: str = Field(default="", exclude_if=absent)
    """Of an import: the record that could not be read, as it stood in the file."""
    violations: tuple[Violation, ...] = ()
    """Everything that refused it, and what only warned. The LLM judge's refusal is one of rule `Judge`."""
    usage: Usage = Usage()
    """Cost that was wasted on it. For a script: everything since it was begun. For a draft: everything for the turns that
    no attempt continued, whichever attempt made them; an attempt's cost is spread evenly over its turns."""
    cost_usd: float | None = 0.0
    """The same in US dollars; None where a model's price is unknown."""

    @property
    def rejecting(self) -> tuple[str, ...]:
        """The rules that refused it, each once, in the order of their violations; empty if it was broken off."""
        return tuple(dict.fromkeys(found.rule for found in self.violations if rejects(found)))

    def evidence(self) -> Draft | None:
        """Draft to verify again, or the script without turns; None if nothing could be read."""
        if self.draft is not None:
            return self.draft
        return None if self.script is None else Draft(script=self.script, finished=False)


class EpisodeOutcome(Value):
    """The whole answer about one persona."""

    index: int = Field(ge=0)
    """The persona's position in the run's source, from 0."""
    id: str = Field(min_length=1)
    """The episode's id. It begins the id of each of its trajectories."""
    persona: Persona
    trajectories: tuple[Trajectory, ...] = ()
    """Accepted trajectories in the order in which they were played; several where an episode plays its script more than
    once."""
    refused: tuple[Refused, ...] = ()
    """Refused scripts and drafts in the order in which they were made."""
    reason: str | None = None
    """Reason why there is no trajectory, in a sentence; None if there is one."""
    lost: bool = False
    """True if there is none because the backend failed or the deadline passed, which tells nothing of the data."""
    doubtful: bool = False
    """True if its backend has not given a usable answer to any request yet, see `EpisodeDoubtful`."""
    salvaged: Mapping[str, int] = Field(default_factory=dict[str, int])
    """Repairs of answers that could be used, by kind."""
    usage: Usage = Usage()
    """Of the whole episode, refused attempts included."""
    cost_usd: float | None = None
    """US dollars for the whole episode; None where a model's price is unknown."""

    @property
    def accepted(self) -> bool:
        """Return whether there is a trajectory."""
        return bool(self.trajectories)

    @property
    def trajectory(self) -> Trajectory | None:
        """The first of `trajectories`, mostly the only one; None if there is none."""
        return self.trajectories[0] if self.trajectories else None


def wasted(refused: Iterable[Refused]) -> dict[str, Cost]:
    """Rule name to what was spent on what it refused. Where several rules refused one thing, they share its cost
    evenly.
    """
    by_rule: dict[str, Cost] = {}
    for item in refused:
        rules = item.rejecting
        shares = Cost(usage=item.usage, cost_usd=item.cost_usd).divided(len(rules))
        for rule, share in zip(rules, shares, strict=True):
            by_rule[rule] = by_rule.get(rule, Cost()) + share
    return by_rule
