"""A request that has been under way for far longer than its like is sent once more, and the first answer is used."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from math import inf
from typing import Self

import anyio
from pydantic_ai.usage import RequestUsage

from refinesynth.client.account import Reservation
from refinesynth.client.answers import Answer
from refinesynth.client.watch import Call, CallStage

ENOUGH = 200
"""Answers of a kind without which there is no 99.5th percentile: one of so many took longer."""
_WINDOW = 1_000
"""Answers of a kind that are looked at, the last ones: a server changes."""
_TIMES = 3.0
"""Times the 99.5th percentile that a request is given."""
ONE_IN = 100
"""Answers for each request that is sent twice. On a server that stays as it is one of 200 takes longer than the 99.5th
percentile, and far fewer three times that. Where more do, the server as a whole has become slow, and must not be asked
more because of it."""
_SAVED = 10
"""Most second requests that quiet times save up: so many at once do no server any harm."""
_LOOK = 1.0
"""Seconds between two looks at a request, at most."""
_FOR_MONEY = 1.0
"""Seconds that a second request waits for the budget, before those that come after it."""


@dataclass(eq=False, slots=True)
class Sending:
    """A request on its way, or the second one for it."""

    call: Call | None = None
    """What the watchdog knows of the first one."""
    reservation: Reservation | None = None
    began: float | None = None
    """When it was sent, on the event loop's clock; None before its turn."""
    answer: Answer | None = None
    error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is paid for it, if it was not settled."""
        if self.reservation is not None:
            self.reservation.release()

    @property
    def under_way(self) -> bool:
        """Whether it was sent and may be answered yet; after the race, whether it was cancelled then."""
        return self.began is not None and self.answer is None and self.error is None

    @property
    def seconds(self) -> float:
        """Since it was sent."""
        return 0.0 if self.began is None else anyio.current_time() - self.began

    @property
    def patience(self) -> float | None:
        """Seconds that it waits for the budget; None: as long as it takes."""
        return _FOR_MONEY if self.call is None else None

    def goes_out(self, reservation: Reservation) -> None:
        """It is sent now, and this was put aside for it."""
        self.reservation = reservation
        self.began = anyio.current_time()
        if self.call is not None:
            self.call.attempt += 1
            self.call.enter(CallStage.ANSWER)

    def settle(self, usage: RequestUsage, cost_usd: float | None, *, assumed: bool = False) -> None:
        """See `Reservation.settle`."""
        if self.reservation is not None:
            self.reservation.settle(usage, cost_usd, assumed=assumed)
            self.reservation = None


Send = Callable[[Sending], Awaitable[None]]
"""Sends a request in its turn; notes when, and the answer."""


class Hedging:
    """Of one backend: how long answers take, and whether a second request may go."""

    def __init__(self) -> None:
        """Nothing was answered."""
        self._recent: dict[Hashable, deque[float]] = {}
        self._sorted: dict[Hashable, list[float]] = {}
        self._credit = 0

    def note(self, kind: Hashable, seconds: float) -> None:
        """A request of this kind was answered after so long."""
        recent = self._recent.setdefault(kind, deque())
        ordered = self._sorted.setdefault(kind, [])
        if len(recent) == _WINDOW:
            del ordered[bisect_left(ordered, recent.popleft())]
        recent.append(seconds)
        insort(ordered, seconds)
        self._credit = min(self._credit + 1, _SAVED * ONE_IN)

    def longest(self, kind: Hashable) -> float:
        """Seconds that a request of this kind may take before it is sent once more; infinite while too few were
        answered.
        """
        ordered = self._sorted.get(kind, [])
        return inf if len(ordered) < ENOUGH else _TIMES * ordered[-1 - len(ordered) // ENOUGH]

    async def race(self, send: Send, first: Sending, second: Sending, *, kind: Hashable) -> None:
        """Send the first, and if that takes too long the second, once; returns when one is answered, both at most, or
        none will be. What goes wrong with one does not stop the other.
        """

        async def go(one: Sending, other: Sending) -> None:
            try:
                await send(one)
            except Exception as error:  # noqa: BLE001 - raised by the caller if the other one brings nothing either
                one.error = error
            if one.answer is not None or not other.under_way:
                group.cancel_scope.cancel()

        async def again() -> None:
            await self._overdue(first, kind)
            await go(second, first)

        async with anyio.create_task_group() as group:
            group.start_soon(again)
            await go(first, second)

    async def _overdue(self, first: Sending, kind: Hashable) -> None:
        """Returns when there is to be a second request, which is counted."""
        while True:
            left = self.longest(kind) - first.seconds
            if first.under_way and left <= 0 and self._credit >= ONE_IN:
                self._credit -= ONE_IN
                return
            await anyio.sleep(min(left, _LOOK) if left > 0 else _LOOK)
