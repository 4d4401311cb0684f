"""Ray actor that carries reports of blocks to the driver, and the driver's request to end to a block.

A Ray task is never cancelled while it may end by itself: if both happen at once, Ray aborts the driver's process (its
check "Tried to complete task that was not pending", up to Ray 2.60 at least).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from refinesynth.journal import Paid
from refinesynth.run import CompletedEpisode
from refinesynth.synthesis.progress import BackendsState
from refinesynth.synthesis.workers.cluster import ray

_TRIES = 5
"""Retries of a call that a broken connection interrupted."""


@dataclass(kw_only=True)
class Report:
    """News of a block since its last report."""

    block: int = 0
    number: int = 0
    """Number of the report within its block, from 1."""
    folder: str = ""
    """Name of the block's folder, for the driver to remove; empty outside the run's folder."""
    how: BackendsState = field(default_factory=BackendsState)
    lacks: bytes = b"{}"
    """Features that servers lack, as `Lacks.to_json` gives them."""
    paid: list[Paid] = field(default_factory=list[Paid])
    finished: list[CompletedEpisode] = field(default_factory=list[CompletedEpisode])
    said: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list[tuple[int, Mapping[str, Any]]])
    """Level and facts of each logged event."""


class _Actor:
    """The mailbox. Ray may repeat a call whose answer it has not received, so a repeated call changes nothing."""

    def __init__(self) -> None:
        self._reports: list[Report] = []
        self._taken = 0
        self._begun: dict[int, int] = {}
        """Number of the last report of each block."""
        self._ended = set[int]()

    def put(self, report: Report) -> bool:
        goes_on = report.block not in self._ended
        if (goes_on or report.block in self._begun) and report.number > self._begun.get(report.block, 0):
            self._begun[report.block] = report.number
            self._reports.append(report)
        return goes_on

    def take(self, after: int) -> list[Report]:
        self._reports, self._taken = self._reports[after - self._taken :], after
        return self._reports

    def end(self, block: int) -> bool:
        self._ended.add(block)
        return block in self._begun


class Mailbox:
    """Handle of the actor for the driver and its blocks; picklable. Calls wait for Ray, and raise its errors."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._taken = 0

    @classmethod
    def open(cls) -> "Mailbox":
        """Start the actor on this process's node; it is lost only with the run."""
        node = ray().get_runtime_context().get_node_id()
        strategy = ray().util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=True)
        how: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": strategy, "max_task_retries": _TRIES}
        return cls(ray().remote(**how)(_Actor).remote())

    def put(self, report: Report) -> bool:
        """Leave a report; return False if its block is to end."""
        return ray().get(self._actor.put.remote(report))

    def take(self) -> list[Report]:
        """Take the reports since the last call, in order."""
        reports: list[Report] = ray().get(self._actor.take.remote(self._taken))
        self._taken += len(reports)
        return reports

    def end(self, block: int) -> bool:
        """Tell a block to end; return False if it has left no report, in which case it will pay for nothing."""
        return ray().get(self._actor.end.remote(block))

    def close(self) -> None:
        ray().kill(self._actor)
