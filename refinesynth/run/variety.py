"""How various a run is: distinct environments and actions, lengths, difficulty, mistakes; and what each rule left of
the scripts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import orjson
from pydantic import JsonValue

from refinesynth.diversity import CONTAMINATED, NEAR_DUPLICATE
from refinesynth.journal import JournalReader
from refinesynth.run.episodes import EpisodeLine, Totals
from refinesynth.run.figures import UNREADABLE, EpisodeFigures, Figures, in_order
from refinesynth.run.folder import RunFolder


@dataclass(frozen=True, slots=True)
class Spread:
    """Where whole numbers lie."""

    least: int
    middle: float
    """Median."""
    most: int

    @classmethod
    def of(cls, counts: Counter[int]) -> "Spread | None":
        """Of numbers, given with how often each is there; None if there are none."""
        numbers = sorted(counts.elements())
        return cls(numbers[0], median(numbers), numbers[-1]) if numbers else None


@dataclass(frozen=True, slots=True)
class RuleStage:
    """One of the checks of a script, in their order."""

    rule: str
    """`UNREADABLE` for the first, which is no rule."""
    refused: int
    """Scripts that came so far and were refused here."""
    left: int
    """Scripts that came further."""


@dataclass(frozen=True, kw_only=True)
class Variety:
    """What the trajectories in a run's files are like."""

    trajectories: int
    """Those that this is about; fewer than there are if an earlier version wrote some."""
    environments: int
    """Distinct scripts."""
    action_names: int
    """Distinct templates of actions, without regard to case and white space."""
    turns: Spread | None
    """Turns of a trajectory, of both voices together."""
    steps: Counter[int]
    """Grounded: length of the shortest solution, in actions, to the trajectories whose script has it."""
    features: Counter[str]
    """Grounded: feature of a mix to the trajectories whose script was measured to have it, see `figures.measured`."""
    mistakes: Counter[str]
    """Kind to the player's mistakes of it."""
    refinements: int
    """Mistakes that a later action answers; those of episodes that an earlier version journaled are not counted."""
    unrelated: int
    """Mistakes after which only something was accepted that has nothing to do with them."""
    longer: Counter[str]
    """Way in which a repair took longer, see `figures.LONGER`, to the mistakes of which that is so."""
    tenths: tuple[float, ...]
    """Mistakes in each tenth of the plays."""
    clean: int
    """Trajectories without a mistake."""
    clean_asked: float | None
    """Share of the trajectories in which no mistake was to be asked for; None where the policy has none."""
    transient: int
    """Right actions that failed for a moment."""
    plain: int
    """Answers in the rulebook's words, since none of the DungeonMaster's would do."""
    near_duplicates: int
    """Trajectories refused because their script resembles another."""
    contaminated: int
    """Trajectories refused because an evaluation set shares words with them."""
    stages: tuple[RuleStage, ...]
    """What each check left of the scripts; those that refused none are left out."""
    scripts: int
    """Scripts that were written, as far as they were refused or played."""

    @classmethod
    def of(cls, folder: RunFolder, totals: Totals) -> "Variety":
        """Of a run, given the sums over its files. Reads the episodes' lines in the journal, and no trajectory if there
        is one.

        Raises:
            StorageError: The journal cannot be read.
        """
        figures = totals.figures.model_copy(deep=True)  # whose counters go on counting
        scripts: set[str] = set()
        actions: set[str] = set()
        for one in _each(folder) if figures.trajectories else ():
            scripts.update(one[0])
            actions.update(one[1])
        return cls(
            trajectories=figures.trajectories,
            environments=len(scripts),
            action_names=len(actions),
            turns=Spread.of(figures.turns),
            steps=figures.steps,
            features=figures.features,
            mistakes=figures.mistakes,
            refinements=figures.refinements,
            unrelated=figures.unrelated,
            longer=figures.longer,
            tenths=figures.tenths,
            clean=figures.clean,
            clean_asked=_clean_asked(folder.config.mistakes),
            transient=figures.transient,
            plain=figures.plain,
            near_duplicates=totals.by_rule[NEAR_DUPLICATE],
            contaminated=totals.by_rule[CONTAMINATED],
            stages=stages(figures, folder.config.script_rules),
            scripts=figures.passed + figures.stopped.total(),
        )


def _clean_asked(mistakes: Mapping[str, JsonValue]) -> float | None:
    share = mistakes.get("clean")
    return float(share) if mistakes.get("policy") == "spread" and isinstance(share, int | float) else None


def stages(figures: Figures, script_rules: str) -> tuple[RuleStage, ...]:
    """What each check left of the scripts, in the order of the chain; rules that it does not name come last."""
    order = [UNREADABLE, *in_order(script_rules)]
    order += sorted(figures.stopped.keys() - set(order))
    left = figures.passed + figures.stopped.total()
    found: list[RuleStage] = []
    for rule in order:
        if refused := figures.stopped[rule]:
            left -= refused
            found.append(RuleStage(rule, refused, left))
    return tuple(found)


def _each(folder: RunFolder) -> Iterator[tuple[Iterable[str], Iterable[str]]]:
    """Digests of scripts and of actions, of one episode after the other."""
    if not folder.journal_file.exists():
        for trajectory in folder.trajectories():
            figures = EpisodeFigures.of_records([trajectory])
            yield figures.scripts, figures.actions
        return
    with JournalReader.read(folder.journal_file) as journal:
        for entry in journal.entries():
            if entry.is_held:
                return
            yield _digests(entry.line)


def _digests(line: bytes) -> tuple[Iterable[str], Iterable[str]]:
    """Those of a line in the journal. Everything else in it is passed by: validating it would take three times as
    long.
    """
    try:
        figures: Any = orjson.loads(line)["figures"]
        scripts, actions = figures["scripts"], figures["actions"]
        # A digest of any form is hashed and counted; a list in its place raises.
        return frozenset[str](scripts), frozenset[str](actions)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        # Of an earlier version, or damaged; reading it whole says which.
        whole = EpisodeLine.from_json(line).figures
        return whole.scripts, whole.actions
