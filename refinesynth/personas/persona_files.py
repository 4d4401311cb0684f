"""Personas in JSONL, JSON, CSV, TSV, Parquet and text files, also compressed, and on standard input."""

import csv
import os
import sys
import tempfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from importlib import import_module
from os import PathLike
from pathlib import Path
from shutil import copyfileobj
from typing import Any, BinaryIO, cast

import orjson

from refinesynth.errors import InputError
from refinesynth.extras import check_installed
from refinesynth.files.atomic_write import COMPRESSED
from refinesynth.files.compressed import bounded_lines, open_binary, read_document
from refinesynth.personas.persona_rows import BadRow, Row, find_column, no_column, read_row

MAX_LINE_BYTES = 1 << 20

STDIN = "-"

_PARQUET_ROWS = 256
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_FORMATS = (".jsonl", ".ndjson", *_DELIMITERS, ".txt", ".json", ".parquet")

Found = tuple[int, object]


class PersonaFile:
    """A file of personas. The constructor looks at the path alone; `rows` reads it and blocks."""

    def __init__(self, path: str | PathLike[str], *, column: str | None = None) -> None:
        """Check the path; `column` holds a row's persona, by default `persona` or `text`.

        Raises InputError: there is no such file, its suffix is unknown, or it needs a package that is not installed.
        """
        self.path = path = Path(path)
        self.column = column
        self._line = 0
        suffixes = [suffix.lower() for suffix in path.suffixes]
        self._compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSED else None
        self._format = suffixes[-1] if suffixes else ""
        if str(path) == STDIN:
            self._format = STDIN
            return
        # os.path, because a long sentence taken for a path is an error to pathlib, and no file to os.path.
        if not os.path.exists(path):  # noqa: PTH110
            raise InputError(
                f"there is no file {str(path)!r}. A text is taken as the path of a file with personas; "
                f"a single persona is given as a list of one text"
            )
        if path.is_dir():
            raise InputError(f"{str(path)!r} is a folder; expected a file with personas")
        if self._format not in _FORMATS:
            raise InputError(
                f"unknown file format by the name of {str(path)!r}; expected one that ends in "
                f"{', '.join(_FORMATS)}, and perhaps {' or '.join(COMPRESSED)} after that"
            )
        if self._format == ".parquet":
            check_installed("parquet", "pyarrow")

    def rows(self) -> Generator[Row, None, None]:
        """Yield every row in order; raises InputError if the file cannot be read or has no column for personas."""
        for found in self._found():
            yield found if isinstance(found, BadRow) else read_row(found[1], found[0], self.column)

    def _found(self) -> Iterator[Found | BadRow]:
        from zstandard import ZstdError

        self._line = 0
        try:
            with self._open() as file:
                if self._format == ".parquet":
                    yield from self._parquet_rows(file)
                elif self._format == ".json":
                    yield from _read_json(file, self.path)
                elif self._format in _DELIMITERS:
                    yield from self._csv_rows(file)
                else:
                    yield from self._line_rows(file)
        except (OSError, EOFError, UnicodeError, zlib.error, ZstdError) as error:
            after = f" after line {self._line}" if self._line and not isinstance(error, UnicodeError) else ""
            raise InputError(f"{str(self.path)!r} cannot be read{after}: {error}") from error

    def _open(self) -> AbstractContextManager[BinaryIO]:
        if self._format == STDIN:
            return nullcontext(sys.stdin.buffer)
        return open_binary(self.path, self._compression)

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        for number, line in bounded_lines(file, MAX_LINE_BYTES):
            if len(line) > MAX_LINE_BYTES:
                raise InputError(
                    f"line {number} of {str(self.path)!r} is longer than {MAX_LINE_BYTES:,} bytes; write one persona on each line"
                )
            self._line = number
            yield line.removesuffix(b"\n")

    def _line_rows(self, file: BinaryIO) -> Iterator[Found | BadRow]:
        for line in self._lines(file):
            is_text = self._format == ".txt" or (self._format == STDIN and not line.lstrip().startswith(b"{"))
            try:
                yield self._line, "" if not line.strip() else line.decode() if is_text else orjson.loads(line)
            except orjson.JSONDecodeError as error:
                yield BadRow(self._line, f"is not JSON: {error.msg}")
            except UnicodeDecodeError as error:
                yield BadRow(self._line, f"is not UTF-8 at byte {error.start}")

    def _csv_rows(self, file: BinaryIO) -> Iterator[Found | BadRow]:
        """Rows by the number of their first line. Strict quoting: an unclosed quote would hide the rows after it."""
        # Undecodable bytes become lone surrogates, which no persona may hold; so the row is refused and not the file.
        lines = (line.decode("utf-8", "surrogateescape") + "\n" for line in self._lines(file))
        rows = csv.reader(lines, delimiter=_DELIMITERS[self._format], strict=True)
        first = 1
        try:
            header = next(rows, list[str]())
            column = find_column(header, self.column)
            if column is None:
                raise no_column(repr(str(self.path)), header, self.column)
            at = header.index(column)
            names = _names(header, at)
            first = self._line + 1
            for cells in rows:
                if not cells:
                    yield BadRow(first, "is blank")
                elif len(cells) <= at:
                    yield BadRow(first, f"has {len(cells)} columns, the persona is in column {at + 1}")
                else:
                    # Cells that no column of the header is for are left out.
                    named = zip(names, cells, strict=False)
                    yield first, {name: cell for name, cell in named if name is not None}
                first = self._line + 1
        except csv.Error as error:
            raise InputError(
                f"the row of {str(self.path)!r} that begins in line {first} is no CSV: {error}. Close every quote, write a quote "
                "within a quoted cell twice, and each cell with at most 131,072 characters; or write the file as JSONL"
            ) from error

    def _parquet_rows(self, file: BinaryIO) -> Iterator[Found | BadRow]:
        if self._compression is None:
            yield from _read_parquet(file, self.path, self.column)
            return
        # Parquet is read from its end, so it has to be unpacked first: to disk, not to memory.
        with closing(tempfile.TemporaryFile()) as unpacked:
            copyfileobj(file, unpacked)
            unpacked.seek(0)
            yield from _read_parquet(unpacked, self.path, self.column)


