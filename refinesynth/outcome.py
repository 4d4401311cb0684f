"""Outcome of one episode: its trajectories or the reason for their absence, and its refused scripts and drafts."""

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field

from refinesynth.cost import Cost
from refinesynth.rules.rule import Violation, rejects
from refinesynth.trajectory import Draft, Persona, Script, Trajectory, Usage, Value
from refinesynth.trajectory.value import is_empty


class Refused(Value):
    """A refused script or draft: one line of rejected.jsonl.

    `evidence` returns the draft for a second verification.
    """

    episode: str
    """Id of its episode."""
    persona: Persona
    stage: Literal["script", "draft"]
    attempt: int = Field(ge=0)
    """Number of the script or draft within its episode, from 1; 0 for a given script."""
    script: Script | None = None
    """The refused script; None for a draft, which holds its script, and for an unreadable script."""
    draft: Draft | None = None
    """The refused draft, possibly incomplete."""
    text: str | None = None
    """Fault of an unreadable answer; None if there is a script or draft."""
    record: str = Field(default="", exclude_if=is_empty)
    """Unreadable record of an import, as in the file."""
    violations: tuple[Violation, ...] = ()
    """Violations, warnings included. The LLM judge's refusal is a violation of the rule `Judge`."""
    usage: Usage = Usage()
    """Wasted usage. For a script: all usage since its first request. For a draft: the usage of the turns that no attempt
    continued, also of earlier attempts. The usage of an attempt is spread evenly over its turns."""
    cost_usd: float | None = 0.0
    """Wasted US dollars, as for `usage`; None if a model's price is unknown."""

    @property
    def rejecting(self) -> tuple[str, ...]:
        """Names of the rules that refused it, each once, in the order of their violations; empty for an aborted draft."""
        return tuple(dict.fromkeys(violation.rule for violation in self.violations if rejects(violation)))

    def evidence(self) -> Draft | None:
        """Return the draft, or the script as a draft without turns; None for unreadable text."""
        if self.draft is not None:
            return self.draft
        return None if self.script is None else Draft(script=self.script, finished=False)


class EpisodeOutcome(Value):
    """Result of the episode of one persona."""

    index: int = Field(ge=0)
    """The persona's position in the run's source, from 0."""
    id: str = Field(min_length=1)
    """The episode's id. It begins the id of each of its trajectories."""
    persona: Persona
    trajectories: tuple[Trajectory, ...] = ()
    """Accepted trajectories in the order of play; several if the episode plays its script more than once."""
    refused: tuple[Refused, ...] = ()
    """Refused scripts and drafts in the order of their creation."""
    reason: str | None = None
    """Reason for the absence of trajectories, in a sentence; None if there is a trajectory."""
    lost: bool = False
    """True if there is no trajectory because the backend failed or the deadline passed; says nothing about the data."""
    doubtful: bool = False
    """True if the episode ended with `EpisodeDoubtful`: its backend has not given a usable answer to any request yet."""
    salvaged: Mapping[str, int] = Field(default_factory=dict[str, int])
    """Number of repairs in usable answers, by kind of repair."""
    usage: Usage = Usage()
    """Usage of the whole episode, refused attempts included."""
    cost_usd: float | None = None
    """US dollars for the whole episode; None if a model's price is unknown."""

    @property
    def accepted(self) -> bool:
        """Return whether there is a trajectory."""
        return bool(self.trajectories)

    @property
    def trajectory(self) -> Trajectory | None:
        """First of `trajectories`; None without trajectories."""
        return self.trajectories[0] if self.trajectories else None


def wasted(refused: Iterable[Refused]) -> dict[str, Cost]:
    """Return the cost of refused scripts and drafts by rule name; several rules share a cost evenly."""
    by_rule: dict[str, Cost] = {}
    for item in refused:
        rules = item.rejecting
        shares = Cost(usage=item.usage, cost_usd=item.cost_usd).divided(len(rules))
        for rule, share in zip(rules, shares, strict=True):
            by_rule[rule] = by_rule.get(rule, Cost()) + share
    return by_rule
