"""What a run's counts need to know of a finished episode, and the sums over all of them; both are kept in the
journal.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from refinesynth.cost import Cost
from refinesynth.errors import StorageError
from refinesynth.outcome import EpisodeOutcome, Refused, wasted
from refinesynth.run.figures import EpisodeFigures, Figures
from refinesynth.run.reasons import REASON, count_reason
from refinesynth.text.jsontext import write_json
from refinesynth.trajectory import Persona, ScriptedPersona, Trajectory, Usage, explain

_Kept = TypeVar("_Kept", bound=BaseModel)


def fingerprint(persona: Persona) -> str:
    """Sixteen hexadecimal digits that identify this persona, with its script if it has one."""
    script = persona.script.digest if isinstance(persona, ScriptedPersona) else ""
    return hashlib.blake2b(f"{persona.text}{script}".encode(), digest_size=8).hexdigest()


class EpisodeLine(BaseModel, frozen=True, extra="forbid"):
    """A finished episode in one small line.

    A field that is added later needs a default, so that what was written before can still be read.
    """

    index: int = Field(ge=0)
    """The persona's position in the source, from 0."""
    id: str
    persona: str
    """`fingerprint` of the persona."""
    accepted: bool
    """Whether it gave a trajectory."""
    trajectories: int = Field(default_factory=lambda fields: int(fields["accepted"]), ge=0)
    """How many it gave. Lines from before there could be several do not say it."""
    reason: str | None
    """Why there is no trajectory; None if there is one."""
    lost: bool = False
    """Whether that says nothing of the data, see `EpisodeOutcome.lost`."""
    scripts_refused: int = Field(ge=0)
    drafts_refused: int = Field(ge=0)
    by_rule: dict[str, int]
    """Rule name to the refused scripts and drafts that it rejected, each counted once."""
    violations: dict[str, int]
    """Rule name to everything that it found in them, warnings included."""
    usage: Usage
    cost_usd: float | None
    """US dollars; None where a model's price is unknown."""
    wasted: dict[str, Cost] = Field(default_factory=dict[str, Cost])
    """Rule name to what was spent on what it refused, see `Refused.usage`."""
    figures: EpisodeFigures = EpisodeFigures()
    """What its trajectories are like."""

    @model_validator(mode="after")
    def _counts_agree(self) -> Self:
        if self.accepted != bool(self.trajectories):
            raise ValueError(f"accepted is {self.accepted}, and there are {self.trajectories} trajectories")
        return self

    @property
    def spent(self) -> Cost:
        """By the whole episode."""
        return Cost(usage=self.usage, cost_usd=self.cost_usd)

    @classmethod
    def of(cls, outcome: EpisodeOutcome) -> Self:
        """The line for an outcome."""
        refused = outcome.refused
        scripts = sum(item.stage == "script" for item in refused)
        return cls(
            index=outcome.index,
            id=outcome.id,
            persona=fingerprint(outcome.persona),
            accepted=outcome.accepted,
            trajectories=len(outcome.trajectories),
            reason=outcome.reason,
            lost=outcome.lost,
            scripts_refused=scripts,
            drafts_refused=len(refused) - scripts,
            by_rule=_by_rule(refused),
            violations=dict(Counter(found.rule for item in refused for found in item.violations)),
            usage=outcome.usage,
            cost_usd=outcome.cost_usd,
            wasted=wasted(refused),
            figures=EpisodeFigures.of(outcome),
        )

    def to_json(self) -> bytes:
        """This value as one line of JSON, without the newline."""
        return write_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, line: bytes) -> Self:
        """Read what `to_json` wrote.

        Raises:
            StorageError: This is no such line.
        """
        return _read(cls, line)


