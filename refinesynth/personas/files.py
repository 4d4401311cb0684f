"""Personas in files: JSONL, JSON, CSV, TSV, Parquet and plain text, each also compressed; and from standard input."""

import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from os import PathLike
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO, cast

import orjson

from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.files.compressed import open_binary
from refinesynth.personas.lines import COMPRESSIONS, MAX_LINE_BYTES, Lines, read_whole
from refinesynth.personas.parquet import read_parquet, row_count
from refinesynth.personas.quoted import QuotedRow, QuotedRows
from refinesynth.personas.rows import BadRow, Row, find_column, no_column, read_row_of

_COUNTED_BYTES = 64 * 1024 * 1024
"""Largest file whose lines are counted beforehand, which takes a fifth of a second."""

STDIN = "-"
"""In the place of a path: standard input."""

_WHOLE = (".json", ".parquet")
"""Files that are not read line by line."""

_DELIMITERS = {".csv": ",", ".tsv": "\t"}

_TOO_LONG = f"is longer than {MAX_LINE_BYTES:,} bytes"

Found = tuple[int, object]
"""Number and content of a row, which may or may not hold a persona."""


class PersonaFile:
    """A file of personas. Making one checks that it can be read in principle; `rows` reads it, blocking."""

    def __init__(self, path: str | PathLike[str], *, column: str | None = None) -> None:
        """Look at the path alone; `column` is where a row's persona stands, by default `persona` or `text`.

        Raises:
            InputError: There is no such file, or its suffix is unknown.
            ConfigurationError: A package that it needs is not installed.
        """
        self.path = path = Path(path)
        self.column = column
        suffixes = [suffix.lower() for suffix in path.suffixes]
        self._compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else None
        self._format = suffixes[-1] if suffixes else ""
        if str(path) == STDIN:
            self._format = STDIN
            self._lines = None
            return
        # os.path, because a long sentence taken for a path is an error to pathlib, and no file to os.path.
        if not os.path.exists(path):  # noqa: PTH110
            raise InputError(
                f"there is no file {str(path)!r}. A text is taken as the path of a file with personas; "
                f"a single persona is given as a list of one text"
            )
        if path.is_dir():
            raise InputError(f"{str(path)!r} is a folder; expected a file with personas")
        if self._format not in {*_READERS, *_WHOLE}:
            raise InputError(
                f"unknown file format by the name of {str(path)!r}; expected one that ends in "
                f"{', '.join((*(name for name in _READERS if name != STDIN), *_WHOLE))}, and perhaps {' or '.join(COMPRESSIONS)} after that"
            )
        if self._format == ".parquet":
            check_installed("parquet", "pyarrow")
        self._lines: Lines | None = None

    def rows(self) -> Generator[Row, None, None]:
        """Every row in order, lazily.

        Raises:
            InputError: The file has no column for personas, or cannot be read on.
        """
        for found in self._found():
            if isinstance(found, BadRow):
                yield found
            else:
                yield read_row_of(found[1], found[0], self.column)

    def _found(self) -> Generator[Found | BadRow, None, None]:
        from zstandard import ZstdError

        try:
            with self._open() as file:
                if self._format == ".parquet":
                    yield from self._parquet_rows(file)
                    return
                if self._format == ".json":
                    yield from _read_json(file, self.path)
                    return
                self._lines = Lines(file)
                yield from _READERS[self._format](self._lines, self)
        except (OSError, EOFError, UnicodeError, zlib.error, ZstdError) as error:
            read = self._lines.number if self._lines and not isinstance(error, UnicodeError) else 0
            after = f" after line {read}" if read else ""
            raise InputError(f"{str(self.path)!r} cannot be read{after}: {error}") from error

    def _open(self) -> AbstractContextManager[BinaryIO]:
        if self._format == STDIN:
            return nullcontext(sys.stdin.buffer)
        return open_binary(self.path, self._compression)

    def at_most(self) -> int | None:
        """How many personas it holds at most: its rows that are not blank; None if it is compressed, large or no file
        on a disk. What cannot be read is said where the rows are.
        """
        if self._compression is not None or self._format == ".json" or not self.path.is_file():
            return None
        try:
            if self._format == ".parquet":
                return row_count(self.path)
            if self.path.stat().st_size > _COUNTED_BYTES:
                return None
            with self.path.open("rb") as file:
                if self._format in _DELIMITERS:
                    rows = QuotedRows(Lines(file), _DELIMITERS[self._format])
                    return max(0, sum(1 for row in rows if row.cells or row.problem) - 1)
                return sum(1 for line in Lines(file) if line.strip())
        except (OSError, UnicodeError):
            return None

    def stop(self) -> None:
        """End `rows` soon, from whichever thread."""
        if self._lines is not None:
            self._lines.stop()

    def _parquet_rows(self, file: BinaryIO) -> Iterator[Found | BadRow]:
        if self._compression is None:
            yield from read_parquet(file, self.path, self.column)
            return
        # Parquet is read from its end, so it has to be unpacked first: to disk, not to memory.
        with closing(tempfile.TemporaryFile()) as unpacked:
            copyfileobj(file, unpacked)
            unpacked.seek(0)
            yield from read_parquet(unpacked, self.path, self.column)


