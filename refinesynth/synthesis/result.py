"""Result of a run, a lazy reader of its folder."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from refinesynth.outcome import Cost, Refused
from refinesynth.run import RunConfig, RunFolder
from refinesynth.run.run_folder import waiting_note
from refinesynth.run.stats import Spending, TrajectoryStats
from refinesynth.synthesis.pool import StopReason
from refinesynth.trajectory import Trajectory, Usage

_Record = TypeVar("_Record")


class Records(Generic[_Record]):
    """Values on disk with their number; each iteration reads them one by one."""

    def __init__(self, read: Callable[[], Iterator[_Record]], count: int) -> None:
        self._read = read
        self._count = count

    def __iter__(self) -> Iterator[_Record]:
        return self._read()

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<{self._count:,} records on disk>"


class SynthesisResult:
    """Trajectories of a run, with counts and costs. Iteration reads the accepted trajectories lazily from disk.

    The counts are those at the creation of this object. Without the run's journal, as in a copy of the JSONL files
    alone, all complete lines count, and costs are unknown.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        ended: str | None = None,
        stopped_early: StopReason | None = None,
        bad_personas: int = 0,
    ) -> None:
        self._folder = folder
        self.ended = ended
        """Clause with the reason for an end before `n`; None if unknown, as for an opened result."""
        self.stopped_early: StopReason | None = stopped_early
        """`nothing_accepted` if `early_stop` ended the run; else None."""
        self._totals = folder.totals()
        self.spent = tuple(folder.spent())
        """Usage and cost per role and model, unfinished episodes included."""
        self.spending = Spending.of(self.spent, self._totals)
        """Cost per role, per model, per rejecting rule, and of episodes without a trajectory."""
        waiting = folder.waiting_lines()
        self.finished = self._totals.with_lines(waiting)
        """Sums over all finished episodes, in the files or not."""
        self.pending = len(waiting)
        """Finished episodes that are not in the files, because an earlier one is unfinished or `n` was reached."""
        self.bad_personas = bad_personas
        """Rows without a persona in the part of the source that was read; 0 for an opened result."""

    @classmethod
    def open(cls, path: str | Path) -> "SynthesisResult":
        """Open the result of a finished, interrupted or running run in `path`.

        Raises RunFolderError: there is no run at `path`; StorageError: its journal cannot be read.
        """
        return cls(RunFolder.open(path))

    def __iter__(self) -> Iterator[Trajectory]:
        return self._folder.trajectories()

    def __len__(self) -> int:
        return self._totals.accepted

    def __getitem__(self, index: int) -> Trajectory:
        """Return trajectory number `index`, from 0."""
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self):,} trajectories, and none is at {index}")
        return next(islice(self, index, None))

    def __bool__(self) -> bool:
        # `__len__` would make the result of a run without trajectories false.
        return True

    def __repr__(self) -> str:
        return f"SynthesisResult({str(self.path)!r}, {len(self):,} of {self.n:,} accepted)"

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def config(self) -> RunConfig:
        return self._folder.config

    @property
    def n(self) -> int:
        return self.config.n

    @property
    def rejected(self) -> Records[Refused]:
        """Refused scripts and drafts with their violations, in the order of the personas."""
        return Records(self._folder.refused, self.scripts_refused + self.drafts_refused)

    @property
    def episodes(self) -> int:
        """Number of finished episodes in the files."""
        return self._totals.episodes

    @property
    def scripts_refused(self) -> int:
        """Refused scripts, unreadable ones included."""
        return self._totals.scripts_refused

    @property
    def drafts_refused(self) -> int:
        """Refused drafts, unreadable ones included."""
        return self._totals.drafts_refused

    @property
    def by_rule(self) -> Counter[str]:
        """Number of refused scripts and drafts by the name of each rejecting rule."""
        return self._totals.by_rule.copy()

    @property
    def figures(self) -> TrajectoryStats:
        """Statistics of the trajectories, and of the scripts that each check stopped."""
        return self._totals.figures.model_copy(deep=True)

    @property
    def usage(self) -> Usage:
        """Tokens and requests of the run, refused attempts and unfinished episodes included."""
        return self.spending.total.usage

    @property
    def cost_usd(self) -> float | None:
        """US dollars for all of `usage`; None if a price is unknown."""
        return self.spending.cost_usd

    @property
    def cost_per_accepted(self) -> float | None:
        """US dollars per trajectory in the files, waste included; None without trajectories, or if unknown."""
        return self.spending.cost_per_accepted(len(self))

    @property
    def wasted_by_rule(self) -> dict[str, Cost]:
        """Wasted cost by rule name: of a script its attempt, of a draft the turns that no attempt continued. Several rules
        share a cost.
        """
        return dict(self.spending.wasted)

    @property
    def reached(self) -> bool:
        """True if the files hold at least `n` trajectories."""
        return len(self) >= self.n

    @property
    def shortfall(self) -> str | None:
        """Sentences about the reason for fewer than `n` trajectories; None if `n` is reached."""
        if self.reached:
            return None
        cause = self.ended or "the run was interrupted, is still going on, or ran out of personas"
        sentence = f"{len(self):,} of {self.n:,} trajectories were accepted: {cause}."
        if note := waiting_note(0 if self.stopped_early else self.finished.accepted - len(self)):
            sentence += f" {note}"
        if failed := self._totals.failed:
            sentence += f" {failed:,} of {self.episodes:,} episodes gave none"
            commonest = self.by_rule.most_common(1)
            sentence += f", most refusals by {commonest[0][0]}." if commonest else "."
            if not commonest and (reason := self._totals.last_reason) is not None:
                sentence += f" The last one: {reason if reason.endswith('.') else f'{reason}.'}"
        if self.bad_personas:
            sentence += f" {self.bad_personas:,} rows of the source are no personas."
        return sentence
