"""A finished episode: its line in the journal, from which counts come, with the figures of its trajectories; and its
records as bytes for the files.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from refinesynth.cost import Cost
from refinesynth.errors import StorageError
from refinesynth.journal import Entry
from refinesynth.outcome import EpisodeOutcome, Refused, wasted
from refinesynth.rules.repairs import Repair, refinements, repairs
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import Difficulty, DungeonMasterTurn, Persona, ScriptedPersona, Trajectory, Usage, explain
from refinesynth.trajectory.positions import mistakes_by_tenth, summed

UNREADABLE = "unreadable"
"""Stands among the rules for scripts that could not be read."""

FEATURES = ("distractors", "irreversible", "hidden", "preconditions")
"""Features of a mix, in its order; see `measured`."""

_SHARE_OF_DISTRACTORS = 0.5
_SEVERAL = 4

_REMOVED = ("guesses", "guessed", "borrowed")
"""Keys of earlier versions, read and ignored."""

_GIVEN_UP = "by giving the plan up"
"""Key of `longer` under which an earlier version counted abandoned mistakes."""

LONGER = {"after a second try": "again", "later": "late"}
"""Way in which a repair took longer to the field of `Refinements` that counts it."""


def of_earlier(found: object) -> object:
    """Return figures of an earlier version under their present names."""
    if not isinstance(found, dict):
        return found
    kept = {key: value for key, value in cast("dict[str, Any]", found).items() if key not in _REMOVED}
    if "unrelated" in kept:
        kept["unanswered"] = kept.pop("unrelated")
    longer = kept.get("longer")
    if isinstance(longer, dict) and _GIVEN_UP in longer:
        ways = dict(cast("dict[str, int]", longer))
        kept |= {"abandoned": ways.pop(_GIVEN_UP), "longer": ways}
    return kept


class EpisodeStats(BaseModel, frozen=True, extra="forbid"):
    """Figures of one episode's trajectories and of the scripts refused before; some hundred bytes."""

    scripts: tuple[str, ...] = ()
    """Digests of the scripts, each once."""
    actions: tuple[str, ...] = ()
    """Digests of the actions' templates, each once, eight hexadecimal digits."""
    turns: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    """Length of the script's shortest solution in actions, of each grounded trajectory."""
    features: dict[str, int] = Field(default_factory=dict[str, int])
    """Feature to the grounded trajectories whose script has it, see `measured`."""
    mistakes: dict[str, int] = Field(default_factory=dict[str, int])
    """Kind to the player's mistakes."""
    refinements: int = 0
    """Mistakes that are answered or abandoned, see `rules.repairs`."""
    abandoned: int = 0
    """Of these, those without whose answer the goal was reached."""
    unanswered: int = 0
    longer: dict[str, int] = Field(default_factory=dict[str, int])
    """Way in which a repair took longer, see `LONGER`, to the number of mistakes."""
    repaired: dict[str, int] = Field(default_factory=dict[str, int])
    """Kind to the mistakes that are answered, of trajectories with a repairer; so is the next."""
    repair_turns: dict[str, int] = Field(default_factory=dict[str, int])
    """Kind to the player's turns that their answers took, in all."""
    tenths: tuple[float, ...] = ()
    """Mistakes in each tenth of the plays, see `mistakes_by_tenth`; empty in earlier versions."""
    clean: int = 0
    transient: int = 0
    """Right actions that failed for a moment."""
    plain: int = 0
    """Answers in the rulebook's words, since none of the DungeonMaster's would do."""
    salvaged: dict[str, int] = Field(default_factory=dict[str, int])
    """Repairs of answers that could be used, by kind."""
    stopped: dict[str, int] = Field(default_factory=dict[str, int])
    """Rule, or `UNREADABLE`, to the scripts that it was the first to refuse."""
    passed: int = 0
    """Scripts that were played to an end at least once; 0 or 1."""

    _read_earlier = model_validator(mode="before")(of_earlier)

    @classmethod
    def of(cls, outcome: EpisodeOutcome) -> Self:
        drafts = any(item.stage == "draft" for item in outcome.refused)
        figures = cls.of_records(
            outcome.trajectories, outcome.refused, passed=int(bool(outcome.trajectories) or drafts)
        )
        return figures.model_copy(update={"salvaged": dict(outcome.salvaged)})

    @classmethod
    def of_records(
        cls, trajectories: Sequence[Trajectory], refused: Iterable[Refused] = (), *, passed: int = 0
    ) -> Self:
        answers = [turn for found in trajectories for turn in found.turns if isinstance(turn, DungeonMasterTurn)]
        names = {action.name for found in trajectories for action in found.script.actions}
        known = [difficulty for found in trajectories if (difficulty := found.provenance.difficulty) is not None]
        refined = [refinements(found) for found in trajectories]
        taught = [found for found in trajectories if "repairer" in found.provenance.models]
        took = [_turns_taken(repair) for found in taught for repair in repairs(found.draft())]
        return cls(
            scripts=tuple(dict.fromkeys(found.provenance.script_id or found.script.digest for found in trajectories)),
            actions=tuple(sorted(map(_digest, names))),
            turns=tuple(len(found.turns) for found in trajectories),
            steps=tuple(difficulty.steps for difficulty in known),
            features=dict(Counter(feature for difficulty in known for feature in measured(difficulty))),
            mistakes=dict(Counter(turn.mistake_kind.value for turn in answers if turn.mistake_kind is not None)),
            refinements=sum(one.answered + one.abandoned for one in refined),
            abandoned=sum(one.abandoned for one in refined),
            unanswered=sum(one.unanswered for one in refined),
            longer={way: sum(getattr(one, field) for one in refined) for way, field in LONGER.items()},
            repaired=dict(Counter(kind for kind, turns in took if turns)),
            repair_turns=dict(sum((Counter({kind: turns}) for kind, turns in took if turns), Counter[str]())),
            tenths=tuple(round(mass, 3) for mass in summed(mistakes_by_tenth(found.turns) for found in trajectories)),
            clean=sum(not found.mistakes() for found in trajectories),
            transient=sum(turn.transient for turn in answers),
            plain=sum(turn.plain for turn in answers),
            stopped=dict(Counter(next(iter(item.rejecting), UNREADABLE) for item in refused if item.stage == "script")),
            passed=passed,
        )


def measured(difficulty: Difficulty) -> tuple[str, ...]:
    """Return the features of a mix that executing the script has shown.

    Distractors: half of the names; irreversible: a single action is known to lose the goal; hidden: something needed
    cannot be seen at first; preconditions: the solution has to bring about four conditions at least.
    """
    has = (
        difficulty.distractors >= _SHARE_OF_DISTRACTORS,
        difficulty.losable is True,
        difficulty.hidden > 0,
        difficulty.preconditions >= _SEVERAL,
    )
    return tuple(feature for feature, present in zip(FEATURES, has, strict=True) if present)


def _turns_taken(repair: Repair) -> tuple[str, int]:
    """Return the kind of a mistake, and the player's turns after it up to its answer; 0 if nothing answers it."""
    kind = repair.mistake.answer.mistake_kind if repair.mistake.answer is not None else None
    return str(kind), 0 if repair.answer is None else (repair.answer - repair.mistake.at) // 2


def _digest(name: str) -> str:
    spelled = " ".join(name.casefold().split())
    return blake2b(spelled.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def fingerprint(persona: Persona) -> str:
    """Return sixteen hexadecimal digits that identify this persona, with its script if it has one."""
    script = persona.script.digest if isinstance(persona, ScriptedPersona) else ""
    return blake2b(f"{persona.text}{script}".encode(), digest_size=8).hexdigest()


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
