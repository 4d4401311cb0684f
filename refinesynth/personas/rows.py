"""One row of a source: a persona, or why it is none."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import ValidationError

from refinesynth.trajectory import Persona, explain

COLUMNS = ("persona", "text")
"""Names under which a row may hold its persona; the first that is there counts."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no persona. It is counted and reported, and the run goes on."""

    line: int
    """Line of the file, or position among the rows, from 1."""
    reason: str
    """What is wrong with it, without its content."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


Row = Persona | BadRow
"""What a source gives, in its order."""


def read_value(value: object, line: int) -> Row:
    """A persona from a text, a `Persona` or a mapping with the key `persona` or `text`; never raises."""
    if isinstance(value, Mapping):
        row = cast("Mapping[object, object]", value)
        key = next((name for name in COLUMNS if name in row), None)
        if key is None:
            return BadRow(line, f"has neither of the keys {' and '.join(COLUMNS)}")
        value = row[key]
    if isinstance(value, Persona):
        return value
    if not isinstance(value, str):
        return BadRow(line, f"a persona is text, this is {type(value).__name__}")
    try:
        return Persona(text=value)
    except ValidationError as error:
        return BadRow(line, explain(error) if value.strip() else "is blank")


def read_text(data: bytes, line: int) -> Row:
    """A persona from a line of plain text; never raises."""
    try:
        return read_value(data.decode(), line)
    except UnicodeDecodeError as error:
        return BadRow(line, f"is not UTF-8 at byte {error.start}")


def find_column(names: Iterable[str]) -> str | None:
    """The column that holds personas, whatever its case and the blanks around it; None if there is none."""
    folded = {name.strip().casefold(): name for name in reversed(list(names))}
    return next((folded[name] for name in COLUMNS if name in folded), None)
