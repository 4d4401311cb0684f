"""An embedding model that is a function: texts of one topic point in one direction, and every request is noted."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence

import anyio

from refinesynth.personas import Embedded


def vector(text: str, dimensions: int = 8) -> list[float]:
    """The first word decides the direction, all of it a little; so texts with the same first word have a cosine near 1."""
    topic = hashlib.sha256(text.split(maxsplit=1)[0].encode()).digest()[:dimensions]
    detail = hashlib.sha256(text.encode()).digest()[:dimensions]
    return [one - 127.5 + 0.02 * (other - 127.5) for one, other in zip(topic, detail, strict=True)]


class Topics:
    """Embeds as `vector` does; `before` is awaited with the number of the request, from 0."""

    def __init__(self, before: Callable[[int], Awaitable[None]] | None = None, name: str = "topics") -> None:
        self.name = name
        self.asked: list[list[str]] = []
        self.at_once = self.most_at_once = 0
        self._before = before

    async def __call__(self, texts: Sequence[str], /) -> Embedded:
        number = len(self.asked)
        self.asked.append(list(texts))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            # The later ones answer first, so that order is not given by chance.
            for _ in range(5 - number % 5):
                await anyio.lowlevel.checkpoint()
            if self._before is not None:
                await self._before(number)
        finally:
            self.at_once -= 1
        return Embedded([vector(text) for text in texts], tokens=len(texts), cost_usd=0.001)
