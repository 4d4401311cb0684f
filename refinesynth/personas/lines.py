"""Lines of a file, plain or compressed, of which even an endless one does not fill the memory."""

from pathlib import Path
from typing import BinaryIO

from refinesynth.errors import InputError
from refinesynth.files.compressed import refuse_other_encodings

MAX_LINE_BYTES = 1 << 20
"""Longest line that is looked at, in bytes, unless told otherwise; of a longer one nothing is kept."""

COMPRESSIONS = (".gz", ".zst")
"""Suffixes of compressed files that can be read."""

BOM = b"\xef\xbb\xbf"

MOST_JSON = 256 * 1024 * 1024
"""Longest JSON file that is read, in bytes: it is read whole."""


class Lines:
    """Iterates over lines without the line feed that ends them; a line that is too long comes empty, with `too_long`
    set.

    Raises UnicodeError at once where the file is in another encoding than UTF-8 that can be told.

    `stop` may be called from another thread: the iteration ends within one read.
    """

    def __init__(self, file: BinaryIO, *, most: int = MAX_LINE_BYTES) -> None:
        self._file = file
        self._most = most
        self._stopped = False
        self.number = 0
        """Of the last line, from 1."""
        self.too_long = False
        """Whether a line since this was last reset was longer than that."""

    def __iter__(self) -> "Lines":
        return self

    def __next__(self) -> bytes:
        line = self._file.readline(self._most + 1)
        if not line or self._stopped:
            raise StopIteration
        self.number += 1
        if self.number == 1:
            refuse_other_encodings(line)
        if len(line) > self._most and not line.endswith(b"\n"):
            self.too_long = True
            while not self._stopped and line and not line.endswith(b"\n"):
                line = self._file.readline(self._most)
            return b""
        if self.number == 1:
            line = line.removeprefix(BOM)
        return line.removesuffix(b"\n")

    def stop(self) -> None:
        """End the iteration soon."""
        self._stopped = True


def read_whole(file: BinaryIO, path: Path) -> bytes:
    """A file of JSON, without a byte order mark.

    Raises:
        InputError: It is longer than `MOST_JSON`.
        UnicodeError: It is in another encoding than UTF-8 that can be told.
    """
    whole = file.read(MOST_JSON + 1)
    if len(whole) > MOST_JSON:
        raise InputError(
            f"{str(path)!r} has more than {MOST_JSON:,} bytes, and JSON is read whole; write it as JSONL, one row on each line"
        )
    refuse_other_encodings(whole[:MAX_LINE_BYTES])
    return whole.removeprefix(BOM)
