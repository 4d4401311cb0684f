"""The entry in `dataset_info.json` without which LLaMA-Factory does not know a file."""

from pathlib import Path
from typing import cast

import orjson
from pydantic import JsonValue

from refinesynth.errors import InputError
from refinesynth.files.atomic_write import COMPRESSED, alone_with, output_file
from refinesynth.files.regular import refuse_irregular

FILE_NAME = "dataset_info.json"
_WAIT = 60.0
"""Seconds that an export waits for another one to add its entry."""


def dataset_name(path: Path) -> str:
    """What LLaMA-Factory's `dataset` option calls this file: its name without the suffix."""
    return path.name.removesuffix(path.suffix)


def dataset_entry(path: Path) -> dict[str, JsonValue]:
    """How LLaMA-Factory is to read a ShareGPT file beside its `dataset_info.json`."""
    return {
        "file_name": path.name,
        "formatting": "sharegpt",
        "columns": {"messages": "conversations"},
        "tags": {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt"},
    }


class DatasetInfo:
    """The `dataset_info.json` beside an export; read at once, so that what is wrong with it shows before any work.

    Other data sets' entries are kept as they are.
    """

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        """Prepare the entry for the export at `path`.

        Raises:
            InputError: There is such a file and it is not a JSON object, or describes another data set by this name; or
                the export itself is to be that file; or it is a link, a FIFO or a device.
        """
        if path.name == FILE_NAME:
            raise InputError(f"{path} is where LLaMA-Factory looks for its data sets' names; choose another name")
        self.path = path.with_name(FILE_NAME)
        name, entry = dataset_name(path), dataset_entry(path)
        refuse_irregular(self.path)
        if _read(self.path).get(name, entry) != entry and not overwrite:
            raise InputError(f"{self.path} describes another data set {name!r}; choose another name for {path}")
        self._entry = {name: entry}

    @staticmethod
    def is_for(path: Path) -> bool:
        """Whether LLaMA-Factory could read this file at all: it opens no compressed ones."""
        return path.suffix not in COMPRESSED

    def write(self) -> Path:
        """Add the entry to what is there by now, and say where the file is."""
        with alone_with(self.path, wait=_WAIT), output_file(self.path, overwrite=True) as file:
            entries = _read(self.path) | self._entry
            file.write(orjson.dumps(entries, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        return self.path


def _read(path: Path) -> dict[str, JsonValue]:
    if not path.exists():
        return {}
    try:
        found: object = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise InputError(f"cannot add a data set to {path}: {error}; fix the file or export elsewhere") from error
    if not isinstance(found, dict):
        raise InputError(f"cannot add a data set to {path}: it holds no JSON object; export elsewhere")
    return cast("dict[str, JsonValue]", found)
