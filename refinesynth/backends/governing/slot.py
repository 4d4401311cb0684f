"""A request's leave to be in flight, and the queue of those that wait for one."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

import anyio

from refinesynth.backends.governing.deadline import Deadline
from refinesynth.backends.governing.pace import Pace
from refinesynth.backends.governing.rates import Told, read_rates
from refinesynth.backends.sorting import Fault


class Listener(Protocol):
    """Who is told how requests end."""

    def note_answer(
        self, slot: "Slot", *, output_tokens: float, seconds: float | None, billed: float | None, told: Told
    ) -> None:
        """See `Slot.answered`."""
        ...

    def note_fault(self, slot: "Slot", fault: Fault, told: Told) -> None:
        """See `Slot.failed`."""
        ...


@dataclass(eq=False, slots=True)
class Slot:
    """One request's leave to be in flight. Tell it how the request ended; one that ends without a word was cancelled."""

    governor: Listener
    priority: float
    pace: Pace
    tokens: float
    """Of the prompt, roughly."""
    kind: Hashable
    order: int = 0
    charged: float = 0.0
    number: int = 0
    """Among all that had their turn."""
    since: float = 0.0
    trial: bool = False
    granted: bool = False
    waits: bool = False
    """Whether it is in the queue."""
    turn: anyio.Event | None = None
    refusal: str | None = None
    """Why there is no turn for it."""
    deadline: Deadline | None = None
    stopped: bool = False
    """Whether it has stopped the deadline's clock."""

    def answered(
        self,
        *,
        output_tokens: float,
        seconds: float | None = None,
        billed: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """The request was answered.

        Args:
            output_tokens: Tokens of the answer.
            seconds: What it took; since the slot was given if None.
            billed: Tokens of prompt and answer together, for a limit on tokens; taken to be as estimated if None.
            headers: The answer's HTTP headers, with names in lower case.
        """
        self.governor.note_answer(
            self, output_tokens=output_tokens, seconds=seconds, billed=billed, told=read_rates(headers)
        )

    def failed(self, fault: Fault, *, headers: Mapping[str, str] | None = None) -> None:
        """The request met a fault."""
        self.governor.note_fault(self, fault, read_rates(headers))

    def stop_clock(self) -> None:
        """The episode does not pay with its time for a backend that is down."""
        if self.deadline is not None and not self.stopped:
            self.stopped = True
            self.deadline.stop()

    def let_clock_go_on(self) -> None:
        """Undo `stop_clock`."""
        if self.deadline is not None and self.stopped:
            self.stopped = False
            self.deadline.go_on()


class Queue:
    """Requests that wait for a turn: smaller priorities first, first come first served among equals.

    Those that share a pace share a lane, so that one that waits for its pace stops nobody in another lane. What leaves out
    of turn is dropped when the queue comes to it, so that leaving costs nothing however long the queue is.
    """

    def __init__(self) -> None:
        self._lanes: dict[Pace, list[tuple[float, int, Slot]]] = {}
        self._arrived = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[Slot]:
        """All that wait, in no order; they may be removed meanwhile."""
        return iter([slot for lane in self._lanes.values() for _, _, slot in lane if slot.waits])

    def add(self, slot: Slot) -> None:
        """The request waits from now on."""
        self._arrived += 1
        slot.waits = True
        slot.order = self._arrived
        heappush(self._lanes.setdefault(slot.pace, []), (slot.priority, slot.order, slot))
        self._waiting += 1

    def remove(self, slot: Slot) -> None:
        """It has its turn, or goes without."""
        slot.waits = False
        self._waiting -= 1

    def next(self, now: float) -> tuple[Slot | None, float]:
        """Whose turn it is; or nobody's, and when the pace of one of them lets it go."""
        first: Slot | None = None
        soonest = float("inf")
        for pace, lane in self._lanes.items():
            while lane and not lane[0][2].waits:
                heappop(lane)
            if not lane:
                continue
            slot = lane[0][2]
            ready = pace.ready_at(slot.tokens)
            if ready > now:
                soonest = min(soonest, ready)
            elif first is None or (slot.priority, slot.order) < (first.priority, first.order):
                first = slot
        return first, soonest
