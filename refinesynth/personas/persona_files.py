"""Personas in JSONL, CSV, TSV and text files, also compressed, and on standard input."""

import csv
import os
import re
import sys
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import BinaryIO, cast

import orjson
from pydantic import JsonValue, ValidationError

from refinesynth.errors import InputError
from refinesynth.files.compressed import COMPRESSIONS, bounded_lines, open_binary
from refinesynth.text.json_reader import load_json, write_json
from refinesynth.trajectory import Persona, explain

COLUMNS = ("persona", "text")

REPORTED_ROWS = 5
"""Maximum number of bad rows to report, with their reasons."""


@dataclass(frozen=True, slots=True)
class BadRow:
    line: int
    """Number of the line in the file, or of the row, from 1."""
    reason: str
    """Problem, without the row's content."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PersonaRecord:
    """A persona with the other fields of its row, such as Persona Hub's domains."""

    line: int
    persona: Persona
    fields: Mapping[str, JsonValue]
    """Other fields of the row, untrusted and not checked to be JSON."""

    def as_json(self) -> bytes:
        """Return the row as one JSON line, `persona` first; without the other fields if one of them has no JSON form."""
        try:
            return write_json(
                {"persona": self.persona.text, **self.fields}, default=str, option=orjson.OPT_NON_STR_KEYS, exact=True
            )
        except (TypeError, ValueError, RecursionError):
            return write_json({"persona": self.persona.text})


Row = PersonaRecord | BadRow


def read_row(value: object, line: int, column: str | None = None) -> Row:
    """Read a text, a `Persona`, or a mapping with the key `persona` or `text`, or `column`; never raises.

    Fields without a name are left out, such as that of a trailing comma in a CSV header.
    """
    fields: dict[str, JsonValue] = {}
    if isinstance(value, Mapping):
        row = {str(key): item for key, item in cast("Mapping[object, object]", value).items()}
        if (key := find_column(row, column)) is None:
            missing = f"neither of the keys {' and '.join(COLUMNS)}" if column is None else f"no key {column!r}"
            return BadRow(line, f"has {missing}; {_describe_keys(row)}")
        value = row[key]
        # In the output, another column `persona` would replace the persona.
        fields = {name: cast("JsonValue", item) for name, item in row.items() if name not in (key, "persona", "")}
    if isinstance(value, Persona):
        return PersonaRecord(line, value, fields)
    if not isinstance(value, str):
        return BadRow(line, f"a persona is text, this is {type(value).__name__}")
    try:
        return PersonaRecord(line, Persona(text=value), fields)
    except ValidationError as error:
        return BadRow(line, explain(error) if value.strip() else "is blank")


def find_column(names: Iterable[str], requested: str | None = None) -> str | None:
    """Return the name of the column with personas, ignoring case and surrounding blanks; None without one."""
    folded = {name.strip().casefold(): name for name in reversed(list(names))}
    candidates = COLUMNS if requested is None else (requested.strip().casefold(),)
    return next((folded[name] for name in candidates if name in folded), None)


def require_column(table: str, names: Sequence[str], requested: str | None) -> str:
    """Return the name of a table's column with personas. Raises InputError: there is no such column."""
    if (column := find_column(names, requested)) is not None:
        return column
    expected = "persona or text" if requested is None else repr(requested)
    raise InputError(f"{table} has the columns {list(names)[:20]}; expected one of them to be {expected}. {_HINT}")


_HINT = "Name the column of the personas with --column (column= in Python)"


def _describe_keys(names: Iterable[object]) -> str:
    listed = ", ".join(repr(str(name)[:40]) for name in islice(names, 5))
    return f"it has {listed or 'none'}. {_HINT}"


def shipped() -> tuple[Persona, ...]:
    """Return all personas of the package, about 300, in a fixed order."""
    lines = (files("refinesynth.personas") / "shipped.jsonl").read_bytes().splitlines()
    return tuple(Persona.model_validate(orjson.loads(line)) for line in lines)


MAX_LINE_BYTES = 1 << 20

STDIN = "-"

_JSON_START = re.compile(rb'\s*\[?\s*\{\s*"')
"""Beginning of a line of text that is read as JSON: JSONL is also on standard input and, as our output, in `.txt` files."""
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_FORMATS = (".jsonl", ".ndjson", *_DELIMITERS, ".txt")

NumberedRow = tuple[int, object]


