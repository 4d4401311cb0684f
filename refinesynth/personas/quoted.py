"""Rows of CSV, of which a quote that is never closed costs one line and not the rest of the file."""

import csv
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from refinesynth.personas.lines import Lines


class Line(NamedTuple):
    """A line of the file, for which a row may need several."""

    number: int
    text: str
    too_long: bool
    """Whether nothing of it was kept, because it was too long."""


class QuotedRow(NamedTuple):
    """One row as its cells, or why it is none."""

    line: int
    """The first of its lines."""
    cells: list[str]
    too_long: bool
    problem: str | None = None


class QuotedRows:
    """Iterates over the rows of a CSV file, or one with another mark between cells; never raises over its content.

    Quotes are taken strictly first. If that fails over several lines, the first of them is a bad row and the next row
    begins behind it; a single line is read once more as other programs do, who let quotes stand in the middle of a
    cell. What is held at once is bounded by `csv.field_size_limit`, 128 KiB unless set otherwise, and one line.
    """

    def __init__(self, lines: Lines, delimiter: str = ",") -> None:
        self._lines = lines
        self._delimiter = delimiter
        self._again: deque[Line] = deque()
        self._taken: list[Line] = []
        self._reader = csv.reader(self._texts(), delimiter=self._delimiter, strict=True)

    def __iter__(self) -> Iterator[QuotedRow]:
        return self

    def __next__(self) -> QuotedRow:
        self._taken = []
        try:
            cells = next(self._reader)
        except csv.Error as error:
            return self._recovered(str(error))
        return QuotedRow(self._taken[0].number, cells, any(line.too_long for line in self._taken))

    def _recovered(self, problem: str) -> QuotedRow:
        first, *rest = self._taken
        self._again.extendleft(reversed(rest))
        # A reader that failed is in the middle of a cell.
        self._reader = csv.reader(self._texts(), delimiter=self._delimiter, strict=True)
        if not rest:
            try:
                return QuotedRow(
                    first.number, next(csv.reader([first.text], delimiter=self._delimiter)), first.too_long
                )
            except csv.Error as error:
                problem = str(error)
        return QuotedRow(first.number, [], first.too_long, problem)

    def _texts(self) -> Iterator[str]:
        while True:
            line = self._again.popleft() if self._again else self._read()
            if line is None:
                return
            self._taken.append(line)
            yield line.text

    def _read(self) -> Line | None:
        self._lines.too_long = False
        data = next(self._lines, None)
        if data is None:
            return None
        # Undecodable bytes become lone surrogates, which no persona may hold; so the row is refused and not the file.
        return Line(self._lines.number, data.decode("utf-8", "surrogateescape") + "\n", self._lines.too_long)
