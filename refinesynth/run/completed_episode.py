"""A finished episode: its line in the journal, from which counts come, and its records as bytes for the files."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from refinesynth.cost import Cost
from refinesynth.errors import StorageError
from refinesynth.journal import Entry
from refinesynth.outcome import EpisodeOutcome, Refused, wasted
from refinesynth.run.trajectory_stats import EpisodeStats
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import Persona, ScriptedPersona, Trajectory, Usage, explain


def fingerprint(persona: Persona) -> str:
    """Return sixteen hexadecimal digits that identify this persona, with its script if it has one."""
    script = persona.script.digest if isinstance(persona, ScriptedPersona) else ""
    return hashlib.blake2b(f"{persona.text}{script}".encode(), digest_size=8).hexdigest()


class JournalModel(BaseModel, extra="forbid"):
    """Value in the journal. A field that is added later needs a default, so old values stay readable."""

    def to_json(self) -> bytes:
        """Return one line of JSON, without the newline."""
        return write_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read what `to_json` wrote. Raises StorageError: it is damaged, or of another version."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise StorageError(
                f"the journal is damaged, or of another version: {cls.__name__}: {explain(error)}. Put the original back, or "
                f"start over with --fresh (in Python fresh=True), which keeps the old folder"
            ) from error


class EpisodeLine(JournalModel):
    """A finished episode in one small line."""

    model_config = ConfigDict(frozen=True)

    index: int = Field(ge=0)
    """The persona's position in the source, from 0."""
    id: str
    persona: str
    accepted: bool
    trajectories: int = Field(default_factory=lambda fields: int(fields["accepted"]), ge=0)
    """Number of its trajectories; absent in lines from before there could be several."""
    reason: str | None
    """Reason why there is no trajectory; None if there is one."""
    lost: bool = False
    """See `EpisodeOutcome.lost`."""
    scripts_refused: int = Field(ge=0)
    drafts_refused: int = Field(ge=0)
    by_rule: dict[str, int]
    """Rule name to the refused scripts and drafts that it rejected, each counted once."""
    violations: dict[str, int]
    """Rule name to all its findings in them, warnings included."""
    usage: Usage
    cost_usd: float | None
    """US dollars; None where a model's price is unknown."""
    wasted: dict[str, Cost] = Field(default_factory=dict[str, Cost])
    """Rule name to the cost of what it refused, see `Refused.usage`."""
    figures: EpisodeStats = EpisodeStats()

    @model_validator(mode="after")
    def _counts_agree(self) -> Self:
        if self.accepted != bool(self.trajectories):
            raise ValueError(f"accepted is {self.accepted}, and there are {self.trajectories} trajectories")
        return self

    @property
    def spent(self) -> Cost:
        return Cost(usage=self.usage, cost_usd=self.cost_usd)

    @classmethod
    def of(cls, outcome: EpisodeOutcome) -> Self:
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
            by_rule=refusals_by_rule(refused),
            violations=dict(Counter(found.rule for item in refused for found in item.violations)),
            usage=outcome.usage,
            cost_usd=outcome.cost_usd,
            wasted=wasted(refused),
            figures=EpisodeStats.of(outcome),
        )


def refusals_by_rule(refused: Iterable[Refused]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for item in refused:
        counts.update(dict.fromkeys(item.rejecting, 1))
    return dict(counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedEpisode:
    """An episode's outcome as bytes. No line holds a newline."""

    line: EpisodeLine
    trajectories: tuple[bytes, ...]
    rejected: tuple[bytes, ...]
    doubtful: bool = False
    """See `EpisodeOutcome.doubtful`; written only once another episode has shown that the settings are right."""

    @classmethod
    def of(cls, outcome: EpisodeOutcome) -> "CompletedEpisode":
        return cls(
            line=EpisodeLine.of(outcome),
            trajectories=tuple(trajectory.to_json() for trajectory in outcome.trajectories),
            rejected=tuple(refused.to_json() for refused in outcome.refused),
            doubtful=outcome.doubtful,
        )

    @property
    def index(self) -> int:
        return self.line.index

    @property
    def id(self) -> str:
        return self.line.id

    @property
    def persona(self) -> str:
        return self.line.persona

    def waiting(self) -> Entry:
        """Return the journal's entry while an earlier episode is missing; it holds the lines as well."""
        # An empty line stands where there is no trajectory, as it did when there could be no more than one.
        return self._entry(held=b"\n".join((*(self.trajectories or (b"",)), *self.rejected)))

    def written(self, *, trajectories_end: int, rejected_end: int) -> Entry:
        """Return the journal's entry once the lines are in the files, with the files' sizes in bytes."""
        return self._entry(trajectories_end=trajectories_end, rejected_end=rejected_end)

    @classmethod
    def read(cls, entry: Entry) -> "CompletedEpisode":
        """Read an episode from its `waiting` entry. Raises StorageError: this is no such entry."""
        line = EpisodeLine.from_json(entry.line)
        if entry.held is None:
            raise StorageError(f"the journal is damaged: it has lost episode {entry.index}, which waited for its turn")
        records = entry.held.split(b"\n")
        first = max(1, line.trajectories)
        if len(records) < first or (not line.trajectories and records[0]):
            raise StorageError(
                f"the journal is damaged: episode {entry.index}, which waited for its turn, has not the records that it counts"
            )
        return cls(line=line, trajectories=tuple(records[: line.trajectories]), rejected=tuple(records[first:]))

    def curated(self, curate: Callable[[EpisodeOutcome], EpisodeOutcome]) -> "CompletedEpisode":
        """Return this episode after `curate`, which may refuse its trajectories; itself if nothing was changed."""
        if not self.trajectories:
            return self
        before = self._outcome()
        after = curate(before)
        if after == before:
            return self
        finished = CompletedEpisode.of(after)
        # Written down and read again, a persona's text may have lost what no file can hold.
        return replace(finished, line=finished.line.model_copy(update={"persona": self.persona}))

    def _outcome(self) -> EpisodeOutcome:
        try:
            trajectories = tuple(map(Trajectory.from_json, self.trajectories))
            refused = tuple(map(Refused.from_json, self.rejected))
        except ValueError as error:
            raise StorageError(f"the journal is damaged: episode {self.index} cannot be read ({error})") from error
        return EpisodeOutcome(
            index=self.index,
            id=self.id,
            persona=trajectories[0].persona,
            trajectories=trajectories,
            refused=refused,
            salvaged=self.line.figures.salvaged,
            usage=self.line.usage,
            cost_usd=self.line.cost_usd,
        )

    def _entry(self, **kept: Any) -> Entry:
        line = self.line
        return Entry(
            index=line.index, id=line.id, persona=line.persona, accepted=line.accepted, line=line.to_json(), **kept
        )
