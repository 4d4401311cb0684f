"""One tracker for all workers: requests ask the driver before they are sent, and report what they cost."""

from dataclasses import dataclass, field

import anyio
from pydantic_ai.usage import RequestUsage

from refinesynth.client.account import Price
from refinesynth.synthesis.workers.messages import Reserve, Reserved, Settle
from refinesynth.synthesis.workers.outbox import Outbox

_MANY = 1_000
"""Tokens by which a price is found out: a price may be rounded."""


@dataclass
class _Asked:
    answered: anyio.Event = field(default_factory=anyio.Event)
    refusal: Exception | None = None


class RemoteTracker:
    """The driver's tracker, seen from a worker. Without a budget nothing is asked, and costs are only reported."""

    def __init__(self, outbox: Outbox, *, limited: bool) -> None:
        self._outbox = outbox
        self._limited = limited
        self._asked: dict[int, _Asked] = {}
        self._last = 0

    def episode(self, index: int) -> "RemoteEpisodeTracker":
        """The tracker for one episode."""
        return RemoteEpisodeTracker(self, index)

    async def hold(
        self, index: int, *, prompt_tokens: float, max_tokens: int | None, price: Price
    ) -> "RemoteReservation":
        """See `CostTracker.reserve`.

        Raises:
            RunStopped: The budget does not allow it.
        """
        if not self._limited:
            return RemoteReservation(0, index, self._outbox)
        self._last += 1
        number = self._last
        hold = RemoteReservation(number, index, self._outbox)
        asked = self._asked[number] = _Asked()
        self._outbox.post(Reserve(number, index, prompt_tokens, max_tokens, _prices(price)))
        try:
            await asked.answered.wait()
        except BaseException:
            hold.release()
            raise
        finally:
            del self._asked[number]
        if asked.refusal is not None:
            raise asked.refusal
        return hold

    def answered(self, answer: Reserved) -> None:
        """The driver has decided."""
        if (asked := self._asked.get(answer.hold)) is not None:
            asked.refusal = answer.refusal
            asked.answered.set()


@dataclass(frozen=True)
class RemoteEpisodeTracker:
    """The driver's tracker for one episode."""

    tracker: RemoteTracker
    index: int

    async def reserve(self, *, prompt_tokens: float, max_tokens: int | None, price: Price) -> "RemoteReservation":
        """See `CostTracker.reserve`."""
        return await self.tracker.hold(self.index, prompt_tokens=prompt_tokens, max_tokens=max_tokens, price=price)


@dataclass(frozen=True)
class RemoteReservation:
    """What the driver has put aside for one request."""

    number: int
    index: int
    outbox: Outbox

    def settle(self, usage: RequestUsage, cost_usd: float | None) -> None:
        """See `Reservation.settle`."""
        self.outbox.post(Settle(self.number, self.index, usage, cost_usd), urgent=self.number > 0)

    def release(self) -> None:
        """See `Reservation.release`."""
        if self.number:
            self.outbox.post(Settle(self.number, self.index))


def _prices(price: Price) -> tuple[float, float] | None:
    prompt = price(RequestUsage(input_tokens=_MANY))
    answer = price(RequestUsage(output_tokens=_MANY))
    return None if prompt is None or answer is None else (prompt / _MANY, answer / _MANY)


def priced(prices: tuple[float, float] | None) -> Price:
    """The price that `prices` stand for: a function cannot be sent to another process."""
    if prices is None:
        return lambda _usage: None
    prompt, answer = prices
    return lambda usage: usage.input_tokens * prompt + usage.output_tokens * answer
