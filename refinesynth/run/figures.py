"""What a run's trajectories are like, in figures that are small enough to be kept for each episode and summed up."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Self, cast

from pydantic import BaseModel, Field, model_validator

from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.rules.repairs import refinements
from refinesynth.trajectory import Difficulty, DungeonMasterTurn, Trajectory
from refinesynth.trajectory.positions import TENTHS, mistakes_by_tenth, summed

UNREADABLE = "unreadable"
"""Stands among the rules for scripts that could not be read at all."""

FEATURES = ("distractors", "irreversible", "hidden", "preconditions")
"""What a mix asks for, in its order; see `measured`."""

_SHARE_OF_DISTRACTORS = 0.5
_SEVERAL = 4

_RULE = re.compile(r"\b([A-Z]\w*)\(")


_REMOVED = ("guesses", "guessed", "borrowed")
"""Keys that earlier versions wrote; they are read and ignored."""

_GIVEN_UP = "by giving the plan up"
"""Key of `longer` under which an earlier version counted what is abandoned."""

LONGER = {"after a second try": "again", "later": "late"}
"""How a repair took longer, in words, to the field of `Refinements` that counts it."""


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


class EpisodeFigures(BaseModel, frozen=True, extra="forbid"):
    """Of one episode's trajectories, and of the scripts that were refused before. Some hundred bytes."""

    scripts: tuple[str, ...] = ()
    """Digests of the scripts, each once."""
    actions: tuple[str, ...] = ()
    """Digests of the actions' templates, each once, eight hexadecimal digits."""
    turns: tuple[int, ...] = ()
    """Of each trajectory, those of both voices together."""
    steps: tuple[int, ...] = ()
    """Of each grounded trajectory, the length of its script's shortest solution, in actions."""
    features: dict[str, int] = Field(default_factory=dict[str, int])
    """Feature to the grounded trajectories whose script was measured to have it, see `measured`."""
    mistakes: dict[str, int] = Field(default_factory=dict[str, int])
    """Kind to the player's mistakes of it."""
    refinements: int = 0
    """Mistakes that are answered or abandoned, see `rules.repairs`."""
    abandoned: int = 0
    """Of these, those without whose answer the goal was reached."""
    unanswered: int = 0
    """Mistakes that are not refined."""
    longer: dict[str, int] = Field(default_factory=dict[str, int])
    """Way in which a repair took longer, see `LONGER`, to the mistakes of which that is so."""
    tenths: tuple[float, ...] = ()
    """Mistakes in each tenth of the plays, see `mistakes_by_tenth`; none where an earlier version counted."""
    clean: int = 0
    """Trajectories without a mistake."""
    transient: int = 0
    """Right actions that failed for a moment."""
    plain: int = 0
    """Answers whose words are the rulebook's, since none of the DungeonMaster's would do."""
    stopped: dict[str, int] = Field(default_factory=dict[str, int])
    """Rule, or `UNREADABLE`, to the scripts that it refused and no rule before it."""
    passed: int = 0
    """Scripts that were played to an end at least once, well or not; 0 or 1."""

    _read_earlier = model_validator(mode="before")(_of_earlier)

    @classmethod
    def of(cls, outcome: EpisodeOutcome) -> Self:
        """Of an outcome."""
        drafts = any(item.stage == "draft" for item in outcome.refused)
        return cls.of_records(outcome.trajectories, outcome.refused, passed=int(bool(outcome.trajectories) or drafts))

    @classmethod
    def of_records(
        cls, trajectories: Sequence[Trajectory], refused: Iterable[Refused] = (), *, passed: int = 0
    ) -> Self:
        """Of trajectories that have been played, and what was refused."""
        said = [turn for found in trajectories for turn in found.turns if isinstance(turn, DungeonMasterTurn)]
        names = {action.name for found in trajectories for action in found.script.actions}
        known = [difficulty for found in trajectories if (difficulty := found.provenance.difficulty) is not None]
        refined = [refinements(found) for found in trajectories]
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
            tenths=tuple(round(mass, 3) for mass in summed(mistakes_by_tenth(found.turns) for found in trajectories)),
            clean=sum(not found.mistakes() for found in trajectories),
            transient=sum(turn.transient for turn in said),
            plain=sum(turn.plain for turn in said),
            stopped=dict(Counter(_stop(item) for item in refused if item.stage == "script")),
            passed=passed,
        )


class Figures(BaseModel, extra="forbid"):
    """Sums of them. Their size does not depend on how many there are."""

    trajectories: int = 0
    turns: Counter[int] = Field(default_factory=Counter[int])
    """Number of turns to trajectories that have so many."""
    steps: Counter[int] = Field(default_factory=Counter[int])
    """Length of the shortest solution to trajectories whose script has it."""
    features: Counter[str] = Field(default_factory=Counter[str])
    """Feature to trajectories whose script has it."""
    mistakes: Counter[str] = Field(default_factory=Counter[str])
    refinements: int = 0
    abandoned: int = 0
    unanswered: int = 0
    longer: Counter[str] = Field(default_factory=Counter[str])
    tenths: tuple[float, ...] = (0.0,) * TENTHS
    clean: int = 0
    transient: int = 0
    plain: int = 0
    stopped: Counter[str] = Field(default_factory=Counter[str])
    passed: int = 0

    _read_earlier = model_validator(mode="before")(_of_earlier)

    def add(self, one: EpisodeFigures) -> None:
        """Count one more episode."""
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
        """Scripts that were written, as far as they were refused or played."""
        return self.passed + self.stopped.total()


_SUMMED = Figures.model_fields.keys() & EpisodeFigures.model_fields.keys() - {"tenths"}
"""Fields that are counts of the same name in both."""


def measured(difficulty: Difficulty) -> tuple[str, ...]:
    """Which features of a mix a script has, as far as executing it shows: half of the names are distractors; a single
    action is known to lose the goal; something that is needed cannot be seen at first; the solution has to bring about
    four conditions at least.
    """
    has = (
        difficulty.distractors >= _SHARE_OF_DISTRACTORS,
        difficulty.losable is True,
        difficulty.hidden > 0,
        difficulty.preconditions >= _SEVERAL,
    )
    return tuple(feature for feature, there in zip(FEATURES, has, strict=True) if there)


def in_order(chain: str) -> list[str]:
    """The names of the rules in a chain's text, each once, in the order in which they look."""
    return list(dict.fromkeys(_RULE.findall(chain)))


def _stop(item: Refused) -> str:
    """The first rule that refused a script; what comes after it did not get to see the script, or said so after it."""
    return next(iter(item.rejecting), UNREADABLE)


def _digest(name: str) -> str:
    spelled = " ".join(name.casefold().split())
    return blake2b(spelled.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
