"""A finished episode: its line in the journal, with counts and statistics, and its records as bytes for the files."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from refinesynth.errors import StorageError
from refinesynth.journal import Entry
from refinesynth.outcome import Cost, EpisodeOutcome, Refused, wasted
from refinesynth.rules.repairs import Repair, refinements, repairs
from refinesynth.settings.grounding import FEATURES
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import Difficulty, DungeonMasterTurn, Persona, ScriptedPersona, Trajectory, Usage, explain
from refinesynth.trajectory.turns import mistakes_by_tenth, summed

UNREADABLE = "unreadable"
"""Name, in place of a rule's, for the refusal of scripts that cannot be read."""

_MIN_DISTRACTOR_SHARE = 0.5
_MIN_PRECONDITIONS = 4

SLOW_REPAIRS = {"after a second try": "again", "later": "late"}
"""Kind of a slow repair to the field of `Refinements` with its count."""


class EpisodeStats(BaseModel, frozen=True, extra="forbid"):
    """Statistics of one episode's trajectories and refused scripts; some hundred bytes."""

    scripts: tuple[str, ...] = ()
    """Distinct digests of the scripts."""
    actions: tuple[str, ...] = ()
    """Distinct digests of the actions' templates, eight hexadecimal digits each."""
    turns: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    """Length of the script's shortest solution in actions, for each grounded trajectory."""
    features: dict[str, int] = Field(default_factory=dict[str, int])
    """Number of grounded trajectories by feature of their script (`shown_features`)."""
    mistakes: dict[str, int] = Field(default_factory=dict[str, int])
    """Number of the player's mistakes by kind."""
    refinements: int = 0
    """Number of mistakes that are answered or abandoned (`rules.repairs`)."""
    abandoned: int = 0
    """Number of abandoned mistakes: the goal was reached without an answer to them."""
    unanswered: int = 0
    longer: dict[str, int] = Field(default_factory=dict[str, int])
    """Number of slow repairs by kind (`SLOW_REPAIRS`)."""
    repaired: dict[str, int] = Field(default_factory=dict[str, int])
    """Number of answered mistakes by kind, in trajectories with a repairer."""
    repair_turns: dict[str, int] = Field(default_factory=dict[str, int])
    """Total of the player's turns up to these answers, by kind of mistake."""
    tenths: tuple[float, ...] = ()
    """Mistakes in each tenth of the plays (`mistakes_by_tenth`); empty without trajectories."""
    clean: int = 0
    transient: int = 0
    """Number of transient failures of right actions."""
    plain: int = 0
    """Number of answers in the rulebook's words, in place of the DungeonMaster's."""
    salvaged: dict[str, int] = Field(default_factory=dict[str, int])
    """Number of repairs in usable answers, by kind of repair."""
    stopped: dict[str, int] = Field(default_factory=dict[str, int])
    """Number of refused scripts by the first rejecting rule, or `UNREADABLE`."""
    passed: int = 0
    """Number of played scripts: 1 if there is a trajectory or a refused draft, else 0."""

    @classmethod
    def of(cls, outcome: EpisodeOutcome) -> Self:
        drafts = any(item.stage == "draft" for item in outcome.refused)
        stats = cls.of_records(outcome.trajectories, outcome.refused, passed=int(bool(outcome.trajectories) or drafts))
        return stats.model_copy(update={"salvaged": dict(outcome.salvaged)})

    @classmethod
    def of_records(
        cls, trajectories: Sequence[Trajectory], refused: Iterable[Refused] = (), *, passed: int = 0
    ) -> Self:
        answers = [turn for item in trajectories for turn in item.turns if isinstance(turn, DungeonMasterTurn)]
        names = {action.name for item in trajectories for action in item.script.actions}
        difficulties = [difficulty for item in trajectories if (difficulty := item.provenance.difficulty) is not None]
        counts = [refinements(item) for item in trajectories]
        with_repairer = [item for item in trajectories if "repairer" in item.provenance.models]
        turns_by_kind = [_turns_taken(repair) for item in with_repairer for repair in repairs(item.draft())]
        return cls(
            scripts=tuple(dict.fromkeys(item.provenance.script_id or item.script.digest for item in trajectories)),
            actions=tuple(sorted(map(_digest, names))),
            turns=tuple(len(item.turns) for item in trajectories),
            steps=tuple(difficulty.steps for difficulty in difficulties),
            features=dict(Counter(feature for difficulty in difficulties for feature in shown_features(difficulty))),
            mistakes=dict(Counter(turn.mistake_kind.value for turn in answers if turn.mistake_kind is not None)),
            refinements=sum(item.answered + item.abandoned for item in counts),
            abandoned=sum(item.abandoned for item in counts),
            unanswered=sum(item.unanswered for item in counts),
            longer={slow: sum(getattr(item, field) for item in counts) for slow, field in SLOW_REPAIRS.items()},
            repaired=dict(Counter(kind for kind, turns in turns_by_kind if turns)),
            repair_turns=dict(sum((Counter({kind: turns}) for kind, turns in turns_by_kind if turns), Counter[str]())),
            tenths=tuple(round(mass, 3) for mass in summed(mistakes_by_tenth(item.turns) for item in trajectories)),
            clean=sum(not item.mistakes() for item in trajectories),
            transient=sum(turn.transient for turn in answers),
            plain=sum(turn.plain for turn in answers),
            stopped=dict(Counter(next(iter(item.rejecting), UNREADABLE) for item in refused if item.stage == "script")),
            passed=passed,
        )


