"""Rows of personas with all their fields, and a count of the bad ones."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast

from refinesynth.errors import InputError
from refinesynth.files.atomic_write import output_file
from refinesynth.personas.persona_files import PersonaFile
from refinesynth.personas.persona_rows import REPORTED_ROWS, BadRow, PersonaRecord, read_row, shipped
from refinesynth.trajectory import Persona

RecordSource: TypeAlias = str | PathLike[str] | Iterable[str | Persona | Mapping[str, Any] | PathLike[str]]
"""A path, or an iterable of rows: a `Path` stands for the rows of its file, a text is a persona."""

_TOLD_EVERY = 4096


class Records:
    """Iterator over the rows of a source; rows without a persona are counted and skipped."""

    def __init__(
        self,
        source: RecordSource | None = None,
        *,
        column: str | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        """Check the paths; None stands for the shipped personas.

        `column` holds a row's persona, by default `persona` or `text`. `on_progress` gets the number of rows read so far.
        Raises InputError: a file is missing or unknown, or `source` has an unsupported type.
        """
        self.read = 0
        self.bad = 0
        self.problems: tuple[str, ...] = ()
        """The first few bad rows: file, line and reason."""
        self._on_progress = on_progress
        self._column = column
        self._rows = self._found(_pieces(source, column))

    def __iter__(self) -> Iterator[PersonaRecord]:
        return self

    def __next__(self) -> PersonaRecord:
        return next(self._rows)

    def check(self) -> None:
        """Raise InputError if no row held a persona."""
        if not self.read:
            said = f"none of {self.bad:,} rows is one. {'; '.join(self.problems)}" if self.bad else "there are no rows"
            raise InputError(f"no personas: {said}")

    def _found(self, source: Iterable[object]) -> Generator[PersonaRecord, None, None]:
        for number, each in enumerate(source, start=1):
            piece = _opened(each, self._column)
            if isinstance(piece, PersonaFile):
                yield from self._counted(piece.rows(), f"{piece.path}: ")
            else:
                yield from self._counted((read_row(piece, number, self._column),), "")

    def _counted(self, rows: Iterable[PersonaRecord | BadRow], where: str) -> Iterator[PersonaRecord]:
        for row in rows:
            if self._on_progress is not None and (self.read + self.bad) % _TOLD_EVERY == 0:
                self._on_progress(self.read + self.bad)
            if isinstance(row, PersonaRecord):
                self.read += 1
                yield row
                continue
            self.bad += 1
            if len(self.problems) < REPORTED_ROWS:
                self.problems = (*self.problems, f"{where}{row}")


def _pieces(source: RecordSource | None, column: str | None) -> Iterable[object]:
    """Files and rows of a source; the files of a list are checked before the first is read."""
    if source is None:
        return shipped()
    if isinstance(source, str | PathLike):
        return (PersonaFile(source, column=column),)
    if isinstance(source, list | tuple):
        return [_opened(piece, column) for piece in cast("Iterable[object]", source)]
    if isinstance(source, Mapping | bytes | bytearray) or not isinstance(source, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(cast("object", source)).__name__
        raise InputError(f"cannot read personas from a {kind}; expected a path, or an iterable of paths, texts or rows")
    return source


def _opened(piece: object, column: str | None) -> object:
    return PersonaFile(cast("PathLike[str]", piece), column=column) if isinstance(piece, PathLike) else piece


def write_records(records: Iterable[PersonaRecord], output: str | PathLike[str], *, overwrite: bool = False) -> int:
    """Write rows as JSONL, whole or not at all; return their number. Raises InputError: the file cannot be written."""
    written = 0
    with output_file(Path(output), overwrite=overwrite) as file:
        for record in records:
            file.write(record.as_json() + b"\n")
            written += 1
    return written
