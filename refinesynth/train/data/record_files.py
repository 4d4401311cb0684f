"""Reader of records: files with one JSON object per line or a list (compressed or not), and Hugging Face datasets."""

import re
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from zstandard import ZstdError

from refinesynth.errors import InputError
from refinesynth.files.compressed import bounded_lines, open_binary, read_document
from refinesynth.text.json_reader import load_json

TRAJECTORIES = "trajectories.jsonl"

MOST_BYTES: Final = 16 * 1024 * 1024
"""Longest record of a JSON Lines file, in bytes."""

COMPRESSIONS = {".gz": ".gz", ".zst": ".zst", ".zstd": ".zst"}


@contextmanager
def opened(path: Path) -> Generator[BinaryIO]:
    """Open a file, compressed or not. Raises `InputError` if it cannot be read to its end."""
    try:
        with open_binary(path, COMPRESSIONS.get(path.suffix.lower())) as file:
            yield file
    except (OSError, EOFError, UnicodeError, zlib.error, ZstdError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}") from error


def records(path: Path, torn: list[str]) -> Generator[tuple[object, str]]:
    """Yield every record of a file with its place, `file:line`; blank lines are skipped.

    A file that begins with a list is read whole. A last line that is cut off, as a killed run leaves it, is skipped and
    its place appended to `torn`, unless it is the only line. Raises `InputError` for other lines that are not JSON.
    """
    some = False
    with opened(path) as file:
        # Of a bounded length: a few kilobytes of a compressed file can be gigabytes of one line.
        for number, line in bounded_lines(file, MOST_BYTES):
            where = f"{path}:{number}"
            if not some and line.lstrip().startswith(b"["):
                try:
                    items = load_json(read_document(file, path, line))
                except ValueError as error:
                    raise InputError(
                        f"{str(path)!r} begins as a JSON list and is not one ({error}); expected a whole list, or JSONL"
                    ) from error
                yield from ((item, f"{path}: item {at}") for at, item in enumerate(items, start=1))
                return
            if len(line) > MOST_BYTES:
                raise InputError(
                    f"{where}: this line is longer than {MOST_BYTES:,} bytes; expected one record a line. Split or remove it"
                )
            if not line.strip():
                continue
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


HUB_DATASETS = "hf://datasets/"
"""Optional prefix of a dataset name on the hub."""
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILES = (".json", ".jsonl", *COMPRESSIONS)


def is_saved(folder: Path) -> bool:
    """Return True for a folder that `save_to_disk` wrote."""
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))


def is_hub_name(name: str) -> bool:
    """Return True for `organisation/name` without the ending of a data file."""
    return _HUB_NAME.fullmatch(hub_name(name)) is not None and not name.endswith(_FILES)


def hub_name(name: str) -> str:
    """The name without `HUB_DATASETS`."""
    return name.removeprefix(HUB_DATASETS)


def is_dataset(source: object) -> bool:
    """Return True for an object of the `datasets` package, which is not imported."""
    return type(source).__module__.partition(".")[0] == "datasets"


def stored_rows(name: str, *, hub: bool) -> Generator[tuple[object, str]]:
    """The rows of a dataset on the hub or of a `save_to_disk` folder; its code is never run. Raises `InputError`."""
    import datasets

    library = cast("Any", datasets)
    try:
        loaded = library.load_dataset(name) if hub else library.load_from_disk(name)
    except Exception as error:  # The library raises many kinds, the network more, and the data is a third party's.
        what = f"there is no file or folder {name!r}, and on the Hugging Face hub the" if hub else "the"
        raise InputError(f"{what} dataset {name!r} cannot be read: {error}") from error
    return dataset_rows(loaded, name)


def dataset_rows(source: Any, name: str) -> Generator[tuple[object, str]]:
    """The rows of a dataset object, each with `name: row number` from 1. Raises `InputError` without a `train` split."""
    if isinstance(source, dict):
        splits = cast("dict[str, Any]", source)
        if "train" not in splits and len(splits) != 1:
            raise InputError(
                f"the dataset {name!r} has the splits {sorted(splits)} and none is 'train'; give one of them"
            )
        source = splits["train"] if "train" in splits else next(iter(splits.values()))
    return ((row, f"{name}: row {number}") for number, row in enumerate(source, start=1))
