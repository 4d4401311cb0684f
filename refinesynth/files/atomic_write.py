"""Atomic writes of files, also if the process dies or the disk is full, and checks of output paths."""

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
from refinesynth.text.formatting import scrub

_UNSUPPORTED_SUFFIXES = frozenset(
    (".parquet", ".csv", ".tsv", ".arrow", ".feather", ".xlsx", ".zst", ".zstd", ".bz2", ".xz", ".zip")
)
"""Suffixes of unsupported output formats."""

_TEMPORARY_SUFFIX = ".part"


@contextmanager
def atomic_write(path: Path) -> Generator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block ends without an error, and is removed otherwise.

    Readers of `path` find the old file or the new one, also after a crash: the content is synced to disk before the
    rename. A link at `path` is replaced, not followed.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY_SUFFIX}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def is_temporary(name: str, target: str) -> bool:
    """Return True for the name of a temporary file that `atomic_write` makes for the file `target`."""
    return name.startswith(f".{target}.") and name.endswith(_TEMPORARY_SUFFIX)


def write_file(path: Path, content: bytes) -> None:
    """Write a file with `atomic_write`, and create missing folders. Raises StorageError: the file cannot be written."""
    with storage_errors(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(content)


@contextmanager
def storage_errors(path: Path, verb: str) -> Generator[None]:
    """Convert errors of the operating system to StorageError: `path` cannot be `verb`, such as `written`."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{str(path)!r} cannot be {verb}: {error.strerror or error}") from error


def write_text_file(path: Path, text: str) -> None:
    """Write text with `write_file`; lone surrogates, which UTF-8 cannot encode, become U+FFFD."""
    write_file(path, scrub(text).encode())


def write_json_file(path: Path, value: Any) -> None:
    """Write indented JSON with `write_file`."""
    import orjson

    from refinesynth.text.json_reader import write_json

    write_file(path, write_json(value, option=orjson.OPT_INDENT_2) + b"\n")


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Refuse an unusable output path.

    Raises:
        InputError: `path` is a folder, a link, a FIFO, a device, a socket or a file of a run, or exists and `overwrite` is
            false; or its suffix is that of another format or compression.
    """
    suffix = (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix
    if suffix.lower() in _UNSUPPORTED_SUFFIXES:
        raise InputError(f"{str(path)!r}: JSONL is written, not {suffix}; give a name that ends in .jsonl or .jsonl.gz")
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file")
    refuse_irregular(path)
    refuse_file_of_run(path)
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; choose another name, or allow it to be overwritten")


@contextmanager
def exclusive_access(path: Path) -> Generator[None]:
    """Lock the file or folder at `path` against other processes of this user on this machine that use this function.

    A process may nest blocks for one path.

    Raises:
        InputError: Another process has the lock.
    """
    from hashlib import blake2b

    from filelock import FileLock, Timeout  # imported here, because `--help` does not need it

    digest = blake2b(os.fsencode(path.absolute().parent.resolve() / path.name), digest_size=8).hexdigest()
    # In the temporary folder, because a lock file next to the output would stay there.
    lock_path = Path(tempfile.gettempdir()) / f"refinesynth-{os.getuid() if hasattr(os, 'getuid') else 0}-{digest}.lock"
    lock = FileLock(lock_path, thread_local=False, is_singleton=True, fallback_to_soft=False)
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
    """Open a user's output file with `atomic_write`, and create missing folders.

    The suffix `.gz` compresses. The same content gives the same bytes.

    Raises:
        InputError: `refuse_existing` refuses the path, the file cannot be written, or another process writes it.
    """
    try:
        with exclusive_access(path):
            refuse_existing(path, overwrite=overwrite)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as file, _compressing(file, path.suffix.lower()) as stream:
                yield stream
    except OSError as error:
        raise InputError(f"cannot write {path}: {error}") from error


@contextmanager
def _compressing(raw: IO[bytes], suffix: str) -> Generator[IO[bytes]]:
    if suffix == ".gz":
        # Without name and time in the header, the same content gives the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
            yield cast("IO[bytes]", stream)
    else:
        yield raw


_IRREGULAR_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def irregular_kind(path: Path, *, follow: bool = False) -> str | None:
    """Return `a link`, `a FIFO`, `a device` or `a socket` for such a `path`; None for files, folders and missing paths.

    With `follow`, the result is for a link's target.
    """
    try:
        mode = (path.stat() if follow else path.lstat()).st_mode
    except OSError:
        return None
    return next((name for is_kind, name in _IRREGULAR_KINDS if is_kind(mode)), None)


def refuse_irregular(path: Path) -> None:
    """Raise InputError if `path` exists and is neither a file nor a folder."""
    if kind := irregular_kind(path):
        raise InputError(f"{str(path)!r} is {kind}, which nothing is written to; remove it, or choose another name")


def refuse_file_of_run(path: Path) -> None:
    """Raise InputError for a file of a run, which only the run may write."""
    from refinesynth.files.output_folder import is_file_of_run  # imports pydantic, which `--help` does not need

    if is_file_of_run(path):
        raise InputError(f"{str(path)!r} is what a run wrote, and it would be replaced; choose another name")


def open_to_append(path: Path) -> BinaryIO:
    """Open or create a regular file for appending, without following a link or blocking on a FIFO.

    Raises:
        OSError: The file cannot be opened, or is no regular file.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = open(os.open(path, flags, 0o666), "ab")  # noqa: PTH123, SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(0, "it is no regular file", str(path))
    return file