def _read_lines(lines: Lines, _: PersonaFile, read: Callable[[bytes], object]) -> Iterator[Found | BadRow]:
    for line in lines:
        if lines.too_long:
            lines.too_long = False
            yield BadRow(lines.number, _TOO_LONG)
            continue
        try:
            yield lines.number, read(line) if line.strip() else ""
        except orjson.JSONDecodeError as error:
            yield BadRow(lines.number, f"is not JSON: {error.msg}")
        except UnicodeDecodeError as error:
            yield BadRow(lines.number, f"is not UTF-8 at byte {error.start}")


def _read_text(line: bytes) -> object:
    """A line that may be JSON or a persona as it stands."""
    return orjson.loads(line) if line.lstrip().startswith(b"{") else line.decode()


def _read_json(file: BinaryIO, path: Path) -> Iterator[Found]:
    """A list of rows, or an object that holds one."""
    try:
        found: object = orjson.loads(read_whole(file, path))
    except orjson.JSONDecodeError as error:
        raise InputError(f"{str(path)!r} is not JSON: {error}; rows on lines of their own are JSONL, .jsonl") from error
    if isinstance(found, dict):
        lists = [value for value in cast("dict[str, object]", found).values() if isinstance(value, list)]  # pyright: ignore[reportUnknownVariableType]
        found = cast("object", lists[0]) if len(lists) == 1 else None  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(found, list):
        raise InputError(f"{str(path)!r} is neither a list of rows nor an object that holds one list of them")
    yield from enumerate(cast("list[object]", found), start=1)


def _read_csv(lines: Lines, source: PersonaFile, delimiter: str) -> Iterator[Found | BadRow]:
    rows = QuotedRows(lines, delimiter)
    header = next(rows, QuotedRow(1, [], too_long=False))
    if problem := _TOO_LONG if header.too_long else header.problem:
        raise InputError(f"the first line of {str(source.path)!r} is no CSV header: {problem}")
    column = find_column(header.cells, source.column)
    if column is None:
        raise no_column(repr(str(source.path)), header.cells, source.column)
    at = header.cells.index(column)
    names = _names(header.cells, at)
    for row in rows:
        if row.problem is not None:
            yield BadRow(row.line, f"is not CSV: {row.problem}")
        elif row.too_long:
            yield BadRow(row.line, _TOO_LONG)
        elif not row.cells:
            yield BadRow(row.line, "is blank")
        elif len(row.cells) <= at:
            yield BadRow(row.line, f"has {len(row.cells)} columns, the persona is in column {at + 1}")
        else:
            # Cells that no column of the header is for are left out.
            yield row.line, {name: cell for name, cell in zip(names, row.cells, strict=False) if name is not None}


def _names(header: list[str], at: int) -> list[str | None]:
    """Names of the columns as a row's fields; None for those without a name and those whose name was there before."""
    persona = header[at].strip().casefold()
    names: list[str | None] = [name.strip() or None for name in header]
    return [
        persona if number == at else None if name in (persona, *names[:number]) else name
        for number, name in enumerate(names)
    ]


_READERS: dict[str, Callable[[Lines, PersonaFile], Iterator[Found | BadRow]]] = {
    ".jsonl": partial(_read_lines, read=orjson.loads),
    ".ndjson": partial(_read_lines, read=orjson.loads),
    **{name: partial(_read_csv, delimiter=delimiter) for name, delimiter in _DELIMITERS.items()},
    ".txt": partial(_read_lines, read=bytes.decode),
    STDIN: partial(_read_lines, read=_read_text),
}
