"""Personas without their near-duplicates. Section 7 of the method."""

from array import array
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from refinesynth.errors import InputError
from refinesynth.files.atomic_write import output_file, refuse_existing
from refinesynth.personas.near import NearDuplicates, Similar
from refinesynth.personas.records import Records, RecordSource
from refinesynth.text.jsontext import write_json


@dataclass(frozen=True)
class DedupReport:
    """What `dedup` did."""

    output: Path
    read: int
    """Rows that were personas."""
    bad: int
    """Rows that were none; they are not in the output."""
    problems: tuple[str, ...]
    """The first few of these."""
    kept: int
    exact: int
    """Left out: the words of an earlier persona in its order."""
    near: int
    """Left out: near-duplicates."""
    index_bytes: int
    """Memory that the index took at the end."""


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
    """Write the personas of `source`, each with its other fields, without near-duplicates; the first of several is
    kept.

    The output is JSONL, compressed if its name ends in `.gz` or `.zst`; it appears whole or not at all. The same input
    and settings give the same bytes, and running it on its own output leaves nothing more out. Rows are read once and
    not held.

    Args:
        source: What to read; the personas that ship with the package if None.
        column: Column or key of a row's persona; `persona` or `text` if None.
        output: File to write.
        similar: What counts as a near-duplicate; Persona Hub's settings if None.
        removed: File to list what was left out: its row, the row that it repeats, and how similar they are. Rows are
            numbered among those that are personas, from 1.
        overwrite: Replace `output` and `removed` if they are there.
        on_progress: Called now and then with how many rows were read.

    Raises:
        InputError: A file cannot be read, holds no persona, cannot be written or is there; a setting makes no sense.
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
    """Complain before anything is read.

    Raises:
        InputError: `path` is a folder, exists and `overwrite` is false, or is one of the files of `source`.
    """
    refuse_existing(path, overwrite=overwrite)
    given: Iterable[object] = (
        (Path(source),) if isinstance(source, str | PathLike) else source if isinstance(source, list | tuple) else ()
    )
    for each in given:
        if isinstance(each, PathLike) and path.exists() and Path(each).exists() and path.samefile(Path(each)):
            raise InputError(f"{str(path)!r} is what is read, and would be replaced; name another output")
