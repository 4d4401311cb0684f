"""Files that appear whole or not at all, even if the process dies or the disk is full; and refusal of other places."""

import gzip
import os
import secrets
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from refinesynth.errors import InputError, StorageError

COMPRESSED = (".gz", ".zst")
"""Suffixes that ask for compression."""

_OTHER_FORMS = frozenset({".parquet", ".csv", ".tsv", ".arrow", ".feather", ".xlsx", ".bz2", ".xz", ".zip"})
"""Suffixes of formats that are not written here."""

_UNFINISHED = ".part"


@contextmanager
def atomic_write(path: Path) -> Generator[IO[bytes]]:
    """Open a file that takes `path`'s place when the block ends well, and is removed otherwise.

    Readers of `path` find the old file or the new one, also after a crash. The content is on the disk before it has the
    name. A link at `path` is replaced, not followed.

    Raises:
        OSError: It cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_UNFINISHED}")
    try:
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def is_unfinished(name: str, of: str) -> bool:
    """Return True if a process that died while it wrote the file `of` has left a file of this name."""
    return name.startswith(f".{of}.") and name.endswith(_UNFINISHED)


def write_file(path: Path, content: bytes) -> None:
    """Write a file with `atomic_write`, making missing folders. Raises StorageError: it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(content)
    except OSError as error:
        raise StorageError(f"{str(path)!r} cannot be written: {error.strerror or error}") from error


def write_text_file(path: Path, text: str) -> None:
    """Write text with `write_file`; lone surrogates, which no file can hold, become U+FFFD."""
    from refinesynth.text.json_reader import scrub  # it brings orjson, which `--help` does without

    write_file(path, scrub(text).encode())


def write_json_file(path: Path, value: Any) -> None:
    """Write indented JSON with `write_file`."""
    import orjson

    from refinesynth.text.json_reader import write_json

    write_file(path, write_json(value, option=orjson.OPT_INDENT_2) + b"\n")


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Refuse an output path before any work is done.

    Raises:
        InputError: `path` is a folder, a link, a FIFO or a device, or exists and `overwrite` is false; or its
            suffix promises another form than JSONL.
    """
    form = (path.with_suffix("") if path.suffix.lower() in COMPRESSED else path).suffix
    if form.lower() in _OTHER_FORMS:
        raise InputError(
            f"{str(path)!r}: JSONL is written, not {form}; give a name that ends in .jsonl, .jsonl.gz or .jsonl.zst"
        )
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file")
    refuse_irregular(path)
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; choose another name, or allow it to be overwritten")


@contextmanager
def alone_with(path: Path) -> Generator[None]:
    """Keep other processes of this user on this machine from writing the file or folder at `path`.

    Blocks for one path may be nested.

    Raises:
        InputError: Another process writes it.
    """
    from hashlib import blake2b

    from filelock import FileLock, Timeout  # in the block that `--help` does without

    named = blake2b(os.fsencode(path.absolute().parent.resolve() / path.name), digest_size=8).hexdigest()
    # Beside the file it would stay there; the content of the lock's file does not matter.
    place = Path(tempfile.gettempdir()) / f"refinesynth-{os.getuid() if hasattr(os, 'getuid') else 0}-{named}.lock"
    lock = FileLock(place, thread_local=False, is_singleton=True, fallback_to_soft=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InputError(
            f"{str(path)!r} is being written by another process; wait until it ends, or choose another name"
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def output_file(path: Path, *, overwrite: bool = False) -> Generator[IO[bytes]]:
    """Open a user's output file with `atomic_write`, making missing folders.

    `.gz` and `.zst` compress; the same content gives the same bytes.

    Raises:
        InputError: `path` is a folder, a link, a FIFO or a device, exists and may not be overwritten, cannot be
            written, or is written by another process.
    """
    try:
        with alone_with(path):
            refuse_existing(path, overwrite=overwrite)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as file, _compressing(file, path.suffix.lower()) as stream:
                yield stream
    except OSError as error:
        raise InputError(f"cannot write {path}: {error}") from error


@contextmanager
def _compressing(raw: IO[bytes], suffix: str) -> Generator[IO[bytes]]:
    if suffix == ".gz":
        # Neither name nor time goes into the header, or the same records would give different bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
            yield cast("IO[bytes]", stream)
    elif suffix == ".zst":
        import zstandard

        with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as stream:
            yield cast("IO[bytes]", stream)
    else:
        yield raw


_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def irregular(path: Path, *, follow: bool = False) -> str | None:
    """Return `a link`, `a FIFO`, `a device` or `a socket`, if one is at `path`; None for files, folders and nothing.

    With `follow`, a link counts as its target.
    """
    try:
        mode = (path.stat() if follow else path.lstat()).st_mode
    except OSError:
        return None
    return next((name for is_one, name in _KINDS if is_one(mode)), None)


def refuse_irregular(path: Path) -> None:
    """Refuse to write to anything but a file or a folder. Raises InputError: something else is at `path`."""
    if kind := irregular(path):
        raise InputError(f"{str(path)!r} is {kind}, which nothing is written to; remove it, or choose another name")


def open_to_append(path: Path) -> BinaryIO:
    """Open or create a regular file for appending, without blocking on a FIFO.

    Raises:
        OSError: It cannot be opened, or is something else.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = open(os.open(path, flags, 0o666), "ab")  # noqa: PTH123, SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(0, "it is no regular file", str(path))
    return file
