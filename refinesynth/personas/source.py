"""Opens personas from every kind of source: a path, an iterable, an async iterable, a Hugging Face dataset."""

from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from itertools import islice
from os import PathLike
from typing import Any, Protocol, TypeAlias, cast

import anyio.to_thread
from anyio.lowlevel import checkpoint

from refinesynth.errors import InputError
from refinesynth.personas.files import PersonaFile
from refinesynth.personas.rows import Row, find_column, no_column, read_row, read_row_of
from refinesynth.personas.shipped import shipped
from refinesynth.personas.stream import Personas
from refinesynth.trajectory import Persona

PersonaRow: TypeAlias = str | Persona | Mapping[str, Any]
"""A text, a persona, or a row with the key `persona` or `text`."""


class PersonaDataset(Protocol):
    """A Hugging Face dataset, map-style or streamed."""

    def select_columns(self, column_names: Any, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


PersonaSource: TypeAlias = (
    str | PathLike[str] | Persona | Iterable[PersonaRow] | AsyncIterable[PersonaRow] | PersonaDataset
)
"""A path (also as text), one persona, an iterable or async iterable of rows, a Hugging Face dataset among them."""

_ROWS_AT_ONCE = 64
"""Rows that a thread reads before it comes back, and that an iterable gives before other tasks have their turn."""

_EXPECTED = "a path, an iterable or async iterable of texts, or a Hugging Face dataset"


def open_personas(source: PersonaSource | None = None, *, column: str | None = None) -> Personas:
    """Personas from `source`, read lazily; those that ship with the package if it is None.

    `column` names where they stand in a row of a file, a dataset or an iterable, if not in `persona` or `text`.

    A row that is no persona is counted (`Personas.bad`), for every kind of fault. Files and datasets are read in a
    thread; an iterable is asked on the event loop, row by row, and a blocking one blocks it.

    Raises:
        InputError: There is no such file, its suffix is unknown, or `source` is nothing to read personas from. That it
            is empty, or lacks a column for personas, shows when it is read.
    """
    if source is None:
        personas = shipped()
        return Personas(_iterated(personas), "the shipped personas", count=lambda: len(personas))
    if isinstance(source, str | PathLike):
        file = PersonaFile(source, column=column)
        return Personas(_threaded(file.rows()), f"the file {str(file.path)!r}", stop=file.stop, count=file.at_most)
    if isinstance(source, Persona):
        return Personas(_iterated((source,)), "one persona", count=lambda: 1)
    return _open_object(source, column)


def _open_object(source: Any, column: str | None) -> Personas:
    kind = type(source).__name__
    if isinstance(source, Mapping | bytes | bytearray) or hasattr(source, "columns"):
        hint = {"DatasetDict": "; choose a split, such as personas['train']", "DataFrame": "; choose a column"}
        raise InputError(f"cannot read personas from a {kind}; expected {_EXPECTED}{hint.get(kind, '')}")
    if hasattr(source, "column_names") and hasattr(source, "select_columns"):
        return Personas(
            _threaded(_dataset_rows(source, column)), f"a Hugging Face {kind}", count=lambda: _length(source)
        )
    if isinstance(source, set | frozenset):
        # Sets have no order of their own, and a run's order must be the same every time.
        ordered = sorted(cast("set[object]", source), key=repr)
        return Personas(_iterated(ordered, column), f"a {kind}, sorted", count=lambda: len(ordered))
    if isinstance(source, AsyncIterable):
        return Personas(_awaited(cast("AsyncIterable[object]", source), column), f"an async iterable ({kind})")
    if isinstance(source, Iterable):
        iterable = cast("Iterable[object]", source)
        return Personas(_iterated(iterable, column), f"an iterable ({kind})", count=lambda: _length(iterable))
    raise InputError(f"cannot read personas from a {kind}; expected {_EXPECTED}")


def _length(source: object) -> int | None:
    try:
        return len(source) if isinstance(source, Sized) else None
    except (TypeError, NotImplementedError):
        # It has the method, and no length: a loader over a stream.
        return None


def _dataset_rows(dataset: Any, wanted: str | None) -> Generator[Row, None, None]:
    # A streamed dataset may not know its columns before it is read.
    if dataset.column_names is not None:
        column = find_column(dataset.column_names, wanted)
        if column is None:
            raise no_column("the dataset", dataset.column_names, wanted)
        for number, row in enumerate(dataset.select_columns([column]), start=1):
            yield read_row({column.strip().casefold() if wanted is None else "persona": row[column]}, number)
    else:
        for number, row in enumerate(dataset, start=1):
            yield read_row_of(row, number, wanted)


async def _iterated(source: Iterable[object], column: str | None = None) -> AsyncGenerator[Row, None]:
    for number, value in enumerate(source, start=1):
        if number % _ROWS_AT_ONCE == 0:
            await checkpoint()
        yield read_row_of(value, number, column)


async def _awaited(source: AsyncIterable[object], column: str | None) -> AsyncGenerator[Row, None]:
    number = 0
    async for value in source:
        number += 1
        yield read_row_of(value, number, column)


async def _threaded(rows: Generator[Row, None, None]) -> AsyncGenerator[Row, None]:
    try:
        # Abandoned on cancellation, so that a slow disk cannot hold up the end of a run.
        while batch := await anyio.to_thread.run_sync(_take, rows, abandon_on_cancel=True):
            for row in batch:
                yield row
    finally:
        # An abandoned thread is still in there, and closes it when it comes out.
        with suppress(ValueError):
            rows.close()


def _take(rows: Iterator[Row]) -> list[Row]:
    return list(islice(rows, _ROWS_AT_ONCE))