def _read_json(file: BinaryIO, path: Path) -> Iterator[Found]:
    try:
        found: object = orjson.loads(read_document(file, path))
    except orjson.JSONDecodeError as error:
        raise InputError(f"{str(path)!r} is not JSON: {error}; rows on lines of their own are JSONL, .jsonl") from error
    if isinstance(found, dict):
        lists = [value for value in cast("dict[str, object]", found).values() if isinstance(value, list)]  # pyright: ignore[reportUnknownVariableType]
        found = cast("object", lists[0]) if len(lists) == 1 else None  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(found, list):
        raise InputError(f"{str(path)!r} is neither a list of rows nor an object that holds one list of them")
    yield from enumerate(cast("list[object]", found), start=1)


def _names(header: list[str], at: int) -> list[str | None]:
    """Column names as fields of a row; None for unnamed and repeated columns."""
    persona = header[at].strip().casefold()
    names: list[str | None] = [name.strip() or None for name in header]
    return [
        persona if number == at else None if name in (persona, *names[:number]) else name
        for number, name in enumerate(names)
    ]


def _read_parquet(file: BinaryIO, path: Path, wanted: str | None) -> Iterator[Found | BadRow]:
    """Rows in batches; of columns that share a name, only the persona's is read."""
    # Typed as Any: pyarrow is optional, and has no types.
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    try:
        table = parquet.ParquetFile(file)
        names: list[str] = table.schema_arrow.names
        column = find_column(names, wanted)
        if column is None:
            raise no_column(repr(str(path)), names, wanted)
        read = [name for name in dict.fromkeys(names) if name == column or names.count(name) == 1]
        number = 0
        for batch in table.iter_batches(batch_size=_PARQUET_ROWS, columns=read):
            for cells in zip(*batch.columns, strict=True):
                number += 1
                yield _parquet_row(dict(zip(batch.schema.names, cells, strict=True)), column, number)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{str(path)!r} cannot be read as Parquet: {error}") from error


def _parquet_row(cells: dict[str, Any], column: str, number: int) -> Found | BadRow:
    row: dict[str, object] = {}
    for name, cell in cells.items():
        try:
            row[name.strip().casefold() if name == column else name] = cell.as_py()
        except (UnicodeDecodeError, ValueError, OverflowError) as error:
            # Of other columns, what Python has no value for is left out: a time in the year 20,000.
            if name == column:
                where = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
                return BadRow(number, f"is not UTF-8{where}")
    return number, row
