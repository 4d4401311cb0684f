"""Status of a running, ended or killed run, read from its folder; and the variety of its trajectories."""

import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeAlias

from refinesynth.diversity import CONTAMINATED, NEAR_DUPLICATE
from refinesynth.files.output_folder import Holder, read_holder
from refinesynth.journal import Outstanding, SpentRow
from refinesynth.run.completed_episode import UNREADABLE, EpisodeStats
from refinesynth.run.jsonl import last_line
from refinesynth.run.run_folder import RunFolder, event_in
from refinesynth.run.stats import RunStats, Spending, TrajectoryStats, rule_names

State: TypeAlias = Literal["running", "complete", "stopped", "died"]
"""`complete`: `n` is reached. `stopped`: the process ended by itself before. `died`: it was killed. The same command
continues a run that stopped or died."""


@dataclass(frozen=True, slots=True)
class Distribution:
    minimum: int
    median: float
    maximum: int

    @classmethod
    def of(cls, counts: Counter[int]) -> "Distribution | None":
        """Make a distribution from numbers with their frequencies; None without numbers."""
        numbers = sorted(counts.elements())
        return cls(numbers[0], median(numbers), numbers[-1]) if numbers else None


@dataclass(frozen=True, slots=True)
class RuleStage:
    """One check of a script, in the order of the checks."""

    rule: str
    """Name of the rule; `UNREADABLE` for the first check, which is no rule."""
    refused: int
    """Number of scripts that this check refused."""
    left: int
    """Number of scripts that passed this check and all earlier ones."""


@dataclass(frozen=True, kw_only=True)
class DiversityStats:
    """Variety of a run's trajectories: committed sums, and numbers of distinct scripts and actions."""

    figures: TrajectoryStats
    environments: int
    """Number of distinct scripts."""
    action_names: int
    """Number of distinct templates of actions, ignoring case and the amount of white space."""
    clean_asked: float | None
    """Requested share of trajectories without a mistake; None for policies other than `spread`."""
    near_duplicates: int
    """Number of trajectories refused because their script resembles another one."""
    contaminated: int
    """Number of trajectories refused because they share words with an evaluation set."""
    stages: tuple[RuleStage, ...]
    """Checks that refused a script, with the number of scripts left after each."""

    @classmethod
    def of(cls, folder: RunFolder, stats: RunStats) -> "DiversityStats":
        """Read the episodes' lines in the journal, or without a journal the trajectories."""
        figures, mistakes = stats.figures, folder.config.mistakes
        scripts: set[str] = set()
        actions: set[str] = set()
        for episode in _episode_stats(folder) if figures.trajectories else ():
            scripts.update(episode.scripts)
            actions.update(episode.actions)
        clean = mistakes.get("clean") if mistakes.get("policy") == "spread" else None
        return cls(
            figures=figures,
            environments=len(scripts),
            action_names=len(actions),
            clean_asked=clean if isinstance(clean, int | float) else None,
            near_duplicates=stats.by_rule[NEAR_DUPLICATE],
            contaminated=stats.by_rule[CONTAMINATED],
            stages=stages(figures, folder.config.script_rules),
        )


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """State of a run at one moment, read without a lock and, given a journal, without the trajectories. 32,000 episodes
    take less than a second.
    """

    folder: Path
    state: State
    why: str
    """Reason for the stop, from the last event; empty in other states."""
    holder: Holder | None
    """Last process that held the folder, dead or alive."""
    n: int
    accepted: int
    kept: int
    """Trajectories of `waiting` episodes."""
    waiting: int
    """Number of finished episodes that wait for an earlier one, or are beyond `n`."""
    totals: RunStats
    """Sums over finished episodes, `waiting` ones included."""
    variety: DiversityStats
    outstanding: tuple[Outstanding, ...]
    spent: tuple[SpentRow, ...]
    spending: Spending
    last_event: Mapping[str, Any]
    """Last line of events.jsonl; empty without events."""

    @classmethod
    def of(cls, folder: RunFolder) -> "RunStatus":
        """Read the status of a run; raises the errors of `RunFolder.totals`."""
        in_files, waiting, spent = folder.totals(), folder.waiting_lines(), folder.spent()
        accepted, totals = in_files.accepted, in_files.with_lines(waiting)
        event = event_in(last_line(folder.events_file) or b"{}")
        holder = read_holder(folder.path)
        state = _state(event, holder, complete=accepted >= folder.config.n)
        return cls(
            folder=folder.path,
            state=state,
            why=str(event.get("why", "")) if state == "stopped" else "",
            holder=holder,
            n=folder.config.n,
            accepted=accepted,
            kept=totals.accepted - accepted,
            waiting=len(waiting),
            totals=totals,
            variety=DiversityStats.of(folder, in_files),
            outstanding=tuple(folder.outstanding()),
            spent=tuple(spent),
            spending=Spending.of(spent, in_files),
            last_event=event,
        )

    @property
    def cost_usd(self) -> float | None:
        """Total cost in US dollars; None if a price is unknown."""
        return self.spending.cost_usd

    @property
    def cost_per_accepted(self) -> float | None:
        """US dollars per trajectory in the files, waste included; None without trajectories, or if unknown."""
        return self.spending.cost_per_accepted(self.accepted)


def _state(event: Mapping[str, Any], holder: Holder | None, *, complete: bool) -> State:
    # The last event of a process that ends by itself is `run_ended`.
    if event.get("event") == "run_ended" or holder is None:
        return "complete" if complete else "stopped"
    return "running" if _may_be_alive(holder) else "complete" if complete else "died"


def _may_be_alive(holder: Holder) -> bool:
    """Return True if a process with this id exists on this host, or if the host is another one."""
    if holder.host != socket.gethostname():
        return True
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def stages(figures: TrajectoryStats, script_rules: str) -> tuple[RuleStage, ...]:
    """Return the checks that refused scripts, in the order of the chain; rules outside the chain come last."""
    order = [UNREADABLE, *rule_names(script_rules)]
    order += sorted(figures.stopped.keys() - set(order))
    remaining = figures.scripts_written
    result: list[RuleStage] = []
    for rule in order:
        if refused := figures.stopped[rule]:
            remaining -= refused
            result.append(RuleStage(rule, refused, remaining))
    return tuple(result)


def _episode_stats(folder: RunFolder) -> Iterator[EpisodeStats]:
    """Yield the statistics of each committed episode, or without a journal of each trajectory."""
    if folder.journal_file.exists():
        return (line.figures for line in folder.episodes())
    return (EpisodeStats.of_records([trajectory]) for trajectory in folder.trajectories())
