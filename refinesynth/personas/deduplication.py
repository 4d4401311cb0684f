"""Personas without their near-duplicates. Section 7 of the method."""

from array import array
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from refinesynth.errors import InputError
from refinesynth.files.atomic_write import output_file, refuse_existing
from refinesynth.personas.near_duplicates import NearDuplicates, Similar
from refinesynth.personas.persona_records import Records, RecordSource
from refinesynth.text.json_reader import write_json


@dataclass(frozen=True)
class DedupReport:
    output: Path
    read: int
    """Rows with a persona."""
    bad: int
    """Rows without a persona; they are not in the output."""
    problems: tuple[str, ...]
    kept: int
    exact: int
    near: int
    index_bytes: int


def dedup(
    source: RecordSource | None,
    output: str | PathLike[str],
    *,
    column: str | None = None,
    similar: Similar | None = None,
    removed: str | PathLike[str] | None = None,
    overwrite: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> DedupReport:
    """Write the rows of `source` without near-duplicates; the first of several is kept.

    The output is JSONL and appears whole or not at all. The same input and settings give the same bytes; deduplicating
    the output again removes nothing more. Rows are read once and not held in memory.

    Args:
        source: Personas to read; the ones that ship with the package if None.
        column: Column or key of a row's persona; `persona` or `text` if None.
        output: File to write, compressed if its name ends in `.gz` or `.zst`.
        similar: Definition of a near-duplicate; Persona Hub's settings if None.
        removed: File that lists each row left out, the row that it repeats, and their similarity. Row numbers begin at 1.
        overwrite: Replace existing files.
        on_progress: Called now and then with the number of rows read.

    Raises:
        InputError: A file cannot be read or written, exists, or holds no persona; a setting is out of range.
        ConfigurationError: datasketch is not installed.
    """
    target, listing = Path(output), None if removed is None else Path(removed)
    for path in filter(None, (target, listing)):
        check_output(path, source, overwrite=overwrite)
    if target == listing:
        raise InputError(f"{str(target)!r} cannot hold both what is kept and what is removed; name two files")
    records = Records(source, column=column, on_progress=on_progress)
    index = NearDuplicates(similar)
    admitted = array("Q")
    exact = 0
    with ExitStack() as files:
        kept = files.enter_context(output_file(target, overwrite=overwrite))
        left_out = None if listing is None else files.enter_context(output_file(listing, overwrite=overwrite))
        for record in records:
            twin = index.admit(record.persona.text)
            if twin is None:
                kept.write(record.as_json() + b"\n")
                admitted.append(records.read)
                continue
            exact += twin.exact
            if left_out is not None:
                by = "exact" if twin.exact else "near"
                row = {"persona": record.persona.text, "row": records.read, "of": admitted[twin.of], "by": by}
                left_out.write(write_json({**row, "similarity": round(twin.similarity, 4)}) + b"\n")
        records.check()
    return DedupReport(
        output=target,
        read=records.read,
        bad=records.bad,
        problems=records.problems,
        kept=len(index),
        exact=exact,
        near=records.read - len(index) - exact,
        index_bytes=index.bytes_held,
    )


def check_output(path: Path, source: RecordSource | None, *, overwrite: bool) -> None:
    """Raise InputError if `path` is a folder, exists without `overwrite`, or is a file of `source`."""
    refuse_existing(path, overwrite=overwrite)
    given: Iterable[object] = (
        (Path(source),) if isinstance(source, str | PathLike) else source if isinstance(source, list | tuple) else ()
    )
    for each in given:
        if isinstance(each, PathLike) and path.exists() and Path(each).exists() and path.samefile(Path(each)):
            raise InputError(f"{str(path)!r} is what is read, and would be replaced; name another output")
