"""episodes.jsonl: one small line per finished episode, written last, so that it decides what is finished."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel, Field

from refinesynth.jsontext import write_json
from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.rules.rule import rejects
from refinesynth.trajectory import Persona, Usage


def fingerprint(persona: Persona) -> str:
    """Sixteen hexadecimal digits that tell this persona from others."""
    return hashlib.blake2b(persona.text.encode(), digest_size=8).hexdigest()


class EpisodeLine(BaseModel, frozen=True, extra="forbid"):
    """What a resume and the run's counts need to know about a finished episode."""

    index: int = Field(ge=0)
    """The persona's position in the source, from 0; lines are in this order, without gaps."""
    id: str
    persona: str
    """`fingerprint` of the persona."""
    accepted: bool
    reason: str | None
    """Why there is no trajectory; None if there is one."""
    scripts_refused: int = Field(ge=0)
    drafts_refused: int = Field(ge=0)
    by_rule: dict[str, int]
    """Rule name to the refused scripts and drafts that it rejected, each counted once."""
    violations: dict[str, int]
    """Rule name to everything that it found in them, warnings included."""
    usage: Usage
    cost_usd: float | None
    """US dollars; None where a model's price is unknown."""
    trajectories_end: int = Field(ge=0)
    """Size of trajectories.jsonl after this episode, in bytes."""
    rejected_end: int = Field(ge=0)
    """Size of rejected.jsonl after this episode, in bytes."""

    @classmethod
    def of(cls, outcome: EpisodeOutcome, *, trajectories_end: int = 0, rejected_end: int = 0) -> Self:
        """The line for an outcome."""
        refused = outcome.refused
        scripts = sum(item.stage == "script" for item in refused)
        return cls(
            index=outcome.index,
            id=outcome.id,
            persona=fingerprint(outcome.persona),
            accepted=outcome.accepted,
            reason=outcome.reason,
            scripts_refused=scripts,
            drafts_refused=len(refused) - scripts,
            by_rule=_by_rule(refused),
            violations=dict(Counter(found.rule for item in refused for found in item.violations)),
            usage=outcome.usage,
            cost_usd=outcome.cost_usd,
            trajectories_end=trajectories_end,
            rejected_end=rejected_end,
        )

    def to_json(self) -> bytes:
        """This value as one line of JSON, without the newline."""
        return write_json(self.model_dump(mode="json"))


def _by_rule(refused: Iterable[Refused]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for item in refused:
        # A dict, not a set: its order does not depend on the hash seed, and the line must be the same every time.
        counts.update(dict.fromkeys((found.rule for found in item.violations if rejects(found)), 1))
    return dict(counts)


class Totals:
    """Sums over finished episodes. Their size does not depend on how many there are."""

    def __init__(self) -> None:
        self.episodes = 0
        self.accepted = 0
        self.scripts_refused = 0
        self.drafts_refused = 0
        self.by_rule: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.usage = Usage()
        self.cost_usd: float | None = 0.0
        """US dollars; None as soon as the cost of one episode is unknown."""

    def add(self, line: EpisodeLine) -> None:
        """Count one more episode."""
        self.episodes += 1
        self.accepted += line.accepted
        self.scripts_refused += line.scripts_refused
        self.drafts_refused += line.drafts_refused
        self.by_rule.update(line.by_rule)
        self.violations.update(line.violations)
        self.usage += line.usage
        self.cost_usd = sum_costs(self.cost_usd, line.cost_usd)


def sum_costs(one: float | None, other: float | None) -> float | None:
    """Two costs together, in US dollars; unknown (None) if one of them is."""
    return None if one is None or other is None else one + other