class PersonaFile:
    """File of personas. The constructor checks the path alone; `rows` reads the file and blocks."""

    def __init__(self, path: str | PathLike[str], *, column: str | None = None) -> None:
        """Check the path; `column` holds a row's persona, by default `persona` or `text`.

        Raises InputError: there is no such file, or its suffix is unknown.
        """
        self.path = path = Path(path)
        self.column = column
        self._line = 0
        suffixes = [suffix.lower() for suffix in path.suffixes]
        if suffixes and suffixes[-1] in COMPRESSIONS:
            suffixes.pop()
        self._format = suffixes[-1] if suffixes else ""
        if str(path) == STDIN:
            self._format = STDIN
            return
        # os.path, because pathlib raises an error for a long sentence in place of a path.
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
                f"{', '.join(_FORMATS)}, and perhaps {' or '.join(COMPRESSIONS)} after that; convert others to JSONL"
            )

    def rows(self) -> Generator[Row, None, None]:
        """Yield every row in order; raises InputError if the file cannot be read or has no column for personas."""
        self._line = 0
        is_stdin, read = self._format == STDIN, self._csv_rows if self._format in _DELIMITERS else self._line_rows
        try:
            with nullcontext(sys.stdin.buffer) if is_stdin else open_binary(self.path) as file:
                for row in read(file):
                    yield row if isinstance(row, BadRow) else read_row(row[1], row[0], self.column)
        except (OSError, EOFError, UnicodeError, zlib.error) as error:
            position = f" after line {self._line}" if self._line and not isinstance(error, UnicodeError) else ""
            raise InputError(f"{str(self.path)!r} cannot be read{position}: {error}") from error

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        for number, line in bounded_lines(file, MAX_LINE_BYTES):
            if len(line) > MAX_LINE_BYTES:
                raise InputError(
                    f"line {number} of {str(self.path)!r} is longer than {MAX_LINE_BYTES:,} bytes; write one persona on each line"
                )
            self._line = number
            yield line.removesuffix(b"\n")

    def _line_rows(self, file: BinaryIO) -> Iterator[NumberedRow | BadRow]:
        for line in self._lines(file):
            is_text = self._format in {".txt", STDIN} and _JSON_START.match(line) is None
            if is_text and b"\r" in line.strip():
                yield BadRow(self._line, "has a carriage return (CR) within; end lines with a line feed (LF or CR LF)")
                continue
            try:
                yield self._line, "" if not line.strip() else line.decode() if is_text else load_json(line)
            except orjson.JSONDecodeError as error:
                yield BadRow(self._line, f"is not JSON: {error.msg}")
            except UnicodeDecodeError as error:
                yield BadRow(self._line, f"is not UTF-8 at byte {error.start}")

    def _csv_rows(self, file: BinaryIO) -> Iterator[NumberedRow | BadRow]:
        """Yield rows with the number of their first line. Quoting is strict: an open quote would hide the next rows."""
        # Undecodable bytes become lone surrogates, which no persona may hold: only the row is refused, not the file.
        lines = (line.decode("utf-8", "surrogateescape") + "\n" for line in self._lines(file))
        rows = csv.reader(lines, delimiter=_DELIMITERS[self._format], strict=True)
        first = 1
        try:
            header = next(rows, list[str]())
            persona_index = header.index(require_column(repr(str(self.path)), header, self.column))
            names = _field_names(header, persona_index)
            first = self._line + 1
            for cells in rows:
                if not cells:
                    yield BadRow(first, "is blank")
                elif len(cells) <= persona_index:
                    yield BadRow(first, f"has {len(cells)} columns, the persona is in column {persona_index + 1}")
                elif len(cells) > len(names) and cells[persona_index + 1].startswith(" ") and cells[-1].strip():
                    yield BadRow(
                        first, f"has {len(cells)} cells for {len(names)} columns; quote a persona with a comma"
                    )
                else:
                    named_cells = zip(names, cells, strict=False)
                    yield first, {name: cell for name, cell in named_cells if name is not None}
                first = self._line + 1
        except csv.Error as error:
            raise InputError(
                f"the row of {str(self.path)!r} that begins in line {first} is no CSV: {error}. Close every quote, write a quote "
                "within a quoted cell twice, and each cell with at most 131,072 characters; or write the file as JSONL"
            ) from error


def _field_names(header: list[str], persona_index: int) -> list[str | None]:
    """Return column names as fields of a row; None for unnamed and repeated columns."""
    persona = header[persona_index].strip().casefold()
    names: list[str | None] = [name.strip() or None for name in header]
    return [
        persona if number == persona_index else None if name in (persona, *names[:number]) else name
        for number, name in enumerate(names)
    ]
