"""Records in files: one JSON object a line, or a list of them, compressed or not; and where each stands."""

import zlib
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Final

from zstandard import ZstdError

from refinesynth.errors import InputError
from refinesynth.files.compressed import open_binary, refuse_other_encodings
from refinesynth.personas.lines import MOST_JSON
from refinesynth.text.jsontext import load_json

TRAJECTORIES = "trajectories.jsonl"
"""What a run folder keeps its accepted trajectories in."""

_BOM = b"\xef\xbb\xbf"
"""What some editors write before UTF-8."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""Longest record on a line, in bytes."""

COMPRESSIONS = {".gz": ".gz", ".zst": ".zst", ".zstd": ".zst"}


def records(path: Path, torn: list[str]) -> Generator[tuple[object, str]]:
    """Every record of a file, with `file:line`; read line by line, blank lines left out.

    A last line that is cut off (no newline behind it, and no JSON), as a run that was killed may leave one, is left out
    and its place appended to `torn`; not so where it is all that the file holds, which then is something else.

    A file that begins as a list is read whole, and is each of its items.

    Raises:
        InputError: The file cannot be read, or another line is not JSON.
    """
    some = False
    try:
        with open_binary(path, COMPRESSIONS.get(path.suffix)) as lines:
            # Of a bounded length: a few kilobytes of a compressed file can be gigabytes of one line.
            for number, found in enumerate(iter(partial(lines.readline, MOST_BYTES + 1), b""), start=1):
                if number == 1:
                    refuse_other_encodings(found)
                line = found.removeprefix(_BOM) if number == 1 else found
                if not line.strip():
                    continue
                where = f"{path}:{number}"
                if not some and line.lstrip().startswith(b"["):
                    yield from _listed(line + lines.read(MOST_JSON + 1 - len(line)), path)
                    return
                if len(found) > MOST_BYTES:
                    raise InputError(
                        f"{where}: this line is longer than {MOST_BYTES:,} bytes; expected one record a line. Split or remove it"
                    )
                try:
                    yield load_json(line), where
                    some = True
                except ValueError as error:
                    if some and not line.endswith(b"\n"):
                        torn.append(where)
                        return
                    raise InputError(
                        f"{where}: this line is not JSON ({error}); expected one object a line (JSONL), or one list of them. "
                        "Fix or remove the line"
                    ) from error
    except (OSError, EOFError, UnicodeError, zlib.error, ZstdError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}") from error


def _listed(whole: bytes, path: Path) -> Generator[tuple[object, str]]:
    """The items of a file that is one list.

    Raises:
        InputError: It is no JSON, or too long to be read whole.
    """
    if len(whole) > MOST_JSON:
        raise InputError(
            f"{str(path)!r} is a JSON list of more than {MOST_JSON:,} bytes, which is read whole; write it as JSONL, one object on "
            "each line"
        )
    try:
        items = load_json(whole)
    except ValueError as error:
        raise InputError(
            f"{str(path)!r} begins as a JSON list and is not one ({error}); expected a whole list, or one object a line (JSONL). "
            "Fix the file, or write it as JSONL"
        ) from error
    yield from ((item, f"{path}: item {number}") for number, item in enumerate(items, start=1))