def shown_features(difficulty: Difficulty) -> tuple[str, ...]:
    """Return the features that the execution of the script has shown.

    Distractors: half of the names or more; irreversible: a single action is known to lose the goal; hidden: a needed
    thing is invisible at first; preconditions: the solution must establish at least four conditions.
    """
    shown = {
        "distractors": difficulty.distractors >= _MIN_DISTRACTOR_SHARE,
        "irreversible": difficulty.losable is True,
        "hidden": difficulty.hidden > 0,
        "preconditions": difficulty.preconditions >= _MIN_PRECONDITIONS,
    }
    return tuple(feature for feature in FEATURES if shown[feature])


def _turns_taken(repair: Repair) -> tuple[str, int]:
    """Return the kind of a mistake, and the number of the player's turns up to its answer; 0 without an answer."""
    kind = repair.mistake.answer.mistake_kind if repair.mistake.answer is not None else None
    return str(kind), 0 if repair.answer is None else (repair.answer - repair.mistake.turn) // 2


def _digest(name: str) -> str:
    normalized = " ".join(name.casefold().split())
    return blake2b(normalized.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def fingerprint(persona: Persona) -> str:
    """Return a digest of this persona and of its script, if any, in sixteen hexadecimal digits."""
    script = persona.script.digest if isinstance(persona, ScriptedPersona) else ""
    return blake2b(f"{persona.text}{script}".encode(), digest_size=8).hexdigest()


class JournalModel(BaseModel, extra="forbid"):
    """Value in the journal. A new field needs a default, to keep old values readable."""

    def to_json(self) -> bytes:
        """Return one line of JSON, without the newline."""
        return write_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read the output of `to_json`. Raises StorageError: the data is damaged, or of another version."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise StorageError(
                f"the journal is damaged, or of another version: {cls.__name__}: {explain(error)}. Put the original back, or "
                f"start over with --fresh (in Python fresh=True), which keeps the old folder"
            ) from error


