"""Lazy readers of personas: for a run, without blocking the event loop, or as rows with all their fields."""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, cast

import anyio.to_thread
from anyio.lowlevel import checkpoint

from refinesynth.errors import InputError
from refinesynth.files.atomic_write import output_file
from refinesynth.personas.persona_files import (
    REPORTED_ROWS,
    BadRow,
    PersonaFile,
    PersonaRecord,
    Row,
    read_row,
    require_column,
    shipped,
)
from refinesynth.trajectory import Persona

RecordSource: TypeAlias = str | PathLike[str] | Iterable[str | Persona | Mapping[str, Any] | PathLike[str]]
"""A path, or an iterable of rows: in it, a `Path` stands for the rows of its file, and a text is a persona."""

_PROGRESS_INTERVAL = 4096


class Records:
    """Iterator over the rows of a source; rows without a persona are counted and skipped."""

    def __init__(
        self,
        source: RecordSource | None = None,
        *,
        column: str | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        """Check the source: a path or the paths of a list; None stands for the shipped personas.

        `column` holds a row's persona, by default `persona` or `text`. `on_progress` receives the number of rows so far.
        Raises InputError: a file is missing, its suffix is unknown, or `source` has an unsupported type.
        """
        self.read = 0
        self.bad = 0
        self.problems: tuple[str, ...] = ()
        """First bad rows: file, line and reason."""
        self._on_progress = on_progress
        self._column = column
        self._rows = self._read_records(_source_items(source, column))

    def __iter__(self) -> Iterator[PersonaRecord]:
        return self

    def __next__(self) -> PersonaRecord:
        return next(self._rows)

    def check(self) -> None:
        """Raise InputError if no row with a persona was read."""
        if not self.read:
            reason = (
                f"none of {self.bad:,} rows is one. {'; '.join(self.problems)}" if self.bad else "there are no rows"
            )
            raise InputError(f"no personas: {reason}")

    def _read_records(self, pieces: Iterable[object]) -> Iterator[PersonaRecord]:
        for number, item in enumerate(pieces, start=1):
            piece = _open_file(item, self._column)
            file = piece if isinstance(piece, PersonaFile) else None
            for row in file.rows() if file else (read_row(piece, number, self._column),):
                if self._on_progress is not None and (self.read + self.bad) % _PROGRESS_INTERVAL == 0:
                    self._on_progress(self.read + self.bad)
                if isinstance(row, PersonaRecord):
                    self.read += 1
                    yield row
                    continue
                self.bad += 1
                if len(self.problems) < REPORTED_ROWS:
                    self.problems = (*self.problems, f"{file.path}: {row}" if file else str(row))


def _source_items(source: RecordSource | None, column: str | None) -> Iterable[object]:
    """Return the files and rows of a source; the paths of a list are checked at once."""
    if source is None:
        return shipped()
    if isinstance(source, str | PathLike):
        return (PersonaFile(source, column=column),)
    if isinstance(source, list | tuple):
        return [_open_file(piece, column) for piece in cast("Iterable[object]", source)]
    if isinstance(source, Mapping | bytes | bytearray) or not isinstance(source, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(cast("object", source)).__name__
        raise InputError(f"cannot read personas from a {kind}; expected a path, or an iterable of paths, texts or rows")
    return source


def _open_file(piece: object, column: str | None) -> object:
    return PersonaFile(cast("PathLike[str]", piece), column=column) if isinstance(piece, PathLike) else piece


def write_records(records: Iterable[PersonaRecord], output: str | PathLike[str], *, overwrite: bool = False) -> int:
    """Write rows as JSONL atomically; return their number. Raises InputError: the file cannot be written."""
    count = 0
    with output_file(Path(output), overwrite=overwrite) as file:
        for record in records:
            file.write(record.as_json() + b"\n")
            count += 1
    return count


class Personas:
    """Async iterator of `(index, persona)`; bad rows have no index. Use it in `async with`, or close it."""

    def __init__(self, rows: AsyncGenerator[Row, None], description: str) -> None:
        self._rows = rows
        self._next = self._index = 0
        self._first, self._step = 0, 1
        self._read_ahead: Persona | None = None
        self.description = description
        self.bad = 0
        self.problems: tuple[BadRow, ...] = ()
        self.on_problem: Callable[[BadRow], None] | None = None
        """Called with each row that is added to `problems`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, Persona]:
        """Return the next persona with its index, from 0; raises InputError for an empty or unreadable source."""
        persona, self._read_ahead = self._read_ahead, None
        if persona is None:
            persona = await self._read()
        index = self._next
        self._next += 1
        return index, persona

    def take_every(self, step: int, *, first: int) -> None:
        """Restrict the iteration to every `step`-th persona from number `first` on; call it before the first persona."""
        self._first, self._step = first, step

    async def read_first(self) -> None:
        """Read the first persona ahead; raises InputError if there is none."""
        if self._read_ahead is None and self._next == 0:
            self._read_ahead = await self._read()

    async def _read(self) -> Persona:
        async for row in self._rows:
            if isinstance(row, PersonaRecord):
                index, self._index = self._index, self._index + 1
                if index % self._step == self._first:
                    return row.persona
                continue
            self.bad += 1
            if len(self.problems) < REPORTED_ROWS:
                self.problems = (*self.problems, row)
                if self.on_problem is not None:
                    self.on_problem(row)
        if self._next:
            raise StopAsyncIteration
        if self._index:
            text = f"{self.description} has {self._index:,}, and number {self._first:,}, from 0, is the first wanted"
        elif self.bad:
            first = "; ".join(map(str, self.problems))
            text = f"none of the {self.bad:,} rows of {self.description} is one. {first}"
        else:
            text = f"{self.description} is empty; expected at least one row with a sentence about a person"
        raise InputError(f"no personas: {text}")

    async def aclose(self) -> None:
        await self._rows.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


PersonaRow: TypeAlias = str | Persona | Mapping[str, Any]
"""A text, a persona, or a row with the key `persona` or `text`."""


class PersonaDataset(Protocol):
    """A Hugging Face dataset, map-style or streamed."""

    def select_columns(self, column_names: Any, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


PersonaSource: TypeAlias = (
    str | PathLike[str] | Persona | Iterable[PersonaRow] | AsyncIterable[PersonaRow] | PersonaDataset
)
"""A path, one persona, an iterable or async iterable of rows, or a Hugging Face dataset."""

_ROWS_AT_ONCE = 64
"""Rows per batch of a reading thread, and for iterables between checkpoints of the event loop."""

_EXPECTED = "a path, an iterable or async iterable of texts, or a Hugging Face dataset"


def open_personas(source: PersonaSource | None = None, *, column: str | None = None) -> Personas:
    """Open a lazy iterator of personas; of the package's personas if `source` is None.

    `column` holds a row's persona, by default `persona` or `text`. Bad rows are counted (`Personas.bad`). Threads read
    files and datasets; the event loop reads iterables.

    Raises:
        InputError: There is no such file, its suffix is unknown, or `source` has an unsupported type. An empty source or a
            missing column is reported on reading.
    """
    if source is None:
        return Personas(_iterate(shipped()), "the shipped personas")
    if isinstance(source, str | PathLike):
        file = PersonaFile(source, column=column)
        return Personas(_read_in_thread(file.rows()), f"the file {str(file.path)!r}")
    if isinstance(source, Persona):
        return Personas(_iterate((source,)), "one persona")
    kind = type(source).__name__
    if isinstance(source, Mapping | bytes | bytearray) or hasattr(source, "columns"):
        hint = {"DatasetDict": "; choose a split, such as personas['train']", "DataFrame": "; choose a column"}
        raise InputError(f"cannot read personas from a {kind}; expected {_EXPECTED}{hint.get(kind, '')}")
    if hasattr(source, "column_names") and hasattr(source, "select_columns"):
        return Personas(_read_in_thread(_dataset_rows(source, column)), f"a Hugging Face {kind}")
    if isinstance(source, set | frozenset):
        # Sets are unordered, and a run's order must be reproducible.
        ordered = sorted(cast("set[object]", source), key=repr)
        return Personas(_iterate(ordered, column), f"a {kind}, sorted")
    if isinstance(source, AsyncIterable | Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        description = "an async iterable" if isinstance(source, AsyncIterable) else "an iterable"
        return Personas(_iterate(cast("Iterable[object]", source), column), f"{description} ({kind})")
    raise InputError(f"cannot read personas from a {kind}; expected {_EXPECTED}")


def _dataset_rows(dataset: Any, requested: str | None) -> Generator[Row, None, None]:
    # A streamed dataset may not know its columns before reading.
    if dataset.column_names is not None:
        column = require_column("the dataset", dataset.column_names, requested)
        for number, row in enumerate(dataset.select_columns([column]), start=1):
            yield read_row({"persona": row[column]}, number)
    else:
        for number, row in enumerate(dataset, start=1):
            yield read_row(row, number, requested)


async def _iterate(
    source: Iterable[object] | AsyncIterable[object], column: str | None = None
) -> AsyncGenerator[Row, None]:
    if isinstance(source, AsyncIterable):
        number = 0
        async for value in source:
            number += 1
            yield read_row(value, number, column)
        return
    for number, value in enumerate(source, start=1):
        if number % _ROWS_AT_ONCE == 0:
            await checkpoint()
        yield read_row(value, number, column)


async def _read_in_thread(rows: Generator[Row, None, None]) -> AsyncGenerator[Row, None]:
    try:
        # Abandoned on cancellation: a slow disk must not delay the end of a run.
        while batch := await anyio.to_thread.run_sync(list, islice(rows, _ROWS_AT_ONCE), abandon_on_cancel=True):
            for row in batch:
                yield row
    finally:
        # An abandoned thread may still run the generator, which raises ValueError here.
        with suppress(ValueError):
            rows.close()
