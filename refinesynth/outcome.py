"""Outcome of one episode: its trajectories or the reason for their absence, its refused scripts and drafts, costs."""

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field

from refinesynth.rules.rule import Violation, rejects
from refinesynth.trajectory import Draft, Persona, Script, Trajectory, Usage, Value
from refinesynth.trajectory.value import is_empty


class Cost(Value):
    """Tokens and requests, with their price."""

    usage: Usage = Usage()
    cost_usd: float | None = Field(default=0.0, allow_inf_nan=False)
    """US dollars; None if the price of a completion is unknown."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(usage=self.usage + other.usage, cost_usd=_sum(self.cost_usd, other.cost_usd, 1))

    def __sub__(self, other: "Cost") -> "Cost":
        """Return the rest of this cost without its part `other`."""
        usage = {name: amount - getattr(other.usage, name) for name, amount in self.usage}
        return Cost(usage=Usage(**usage), cost_usd=_sum(self.cost_usd, other.cost_usd, -1))

    def share(self, part: int, of: int) -> "Cost":
        """Return `part` of `of` equal parts; tokens and requests are rounded down."""
        usage = {name: count * part // of for name, count in self.usage}
        return Cost(usage=Usage(**usage), cost_usd=None if self.cost_usd is None else self.cost_usd * part / of)

    def divided(self, parts: int) -> list["Cost"]:
        """Return this cost in equal parts, whose tokens and requests add up to it."""
        rest, shares = self, list["Cost"]()
        for remaining in range(parts, 0, -1):
            shares.append(rest.share(1, remaining))
            rest -= shares[-1]
        return shares

    @property
    def tokens(self) -> int:
        """Number of tokens of prompts and completions together."""
        return self.usage.input_tokens + self.usage.output_tokens


def _sum(first: float | None, second: float | None, sign: int) -> float | None:
    # Differences below 1e-12 US dollars are rounding errors.
    return None if first is None or second is None else round(first + sign * second, 12) + 0.0


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
