"""Lines of a file, plain or compressed, of which even an endless one does not fill the memory."""

from typing import BinaryIO

from refinesynth.files.encoding import refuse_other_encodings

MAX_LINE_BYTES = 1 << 20
"""Longest line that is looked at, in bytes; of a longer one nothing is kept."""

COMPRESSIONS = (".gz", ".zst")
"""Suffixes of compressed files that can be read."""

BOM = b"\xef\xbb\xbf"


class Lines:
    """Iterates over lines without the line feed that ends them; a line that is too long comes empty, with `too_long`
    set.

    Raises UnicodeError at once where the file is in another encoding than UTF-8 that can be told.

    `stop` may be called from another thread: the iteration ends within one read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stopped = False
        self.number = 0
        """Of the last line, from 1."""
        self.too_long = False
        """Whether a line since this was last reset was longer than `MAX_LINE_BYTES`."""

    def __iter__(self) -> "Lines":
        return self

    def __next__(self) -> bytes:
        line = self._file.readline(MAX_LINE_BYTES + 1)
        if not line or self._stopped:
            raise StopIteration
        self.number += 1
        if self.number == 1:
            refuse_other_encodings(line)
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            self.too_long = True
            while not self._stopped and line and not line.endswith(b"\n"):
                line = self._file.readline(MAX_LINE_BYTES)
            return b""
        if self.number == 1:
            line = line.removeprefix(BOM)
        return line.removesuffix(b"\n")

    def stop(self) -> None:
        """End the iteration soon."""
        self._stopped = True
