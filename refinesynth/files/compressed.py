"""Reader of plain and compressed files and their lines, in bounded memory; a truncated file is an error."""

import codecs
import gzip
import zlib
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from refinesynth.errors import InputError

COMPRESSIONS = frozenset({".gz"})
"""Suffixes of compressed files."""


def open_binary(path: Path) -> BinaryIO:
    """Open a file for buffered reading, decompressed by its suffix.

    Raises:
        OSError: The file cannot be opened. Reading raises EOFError for a truncated file, and zlib.error or OSError for
            invalid data.
    """
    return cast("BinaryIO", gzip.open(path, "rb")) if path.suffix.lower() in COMPRESSIONS else path.open("rb")


@contextmanager
def open_compressed(path: Path) -> Generator[BinaryIO]:
    """Open a plain or compressed file by its suffix. Raises `InputError` if opening or reading fails."""
    try:
        with open_binary(path) as file:
            yield file
    except (OSError, EOFError, UnicodeError, zlib.error) as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}") from error


def open_jsonl(path: Path) -> AbstractContextManager[BinaryIO]:
    """Open a JSONL file. Raises OSError, and `InputError` for a compressed file that cannot be read."""
    return open_compressed(path) if path.suffix.lower() in COMPRESSIONS else path.open("rb")


_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
"""Byte order marks; UTF-32 comes first, because its little-endian mark begins with UTF-16's."""


def refuse_other_encodings(start: bytes) -> None:
    """Refuse a file in another encoding than UTF-8 by its first bytes, up to the first line feed.

    Single-byte encodings such as Windows-1252 are not detected: they look like UTF-8 with errors in some lines.

    Raises:
        UnicodeError: The file is UTF-16 or UTF-32, with or without a byte order mark, or no text.
    """
    name = next((name for mark, name in _BYTE_ORDER_MARKS if start.startswith(mark)), None)
    if name is None and b"\0" in start:
        raise UnicodeError(
            "there are NUL bytes in its first line, so it is UTF-16, UTF-32 or no text; expected UTF-8. "
            "`iconv -f UTF-16LE -t UTF-8` converts UTF-16"
        )
    if name is not None:
        raise UnicodeError(f"it is {name}; expected UTF-8. `iconv -f {name} -t UTF-8` converts it")


_BOM = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8, which some editors write."""


def bounded_lines(file: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each line with its line feed; of a line over `max_bytes` bytes, the first `max_bytes` + 1.

    Raises:
        UnicodeError: `refuse_other_encodings` refuses the first line.
    """
    number = 0
    while line := file.readline(max_bytes + 1):
        number += 1
        if number == 1:
            refuse_other_encodings(line)
        yield number, line.removeprefix(_BOM) if number == 1 and len(line) <= max_bytes else line
        while len(line) >= max_bytes and not line.endswith(b"\n"):
            line = file.readline(max_bytes)
