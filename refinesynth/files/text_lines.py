"""Lines of a file, plain or compressed, in bounded memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from refinesynth.errors import InputError
from refinesynth.files.compressed import refuse_other_encodings

_BOM = b"\xef\xbb\xbf"
"""Byte order mark that some editors write before UTF-8."""
_MOST_JSON = 256 * 1024 * 1024
"""Longest JSON document that is read, in bytes."""


def bounded_lines(file: BinaryIO, most: int) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each line, with its line feed; of a longer line the first `most` + 1 bytes.

    Raises:
        UnicodeError: The file is recognizably in another encoding than UTF-8.
    """
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if number == 1:
            refuse_other_encodings(line)
        yield number, line.removeprefix(_BOM) if number == 1 and len(line) <= most else line
        while len(line) >= most and not line.endswith(b"\n"):
            line = file.readline(most)


def read_document(file: BinaryIO, path: Path, start: bytes = b"") -> bytes:
    """Read a JSON file without a byte order mark; `start` was read from it before.

    Raises:
        InputError: It is longer than 256 MiB.
        UnicodeError: It is recognizably in another encoding than UTF-8.
    """
    whole = start + file.read(_MOST_JSON + 1 - len(start))
    if len(whole) > _MOST_JSON:
        raise InputError(
            f"{str(path)!r} has more than {_MOST_JSON:,} bytes, and JSON is read whole; write it as JSONL, one object on each line"
        )
    refuse_other_encodings(whole[: 1 << 20])
    return whole.removeprefix(_BOM)
