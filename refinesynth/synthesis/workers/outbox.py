"""What waits to be fetched by the other side: many messages go in one call, which costs as much as a hundred of them."""

from collections.abc import Sequence

import anyio


class Outbox:
    """Messages in their order."""

    def __init__(self, *, gather: float) -> None:
        """An empty one; an urgent message waits `gather` seconds for others that go with it."""
        self._gather = gather
        self._waiting: list[object] = []
        self._urgent = anyio.Event()

    def post(self, *messages: object, urgent: bool = True) -> None:
        """Have messages fetched: soon, or with the next urgent one."""
        self._waiting += messages
        if urgent:
            self._urgent.set()

    async def fetch(self, *, within: float = float("inf")) -> Sequence[object]:
        """All that waits, once something urgent does, or after `within` seconds; for one caller at a time."""
        with anyio.move_on_after(within):
            await self._urgent.wait()
            await anyio.sleep(self._gather)
        self._urgent = anyio.Event()
        waiting, self._waiting = self._waiting, []
        return waiting