def _by_rule(refused: Iterable[Refused]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for item in refused:
        counts.update(dict.fromkeys(item.rejecting, 1))
    return dict(counts)


class Totals(BaseModel, extra="forbid"):
    """Sums over finished episodes. Their size does not depend on how many there are.

    As with `EpisodeLine`, a field that is added later needs a default.
    """

    episodes: int = 0
    accepted: int = 0
    """Trajectories."""
    fruitful: int = Field(default_factory=lambda fields: fields["accepted"])
    """Episodes that gave one or more of them. Sums from before there could be several do not say it."""
    lost: int = 0
    """Episodes without any, because their backend failed or their deadline passed."""
    scripts_refused: int = 0
    drafts_refused: int = 0
    by_rule: Counter[str] = Field(default_factory=Counter[str])
    violations: Counter[str] = Field(default_factory=Counter[str])
    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    """US dollars; None as soon as the cost of one episode is unknown."""
    wasted: dict[str, Cost] = Field(default_factory=dict[str, Cost])
    """Rule name to what was spent on what it refused."""
    fruitless: Cost = Cost()
    """By episodes without a trajectory, beside what rules wasted."""
    figures: Figures = Field(default_factory=Figures)
    """What the trajectories are like."""
    last_reason: str | None = None
    """Why the last of these episodes gave none, shortened."""
    reasons: Counter[str] = Field(default_factory=Counter[str])
    """Why episodes gave none, to how many, see `count_reason`; none where an earlier version counted."""

    def add(self, line: EpisodeLine) -> None:
        """Count one more episode."""
        self.episodes += 1
        self.accepted += line.trajectories
        self.fruitful += line.accepted
        self.lost += line.lost
        self.scripts_refused += line.scripts_refused
        self.drafts_refused += line.drafts_refused
        self.by_rule.update(line.by_rule)
        self.violations.update(line.violations)
        self.usage += line.usage
        self.cost_usd = sum_costs(self.cost_usd, line.cost_usd)
        self.figures.add(line.figures)
        for rule, spent in line.wasted.items():
            self.wasted[rule] = self.wasted.get(rule, Cost()) + spent
        if not line.accepted:
            self.fruitless += line.spent - sum(line.wasted.values(), Cost())
            self.note(line.reason)

    def note(self, reason: str | None) -> None:
        """Count why an episode gave none."""
        self.last_reason = None if reason is None else reason[:REASON]
        if reason is not None:
            count_reason(self.reasons, reason)

    @property
    def commonest_reason(self) -> tuple[str, int] | None:
        """Why most of the episodes without a trajectory gave none, and how many they are; None if that is unknown."""
        return next(iter(self.reasons.most_common(1)), None)

    @property
    def spent(self) -> Cost:
        """By all of these episodes."""
        return Cost(usage=self.usage, cost_usd=self.cost_usd)

    @classmethod
    def counted(cls, *, accepted: Iterable[Trajectory], refused: Iterable[Refused]) -> Self:
        """What is still known of a run whose journal is missing: nothing of failed episodes, tokens and costs."""
        totals = cls(cost_usd=None)
        before: tuple[int, Persona] | None = None
        for trajectory in accepted:
            totals.accepted += 1
            totals.figures.add(EpisodeFigures.of_records([trajectory]))
            # Those of one episode follow on each other.
            episode = trajectory.provenance.seed, trajectory.persona
            totals.fruitful += episode != before
            before = episode
        totals.episodes = totals.fruitful
        for item in refused:
            totals.scripts_refused += item.stage == "script"
            totals.drafts_refused += item.stage == "draft"
            totals.by_rule.update(_by_rule([item]))
            totals.violations.update(found.rule for found in item.violations)
        return totals

    def to_json(self) -> bytes:
        """These sums as JSON."""
        return write_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read what `to_json` wrote.

        Raises:
            StorageError: This is no such thing.
        """
        return _read(cls, data)


def _read(kind: type[_Kept], data: bytes) -> _Kept:
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise StorageError(
            f"the journal is damaged, or of another version: {kind.__name__}: {explain(error)}. Put the original back, or "
            f"start over with --fresh (in Python fresh=True), which keeps the old folder"
        ) from error


def sum_costs(one: float | None, other: float | None) -> float | None:
    """Two costs together, in US dollars; unknown (None) if one of them is."""
    return None if one is None or other is None else one + other
