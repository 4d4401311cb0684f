"""Personas in Parquet files, by pyarrow (extra `parquet`)."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from refinesynth.errors import ConfigurationError, InputError
from refinesynth.personas.rows import COLUMNS, BadRow, Row, find_column, read_value

_ROWS_AT_ONCE = 256


def check_installed() -> None:
    """See that pyarrow is there.

    Raises:
        ConfigurationError: It is not.
    """
    if find_spec("pyarrow") is None:
        raise ConfigurationError("reading Parquet needs the package pyarrow: pip install 'refinesynth[parquet]'")


def read_parquet(file: BinaryIO, path: Path) -> Iterator[Row]:
    """The rows of one column, some hundred in memory at a time.

    Raises:
        InputError: It is no Parquet file, or has no text column `persona` or `text`.
    """
    # Typed as Any: pyarrow is optional, and has no types.
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    try:
        table = parquet.ParquetFile(file)
        column = find_column(table.schema_arrow.names)
        if column is None:
            raise InputError(
                f"{str(path)!r} has the columns {table.schema_arrow.names[:20]}; expected one of them to be "
                f"{' or '.join(COLUMNS)}"
            )
        number = 0
        for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[column]):
            for cell in batch.column(0):
                number += 1
                yield _read_cell(cell, number)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{str(path)!r} cannot be read as Parquet: {error}") from error


def _read_cell(cell: Any, number: int) -> Row:
    try:
        return read_value(cell.as_py(), number)
    except UnicodeDecodeError as error:
        return BadRow(number, f"is not UTF-8 at byte {error.start}")
