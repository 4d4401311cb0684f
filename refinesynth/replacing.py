"""A file that appears whole or not at all, compressed if its name says so."""

import gzip
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from refinesynth.errors import InputError

COMPRESSED = (".gz", ".zst")
"""Suffixes of a name that ask for compression."""


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Complain before any work is done.

    Raises:
        InputError: `path` is a folder, or exists and `overwrite` is false.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; choose another name, or allow it to be overwritten")


@contextmanager
def replacing(path: Path, *, overwrite: bool = False) -> Generator[IO[bytes]]:
    """Open a file that takes `path`'s place when the block ends well, and is removed when it does not.

    Missing folders are made. `.gz` and `.zst` compress; the same content gives the same bytes.

    Raises:
        InputError: `path` is a folder, exists and may not be overwritten, or cannot be written.
    """
    refuse_existing(path, overwrite=overwrite)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("xb") as raw:
            with _compressing(raw, path.suffix) as stream:
                yield stream
            raw.flush()
            os.fsync(raw.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


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
