"""Where a run stands, seen from outside: while another process works on it, after it ended, and after it died."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import orjson

from refinesynth.files.output_folder import Holder, holder_of
from refinesynth.journal import Outstanding, SpentRow
from refinesynth.run.episodes import Totals
from refinesynth.run.folder import RunFolder
from refinesynth.run.lines import last_line
from refinesynth.run.spending import Spending
from refinesynth.run.variety import Variety

State: TypeAlias = Literal["running", "complete", "stopped", "died"]
"""`complete`: it has its `n`. `stopped`: it ended by itself before. `died`: it was killed; both go on with the same
command."""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """One moment of a run. Reading it takes no lock, and reads no trajectory: for 32,000 episodes less than a
    second.
    """

    folder: Path
    state: State
    why: str
    """Why it stopped, as its last event says; empty if it did not."""
    holder: Holder | None
    """Which process worked on it last, dead or alive."""
    n: int
    """Accepted trajectories asked for."""
    accepted: int
    """Trajectories in trajectories.jsonl."""
    kept: int
    """Trajectories of `waiting` episodes, kept for later."""
    waiting: int
    """Finished episodes that wait for an earlier one, or are beyond the `n`-th."""
    totals: Totals
    """Sums over finished episodes, `waiting` ones included."""
    variety: Variety
    """What the trajectories in trajectories.jsonl are like."""
    contaminated: int
    """Trajectories that were kept although an evaluation set holds a part of them."""
    outstanding: tuple[Outstanding, ...]
    """Episodes that were begun and have not ended: in flight while it runs, to be continued otherwise."""
    spent: tuple[SpentRow, ...]
    """What was used and paid, per role and model, by everything."""
    spending: Spending
    """Where it went."""
    elapsed: float | None
    """Seconds that the last process worked on it, or has so far; None if that is unknown."""
    last_event: Mapping[str, Any]
    """The last line of events.jsonl; empty if there is none."""

    @classmethod
    def of(cls, folder: RunFolder) -> "RunStatus":
        """Look at a run.

        Raises:
            RunFolderError: There is no journal, and a line is not one that a run wrote.
            StorageError: The journal cannot be read.
        """
        totals, waiting, spent = folder.totals(), folder.waiting_lines(), folder.spent()
        accepted, spending, variety = totals.accepted, Spending.of(spent, totals), Variety.of(folder, totals)
        for line in waiting:
            totals.add(line)
        event = _last_event(folder)
        holder = holder_of(folder.path)
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
            variety=variety,
            contaminated=len(folder.contaminated()),
            outstanding=tuple(folder.outstanding()),
            spent=tuple(spent),
            spending=spending,
            elapsed=_elapsed(event, holder, running=state == "running"),
            last_event=event,
        )

    @property
    def cost_usd(self) -> float | None:
        """US dollars for everything; None where a price is unknown."""
        if any(row.unpriced for row in self.spent):
            return None
        return sum((row.cost_usd for row in self.spent), 0.0)

    @property
    def cost_per_accepted(self) -> float | None:
        """US dollars for each trajectory in the files, all that was wasted included; None before the first, or if
        unknown.
        """
        return None if self.cost_usd is None or not self.accepted else self.cost_usd / self.accepted


def _last_event(folder: RunFolder) -> Mapping[str, Any]:
    try:
        event: object = orjson.loads(last_line(folder.events_file) or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, Any]", event) if isinstance(event, dict) else {}


def _state(event: Mapping[str, Any], holder: Holder | None, *, complete: bool) -> State:
    # A process that ends by itself has `run_ended` as its last word.
    if event.get("event") == "run_ended" or holder is None:
        return "complete" if complete else "stopped"
    return "running" if _may_live(holder) else "complete" if complete else "died"


def _may_live(holder: Holder) -> bool:
    """Whether a process of this number is there; on another host that is unknown."""
    if holder.host != socket.gethostname():
        return True
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _elapsed(event: Mapping[str, Any], holder: Holder | None, *, running: bool) -> float | None:
    if isinstance(seconds := event.get("seconds"), int | float):
        return seconds
    if holder is None:
        return None
    try:
        # One that was killed did nothing that counts after its last event.
        until = datetime.now(UTC) if running else datetime.fromisoformat(str(event["timestamp"]))
        return max(0.0, (until - holder.since).total_seconds())
    except (KeyError, ValueError, TypeError):
        return None
