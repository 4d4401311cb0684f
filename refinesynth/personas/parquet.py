"""Personas in Parquet files, by pyarrow (extra `parquet`)."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from refinesynth.errors import InputError
from refinesynth.personas.rows import BadRow, find_column, no_column

_ROWS_AT_ONCE = 256


def row_count(path: Path) -> int | None:
    """How many rows a Parquet file says that it has; None if it is none."""
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    try:
        return int(parquet.read_metadata(path).num_rows)
    except (arrow.ArrowException, OSError):
        return None


def read_parquet(file: BinaryIO, path: Path, wanted: str | None = None) -> Iterator[tuple[int, object] | BadRow]:
    """The rows' numbers and fields, some hundred in memory at a time; of columns of one name none but the persona.

    Raises:
        InputError: It is no Parquet file, or has no column for personas.
    """
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
        for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=read):
            for cells in zip(*batch.columns, strict=True):
                number += 1
                yield _read_row(dict(zip(batch.schema.names, cells, strict=True)), column, number)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{str(path)!r} cannot be read as Parquet: {error}") from error


def _read_row(cells: dict[str, Any], column: str, number: int) -> tuple[int, object] | BadRow:
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
