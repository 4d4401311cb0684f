"""Personas as they are needed, numbered, with what could not be read counted beside."""

from collections.abc import AsyncGenerator, Callable
from typing import Self

import anyio.to_thread

from refinesynth.errors import InputError
from refinesynth.personas.rows import REPORTED_ROWS, BadRow, Record, Row
from refinesynth.trajectory import Persona


class Personas:
    """An async iterator of `(index, persona)`; bad rows get no index. Close it, or use it in `async with`."""

    def __init__(
        self,
        rows: AsyncGenerator[Row, None],
        description: str,
        *,
        stop: Callable[[], None] | None = None,
        count: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Number the personas among `rows`; `stop` ends the reading behind them soon, `count` says how many rows there
        are at most.
        """
        self._count = count
        self._rows = rows
        self._opened = [rows]
        self._stop = stop
        self._next = self._place = 0
        self._first, self._step = 0, 1
        self._read_ahead: Persona | None = None
        self.description = description
        """What they are read from, in words."""
        self.bad = 0
        """Rows so far that are no personas."""
        self.problems: tuple[BadRow, ...] = ()
        """The first few of them."""
        self.on_problem: Callable[[BadRow], None] | None = None
        """Called with each row that joins `problems`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, Persona]:
        """The next persona and its position among the readable ones, from 0.

        Raises:
            InputError: The source cannot be read, or there is not one persona in it.
        """
        persona, self._read_ahead = self._read_ahead, None
        if persona is None:
            persona = await self._read()
        index = self._next
        self._next += 1
        return index, persona

    def only_every(self, step: int, *, first: int) -> None:
        """From now on, give every `step`-th persona alone, beginning with number `first`, from 0; to be called once,
        before any is taken. What is given is numbered from 0 without gaps.
        """
        self._first, self._step = first, step
        self._rows = self._picked(self._rows)
        self._opened.append(self._rows)

    async def at_most(self) -> int | None:
        """Upper bound of the number of personas; None where it is unknown before a stream or large files are read."""
        count = await anyio.to_thread.run_sync(self._count, abandon_on_cancel=True)
        return None if count is None else len(range(self._first, count, self._step))

    async def look(self) -> None:
        """See that there is at least one persona, which stays to be taken.

        Raises:
            InputError: There is none, or the source cannot be read.
        """
        if self._read_ahead is None and self._next == 0:
            self._read_ahead = await self._read()

    async def _read(self) -> Persona:
        async for row in self._rows:
            if isinstance(row, Record):
                return row.persona
            self.bad += 1
            if len(self.problems) < REPORTED_ROWS:
                self.problems = (*self.problems, row)
                if self.on_problem is not None:
                    self.on_problem(row)
        if self._next == 0:
            raise InputError(self._empty())
        raise StopAsyncIteration

    async def _picked(self, rows: AsyncGenerator[Row, None]) -> AsyncGenerator[Row, None]:
        async for row in rows:
            if isinstance(row, Record):
                place, self._place = self._place, self._place + 1
                if place % self._step != self._first:
                    continue
            yield row

    def _empty(self) -> str:
        if self._place:
            return f"no personas: {self.description} has {self._place:,}, and number {self._first:,}, from 0, is the first wanted"
        if not self.bad:
            return f"no personas: {self.description} is empty; expected at least one row with a sentence about a person"
        first = "; ".join(map(str, self.problems))
        return f"no personas: none of the {self.bad:,} rows of {self.description} is one. {first}"

    async def aclose(self) -> None:
        """Let go of the source."""
        if self._stop is not None:
            self._stop()
        for rows in reversed(self._opened):
            await rows.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
