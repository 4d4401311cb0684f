"""One row of a source: a persona with its other fields, or the reason why there is none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from typing import cast

import orjson
from pydantic import JsonValue, ValidationError

from refinesynth.errors import InputError
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import Persona, explain

COLUMNS = ("persona", "text")

REPORTED_ROWS = 5
"""Number of bad rows that are kept with their reasons."""

WRAPPER = "json"
"""Column that may hold the whole row, as an object or as JSON text, if there is none of `COLUMNS`."""


@dataclass(frozen=True, slots=True)
class BadRow:
    line: int
    """Line of the file, or position among the rows, from 1."""
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
        """The row as one JSON line, `persona` first. All other fields are left out if one cannot be written as JSON."""
        try:
            return write_json(
                {"persona": self.persona.text, **self.fields}, default=str, option=orjson.OPT_NON_STR_KEYS
            )
        except (TypeError, ValueError, RecursionError):
            return write_json({"persona": self.persona.text})


Row = PersonaRecord | BadRow


def read_row(value: object, line: int, column: str | None = None) -> Row:
    """Read a text, a `Persona`, or a mapping with the key `persona` or `text`; never raises.

    With `column`, only that key is read. Fields without a name (a trailing comma in a CSV header) are left out.
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
        keys = cast("Mapping[object, object]", value)
        found = _unwrapped(keys)
        if found is None:
            return BadRow(line, f"has neither of the keys {' and '.join(COLUMNS)}; {_others(keys)}")
        row, key = found
        value = row[key]
        # A column `persona` beside the one that is read would be taken for it in the output.
        left_out = (key, "persona", None, "")
        fields = {str(name): cast("JsonValue", at) for name, at in row.items() if name not in left_out}
    if isinstance(value, Persona):
        return PersonaRecord(line, value, fields)
    if not isinstance(value, str):
        return BadRow(line, f"a persona is text, this is {type(value).__name__}")
    try:
        return PersonaRecord(line, Persona(text=value), fields)
    except ValidationError as error:
        return BadRow(line, explain(error) if value.strip() else "is blank")


def _unwrapped(row: Mapping[object, object]) -> tuple[Mapping[object, object], str] | None:
    """The row and the key of its persona; a row inside a field of another row is unwrapped."""
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
    """The column that holds personas, ignoring case and surrounding blanks."""
    folded = {name.strip().casefold(): name for name in reversed(list(names))}
    looked_for = (*COLUMNS, WRAPPER) if wanted is None else (wanted.strip().casefold(),)
    return next((folded[name] for name in looked_for if name in folded), None)


def no_column(what: object, names: Sequence[str], wanted: str | None) -> InputError:
    """Error about a table without a column for personas."""
    expected = "persona or text" if wanted is None else repr(wanted)
    return InputError(f"{what} has the columns {list(names)[:20]}; expected one of them to be {expected}. {_NAME_IT}")


_NAME_IT = "Name the column of the personas with --column (column= in Python)"


def _others(names: Iterable[object]) -> str:
    found = ", ".join(repr(str(name)[:40]) for name in islice(names, 5))
    return f"it has {found or 'none'}. {_NAME_IT}"


def shipped() -> tuple[Persona, ...]:
    """All personas of the package, about 300, always in the same order."""
    lines = (files("refinesynth.personas") / "shipped.jsonl").read_bytes().splitlines()
    return tuple(Persona.model_validate(orjson.loads(line)) for line in lines)
