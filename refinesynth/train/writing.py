"""Small files of an output folder, written whole or not at all."""

import contextlib
import os
from pathlib import Path
from typing import Any

import orjson

from refinesynth.errors import StorageError
from refinesynth.jsontext import scrub, write_json


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step: whoever reads it meanwhile, or after a crash, finds the old one or the new one.

    Raises:
        StorageError: It cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise StorageError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """`write_whole` for text; lone surrogates, which no file can hold, become U+FFFD."""
    write_whole(path, scrub(text).encode())


def write_json_file(path: Path, value: Any) -> None:
    """`write_whole` for JSON that people read as well."""
    write_whole(path, write_json(value, option=orjson.OPT_INDENT_2) + b"\n")
