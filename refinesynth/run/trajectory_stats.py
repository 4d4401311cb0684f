"""Figures of a run's trajectories, small enough to be kept for each episode and summed."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Self, cast

from pydantic import BaseModel, Field, model_validator

from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.rules.repairs import Repair, refinements, repairs
from refinesynth.trajectory import Difficulty, DungeonMasterTurn, Trajectory
from refinesynth.trajectory.positions import TENTHS, mistakes_by_tenth, summed

UNREADABLE = "unreadable"
"""Stands among the rules for scripts that could not be read."""

FEATURES = ("distractors", "irreversible", "hidden", "preconditions")
"""Features of a mix, in its order; see `measured`."""

_SHARE_OF_DISTRACTORS = 0.5
_SEVERAL = 4

_RULE = re.compile(r"\b([A-Z]\w*)\(")


_REMOVED = ("guesses", "guessed", "borrowed")
"""Keys of earlier versions, read and ignored."""

_GIVEN_UP = "by giving the plan up"
"""Key of `longer` under which an earlier version counted abandoned mistakes."""

LONGER = {"after a second try": "again", "later": "late"}
"""Way in which a repair took longer to the field of `Refinements` that counts it."""


def _of_earlier(found: object) -> object:
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

    _read_earlier = model_validator(mode="before")(_of_earlier)

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
        said = [turn for found in trajectories for turn in found.turns if isinstance(turn, DungeonMasterTurn)]
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
            mistakes=dict(Counter(turn.mistake_kind.value for turn in said if turn.mistake_kind is not None)),
            refinements=sum(one.answered + one.abandoned for one in refined),
            abandoned=sum(one.abandoned for one in refined),
            unanswered=sum(one.unanswered for one in refined),
            longer={way: sum(getattr(one, field) for one in refined) for way, field in LONGER.items()},
            repaired=dict(Counter(kind for kind, turns in took if turns)),
            repair_turns=dict(sum((Counter({kind: turns}) for kind, turns in took if turns), Counter[str]())),
            tenths=tuple(round(mass, 3) for mass in summed(mistakes_by_tenth(found.turns) for found in trajectories)),
            clean=sum(not found.mistakes() for found in trajectories),
            transient=sum(turn.transient for turn in said),
            plain=sum(turn.plain for turn in said),
            stopped=dict(Counter(next(iter(item.rejecting), UNREADABLE) for item in refused if item.stage == "script")),
            passed=passed,
        )


class TrajectoryStats(BaseModel, extra="forbid"):
    """Sums of `EpisodeStats`, of constant size."""

    trajectories: int = 0
    turns: Counter[int] = Field(default_factory=Counter[int])
    """Number of turns to trajectories."""
    steps: Counter[int] = Field(default_factory=Counter[int])
    """Length of the shortest solution to trajectories."""
    features: Counter[str] = Field(default_factory=Counter[str])
    mistakes: Counter[str] = Field(default_factory=Counter[str])
    refinements: int = 0
    abandoned: int = 0
    unanswered: int = 0
    longer: Counter[str] = Field(default_factory=Counter[str])
    repaired: Counter[str] = Field(default_factory=Counter[str])
    repair_turns: Counter[str] = Field(default_factory=Counter[str])
    tenths: tuple[float, ...] = (0.0,) * TENTHS
    clean: int = 0
    transient: int = 0
    plain: int = 0
    salvaged: Counter[str] = Field(default_factory=Counter[str])
    stopped: Counter[str] = Field(default_factory=Counter[str])
    passed: int = 0

    _read_earlier = model_validator(mode="before")(_of_earlier)

    def add(self, one: EpisodeStats) -> None:
        self.trajectories += len(one.turns)
        self.tenths = summed((self.tenths, one.tenths or (0.0,) * TENTHS))
        for name in _SUMMED:
            known, more = getattr(self, name), getattr(one, name)
            if isinstance(known, Counter):
                cast("Counter[object]", known).update(more)
            else:
                setattr(self, name, known + more)

    @property
    def written(self) -> int:
        """Scripts that were refused or played."""
        return self.passed + self.stopped.total()


_SUMMED = TrajectoryStats.model_fields.keys() & EpisodeStats.model_fields.keys() - {"tenths"}
"""Counts of the same name in both."""


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
    return tuple(feature for feature, there in zip(FEATURES, has, strict=True) if there)


def in_order(chain: str) -> list[str]:
    """Return the names of the rules in a chain's text, each once, in their order."""
    return list(dict.fromkeys(_RULE.findall(chain)))


def _turns_taken(repair: Repair) -> tuple[str, int]:
    """Return the kind of a mistake, and the player's turns after it up to its answer; 0 if nothing answers it."""
    kind = repair.mistake.answer.mistake_kind if repair.mistake.answer is not None else None
    return str(kind), 0 if repair.answer is None else (repair.answer - repair.mistake.at) // 2


def _digest(name: str) -> str:
    spelled = " ".join(name.casefold().split())
    return blake2b(spelled.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
