"""Personas in files: JSONL, CSV, Parquet and plain text, each also compressed."""

import csv
import os
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO

import orjson

from refinesynth.compressed import open_binary
from refinesynth.errors import InputError
from refinesynth.personas.lines import COMPRESSIONS, MAX_LINE_BYTES, Lines
from refinesynth.personas.parquet import check_installed, read_parquet
from refinesynth.personas.rows import COLUMNS, BadRow, Row, find_column, read_text, read_value

_TOO_LONG = f"is longer than {MAX_LINE_BYTES:,} bytes"


class PersonaFile:
    """A file of personas. Making one checks that it can be read in principle; `rows` reads it, blocking."""

    def __init__(self, path: Path) -> None:
        """Look at the path alone.

        Raises:
            InputError: There is no such file, or its suffix is unknown.
            ConfigurationError: A package that it needs is not installed.
        """
        self.path = path
        suffixes = [suffix.lower() for suffix in path.suffixes]
        self._compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else None
        self._format = suffixes[-1] if suffixes else ""
        # os.path, because a long sentence taken for a path is an error to pathlib, and no file to os.path.
        if not os.path.exists(path):  # noqa: PTH110
            raise InputError(
                f"there is no file {str(path)!r}. A text is taken as the path of a file with personas; "
                f"a single persona is given as a list of one text"
            )
        if path.is_dir():
            raise InputError(f"{str(path)!r} is a folder; expected a file with personas")
        if self._format not in _READERS and self._format != ".parquet":
            raise InputError(
                f"cannot tell what is in {str(path)!r} by its name; expected one that ends in "
                f"{', '.join((*_READERS, '.parquet'))}, and perhaps {' or '.join(COMPRESSIONS)} after that"
            )
        if self._format == ".parquet":
            check_installed()
        self._lines: Lines | None = None

    def rows(self) -> Generator[Row, None, None]:
        """Every row in order, lazily.

        Raises:
            InputError: The file has no column for personas, or cannot be read on.
        """
        from zstandard import ZstdError

        try:
            with open_binary(self.path, self._compression) as file:
                if self._format == ".parquet":
                    yield from self._parquet_rows(file)
                    return
                self._lines = Lines(file)
                yield from _READERS[self._format](self._lines, self.path)
        except (OSError, EOFError, zlib.error, ZstdError) as error:
            after = f" after line {self._lines.number}" if self._lines and self._lines.number else ""
            raise InputError(f"{str(self.path)!r} cannot be read{after}: {error}") from error

    def stop(self) -> None:
        """End `rows` soon, from whichever thread."""
        if self._lines is not None:
            self._lines.stop()

    def _parquet_rows(self, file: BinaryIO) -> Iterator[Row]:
        if self._compression is None:
            yield from read_parquet(file, self.path)
            return
        # Parquet is read from its end, so it has to be unpacked first: to disk, not to memory.
        with closing(tempfile.TemporaryFile()) as unpacked:
            copyfileobj(file, unpacked)
            unpacked.seek(0)
            yield from read_parquet(unpacked, self.path)


def _read_jsonl(lines: Lines, _: Path) -> Iterator[Row]:
    for line in lines:
        if lines.too_long:
            lines.too_long = False
            yield BadRow(lines.number, _TOO_LONG)
        elif not line.strip():
            yield BadRow(lines.number, "is blank")
        else:
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                yield BadRow(lines.number, f"is not JSON: {error.msg}")
            else:
                yield read_value(value, lines.number)


def _read_plain(lines: Lines, _: Path) -> Iterator[Row]:
    for line in lines:
        if lines.too_long:
            lines.too_long = False
            yield BadRow(lines.number, _TOO_LONG)
        else:
            yield read_text(line, lines.number)


def _read_csv(lines: Lines, path: Path) -> Iterator[Row]:
    # Undecodable bytes become lone surrogates, which no persona may hold; so the row is refused and not the file.
    reader = csv.reader(line.decode("utf-8", "surrogateescape") + "\n" for line in lines)
    try:
        header = next(reader, list[str]())
    except csv.Error as error:
        raise InputError(f"the first line of {str(path)!r} is no CSV header: {error}") from error
    column = find_column(header)
    if column is None:
        raise InputError(
            f"{str(path)!r} has the columns {header[:20]}; expected one of them to be {' or '.join(COLUMNS)}"
        )
    at = header.index(column)
    while True:
        first = lines.number + 1
        lines.too_long = False
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield BadRow(first, f"is not CSV: {error}")
            continue
        if lines.too_long:
            yield BadRow(first, _TOO_LONG)
        elif not row:
            yield BadRow(first, "is blank")
        elif len(row) <= at:
            yield BadRow(first, f"has {len(row)} columns, the persona is in column {at + 1}")
        else:
            yield read_value(row[at], first)


_READERS: dict[str, Callable[[Lines, Path], Iterator[Row]]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".csv": _read_csv,
    ".txt": _read_plain,
}
