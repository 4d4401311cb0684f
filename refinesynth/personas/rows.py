"""One row of a source: a persona with what stands beside it, or why it is none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from typing import cast

import orjson
from pydantic import JsonValue, ValidationError

from refinesynth.errors import InputError
from refinesynth.text.jsontext import write_json
from refinesynth.trajectory import Persona, explain

COLUMNS = ("persona", "text")
"""Names under which a row may hold its persona; the first that is there counts."""

REPORTED_ROWS = 5
"""How many bad rows are kept with their reasons; the others are only counted."""

WRAPPER = "json"
"""Name of a column that may hold the whole row, as an object or as JSON text, where there is none of `COLUMNS`."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no persona. It is counted and reported, and the run goes on."""

    line: int
    """Line of the file, or position among the rows, from 1."""
    reason: str
    """What is wrong with it, without its content."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Record:
    """A whole row: the persona, and the other fields, such as Persona Hub's domains."""

    line: int
    """Line of the file, or position among the rows, from 1."""
    persona: Persona
    fields: Mapping[str, JsonValue]
    """Everything else that the row holds, as it is; untrusted, and not checked to be JSON."""

    def as_json(self) -> bytes:
        """The row as one line of JSONL, without its end: `persona` first, the other fields after it in their order.

        Fields that cannot be written as JSON are left out, all of them: nested too deep, or in a circle.
        """
        try:
            return write_json(
                {"persona": self.persona.text, **self.fields}, default=str, option=orjson.OPT_NON_STR_KEYS
            )
        except (TypeError, ValueError, RecursionError):
            return write_json({"persona": self.persona.text})


Row = Record | BadRow
"""What a source gives, in its order."""


def read_row(value: object, line: int, column: str | None = None) -> Row:
    """A row from a text, a `Persona`, or a mapping with the key `persona` or `text`; never raises.

    With a `column` the persona is there and nowhere else. Fields without a name, which a trailing comma in a CSV header
    makes, are left out.
    """
    if column is not None and isinstance(value, Mapping):
        named = {str(key): at for key, at in cast("Mapping[object, object]", value).items()}
        there = find_column(named, column)
        if there is None:
            return BadRow(line, f"has no key {column!r}; {_others(named)}")
        others = {key: at for key, at in named.items() if key not in (there, *COLUMNS, WRAPPER)}
        value = {"persona": named[there], **others}
    fields: dict[str, JsonValue] = {}
    if isinstance(value, Mapping):
        found = _unwrapped(cast("Mapping[object, object]", value))
        if found is None:
            return BadRow(
                line,
                f"has neither of the keys {' and '.join(COLUMNS)}; {_others(cast('Mapping[object, object]', value))}",
            )
        row, key = found
        value = row[key]
        # A column `persona` beside the one that is read would be taken for it in the output.
        left_out = (key, "persona", None, "")
        fields = {str(name): cast("JsonValue", at) for name, at in row.items() if name not in left_out}
    if isinstance(value, Persona):
        return Record(line, value, fields)
    if not isinstance(value, str):
        return BadRow(line, f"a persona is text, this is {type(value).__name__}")
    try:
        return Record(line, Persona(text=value), fields)
    except ValidationError as error:
        return BadRow(line, explain(error) if value.strip() else "is blank")


def _unwrapped(row: Mapping[object, object]) -> tuple[Mapping[object, object], str] | None:
    """The row and the key of its persona; a row that is itself in a field of another, whole, comes out of it."""
    key = next((name for name in COLUMNS if name in row), None)
    within = row[key or WRAPPER] if key is not None or WRAPPER in row else None
    if isinstance(within, str) and within.lstrip().startswith("{"):
        try:
            within = orjson.loads(within)
        except orjson.JSONDecodeError:
            within = None
    if isinstance(within, Mapping):
        inner = cast("Mapping[object, object]", within)
        inner_key = next((name for name in COLUMNS if isinstance(inner.get(name), str)), None)
        if inner_key is not None:
            outer = {name: at for name, at in row.items() if name != (key or WRAPPER)}
            return {**outer, **inner}, inner_key
    return None if key is None else (row, key)


def find_column(names: Iterable[str], wanted: str | None = None) -> str | None:
    """The column that holds personas, in any case and with blanks around it; None if there is none."""
    folded = {name.strip().casefold(): name for name in reversed(list(names))}
    looked_for = (*COLUMNS, WRAPPER) if wanted is None else (wanted.strip().casefold(),)
    return next((folded[name] for name in looked_for if name in folded), None)


def no_column(what: object, names: Sequence[str], wanted: str | None) -> InputError:
    """That none of a table's columns is the one for personas."""
    expected = "persona or text" if wanted is None else repr(wanted)
    return InputError(f"{what} has the columns {list(names)[:20]}; expected one of them to be {expected}. {_NAME_IT}")


_NAME_IT = "Name the column of the personas with --column (column= in Python)"


def _others(names: Iterable[object]) -> str:
    """The keys that a row has instead, the first few, and what to do about them."""
    found = ", ".join(repr(str(name)[:40]) for name in islice(names, 5))
    return f"it has {found or 'none'}. {_NAME_IT}"


def shipped() -> tuple[Persona, ...]:
    """All personas in the package, about 300, always in the same order."""
    lines = (files("refinesynth.personas") / "shipped.jsonl").read_bytes().splitlines()
    return tuple(Persona.model_validate(orjson.loads(line)) for line in lines)