class EpisodeLine(JournalModel):
    """Summary of a finished episode in one small line."""

    model_config = ConfigDict(frozen=True)

    index: int = Field(ge=0)
    """The persona's position in the source, from 0."""
    id: str
    persona: str
    accepted: bool
    trajectories: int = Field(ge=0)
    reason: str | None
    """Reason for the absence of trajectories; None if there is a trajectory."""
    lost: bool = False
    """True for a lost episode, as in `EpisodeOutcome.lost`."""
    scripts_refused: int = Field(ge=0)
    drafts_refused: int = Field(ge=0)
    by_rule: dict[str, int]
    """Number of rejected scripts and drafts by rule name."""
    violations: dict[str, int]
    """Number of findings in refused scripts and drafts by rule name, warnings included."""
    usage: Usage
    cost_usd: float | None
    """US dollars; None if a model's price is unknown."""
    wasted: dict[str, Cost] = Field(default_factory=dict[str, Cost])
    """Wasted cost by rejecting rule, as defined for `Refused.usage`."""
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
            violations=dict(Counter(violation.rule for item in refused for violation in item.violations)),
            usage=outcome.usage,
            cost_usd=outcome.cost_usd,
            wasted=wasted(refused),
            figures=EpisodeStats.of(outcome),
        )


def refusals_by_rule(refused: Iterable[Refused]) -> dict[str, int]:
    return dict(Counter(rule for item in refused for rule in dict.fromkeys(item.rejecting)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedEpisode:
    """An episode's outcome as lines of bytes without newlines."""

    line: EpisodeLine
    trajectories: tuple[bytes, ...]
    rejected: tuple[bytes, ...]
    doubtful: bool = False
    """True for a doubtful episode, which is written only after another episode has shown that the settings are right."""

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

    def waiting_entry(self) -> Entry:
        """Return the journal's entry, with the lines, for the time until the commit to the files."""
        # An empty line stands for no trajectory.
        return self._entry(held=b"\n".join((*(self.trajectories or (b"",)), *self.rejected)))

    def written_entry(self, *, trajectories_end: int, rejected_end: int) -> Entry:
        """Return the journal's entry for lines in the files, with the files' sizes in bytes."""
        return self._entry(trajectories_end=trajectories_end, rejected_end=rejected_end)

    @classmethod
    def read(cls, entry: Entry) -> "CompletedEpisode":
        """Read an episode from its `waiting_entry`. Raises StorageError: the entry is damaged."""
        line = EpisodeLine.from_json(entry.line)
        if entry.held is None:
            raise StorageError(f"the journal is damaged: it has lost episode {entry.index}, which waited for its turn")
        records = entry.held.split(b"\n")
        refused_start = max(1, line.trajectories)
        if len(records) < refused_start or (not line.trajectories and records[0]):
            raise StorageError(
                f"the journal is damaged: episode {entry.index}, which waited for its turn, has not the records that it counts"
            )
        return cls(line=line, trajectories=tuple(records[: line.trajectories]), rejected=tuple(records[refused_start:]))

    def curated(self, curate: Callable[[EpisodeOutcome], EpisodeOutcome]) -> "CompletedEpisode":
        """Return this episode after `curate`, which may refuse trajectories; the same object without a change."""
        if not self.trajectories:
            return self
        before = self._outcome()
        after = curate(before)
        if after == before:
            return self
        finished = CompletedEpisode.of(after)
        # The persona that is read from JSON may lack lone surrogates, and thus have another fingerprint.
        return replace(finished, line=finished.line.model_copy(update={"persona": self.line.persona}))

    def _outcome(self) -> EpisodeOutcome:
        try:
            trajectories = tuple(map(Trajectory.from_json, self.trajectories))
            refused = tuple(map(Refused.from_json, self.rejected))
        except ValueError as error:
            raise StorageError(f"the journal is damaged: episode {self.index} cannot be read ({error})") from error
        return EpisodeOutcome(
            index=self.index,
            id=self.line.id,
            persona=trajectories[0].persona,
            trajectories=trajectories,
            refused=refused,
            salvaged=self.line.figures.salvaged,
            usage=self.line.usage,
            cost_usd=self.line.cost_usd,
        )

    def _entry(self, **fields: Any) -> Entry:
        line = self.line
        return Entry(
            index=line.index, id=line.id, persona=line.persona, accepted=line.accepted, line=line.to_json(), **fields
        )
