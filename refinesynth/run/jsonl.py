"""JSONL files: append of whole lines, lazy reading of complete lines, and removal of a half-written end."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from refinesynth.errors import RunFolderError, StorageError
from refinesynth.files.atomic_write import open_to_append
from refinesynth.files.compressed import open_jsonl

_BLOCK_BYTES = 1 << 16
"""Block size of reads from the end of a file, in bytes."""


class LineWriter:
    """Writer that appends whole lines to a file and passes them to the operating system before `write` returns.

    A power cut may lose lines. A line may be incomplete if the process dies or the disk fills up during the write. The
    journal holds the valid size of a file; `cut` removes the rest.
    """

    def __init__(self, path: Path) -> None:
        """Open or create `path` for appending. Raises StorageError: the file cannot be opened."""
        self.path = path
        self._failure: OSError | None = None
        try:
            self._file: BinaryIO = open_to_append(path)
        except OSError as error:
            raise operation_error("open", path, error) from error
        self.end = self._file.tell()
        """Size of the file, in bytes."""

    def write(self, *lines: bytes) -> None:
        """Append lines, given without newlines.

        Raises:
            StorageError: The file cannot be written; later calls raise the same error and write nothing.
        """
        if not lines:
            return
        data = b"".join(line + b"\n" for line in lines)
        try:
            if self._failure is not None:
                # The file may hold a part of a line, and the buffer the rest: the next line would not begin at `end`.
                raise self._failure
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            self._failure = error
            raise operation_error("write", self.path, error) from error
        self.end += len(data)

    def close(self) -> None:
        """Close the file; an error of the last flush is ignored, as `write` has raised it."""
        with suppress(OSError):
            self._file.close()


def read_lines(path: Path, *, end: int | None = None, unfinished: bool = False) -> Iterator[bytes]:
    """Yield the complete lines of a file, without newlines; none if the file is missing.

    A last line without a newline is incomplete and left out, except with `unfinished`. With `end`, yield only lines before
    that byte.

    Raises:
        RunFolderError: The complete lines do not reach `end`.
        InputError: A compressed file cannot be read.
    """
    offset = 0
    with suppress(FileNotFoundError), open_jsonl(path) as file:
        for line in file:
            if not (unfinished or line.endswith(b"\n")) or (end is not None and offset + len(line) > end):
                break
            offset += len(line)
            yield line.removesuffix(b"\n")
    if end is not None and offset < end:
        raise lines_missing(path, end)


def lines_missing(path: Path, end: int) -> RunFolderError:
    """Return the error for a file with fewer complete lines than the journal counts, up to byte `end`."""
    return RunFolderError(
        f"{str(path)!r} has {size_of(path):,} bytes, and the run's journal counts {end:,} in whole lines. The command that made "
        f"the run, given once more, makes what is missing again from its journal for free; merge, filter and import need --fresh"
    )


def size_of(path: Path) -> int:
    """Return the size without zero bytes at the end, in bytes: a power cut may replace the last lines by zeros."""
    for start, block in _blocks_backwards(path):
        if content := block.rstrip(b"\0"):
            return start + len(content)
    return 0


def ends_line(path: Path, end: int) -> bool:
    """Return True if a line ends right before byte `end`, or if `end` is 0."""
    return end == 0 or _after_newline(path, end) == end


def last_line_end(path: Path) -> int:
    """Return the offset after the last complete line of a file, in bytes."""
    return _after_newline(path)


def last_line(path: Path) -> bytes | None:
    """Return the last complete line of a file, without its newline; None without a complete line."""
    end = last_line_end(path)
    if not end:
        return None
    start = _after_newline(path, end - 1)
    with path.open("rb") as file:
        file.seek(start)
        return file.read(end - 1 - start)


def _after_newline(path: Path, end: int | None = None) -> int:
    """Return the offset after the last newline before `end`; 0 without a newline."""
    for start, block in _blocks_backwards(path, end):
        if (newline := block.rfind(b"\n")) >= 0:
            return start + newline + 1
    return 0


def _blocks_backwards(path: Path, end: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a file before `end`, last one first, each with its offset; none for a missing file."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        start = file.seek(0, 2) if end is None else end
        while start:
            block_end, start = start, max(0, start - _BLOCK_BYTES)
            file.seek(start)
            yield start, file.read(block_end - start)


def cut(path: Path, *, end: int) -> int:
    """Truncate a longer file to `end` bytes; return the number of removed bytes. Raises StorageError on failure."""
    size = path.stat().st_size if path.exists() else 0
    if size <= end:
        return 0
    try:
        with open_to_append(path) as file:
            file.truncate(end)
    except OSError as error:
        raise operation_error("write", path, error) from error
    return size - end


def operation_error(operation: str, path: Path, error: OSError) -> StorageError:
    """Return the error for a failed operation on a file or folder."""
    return StorageError(
        f"cannot {operation} {str(path)!r}: {error.strerror or error}. Everything finished so far is kept; make room or give "
        f"permission, then repeat the command, which goes on where it ended"
    )
