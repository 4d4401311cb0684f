"""Records in Hugging Face datasets: an object, a folder written by `save_to_disk`, or a name on the hub."""

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

from refinesynth.errors import InputError
from refinesynth.train.data.files import COMPRESSIONS

HUB_DATASETS = "hf://datasets/"
"""May stand before the name of a dataset on the hub."""
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILES = (".json", ".jsonl", *COMPRESSIONS)


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote this folder."""
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))


def is_hub_name(name: str) -> bool:
    """Whether this could be a dataset on the hub: `organisation/name`. What ends as a file does is meant to be one."""
    return _HUB_NAME.fullmatch(hub_name(name)) is not None and not name.endswith(_FILES)


def hub_name(name: str) -> str:
    """Without what may stand before it."""
    return name.removeprefix(HUB_DATASETS)


def is_dataset(source: object) -> bool:
    """Whether this is one of the `datasets` package's objects; does not import it."""
    return type(source).__module__.partition(".")[0] == "datasets"


def saved(folder: Path) -> Generator[tuple[object, str]]:
    """The rows of a folder that `save_to_disk` wrote.

    Raises:
        InputError: It cannot be read, or has several splits and none is called `train`.
    """
    import datasets

    try:
        loaded = cast("Any", datasets).load_from_disk(str(folder))
    except Exception as error:  # The library raises many kinds, and the folder is third-party data.
        raise InputError(f"the dataset in {str(folder)!r} cannot be read: {error}") from error
    return rows(loaded, str(folder))


def from_hub(name: str) -> Generator[tuple[object, str]]:
    """The rows of a dataset on the hub; no code that comes with it is run.

    Raises:
        InputError: There is none, it cannot be fetched, or it has several splits and none is called `train`.
    """
    import datasets

    try:
        loaded = cast("Any", datasets).load_dataset(name)
    except Exception as error:  # As above, and the network's.
        raise InputError(
            f"there is no file or folder {name!r}, and as a dataset on the Hugging Face hub it cannot be had: {error}"
        ) from error
    return rows(loaded, name)


def rows(source: Any, name: str) -> Generator[tuple[object, str]]:
    """The rows of a dataset object, with `name: row number` (from 1).

    Raises:
        InputError: It has several splits and none is called `train`.
    """
    if isinstance(source, dict):
        splits = cast("dict[str, Any]", source)
        if "train" not in splits and len(splits) != 1:
            raise InputError(
                f"the dataset {name!r} has the splits {sorted(splits)} and none is 'train'; give one of them"
            )
        source = splits["train"] if "train" in splits else next(iter(splits.values()))
    return ((row, f"{name}: row {number}") for number, row in enumerate(source, start=1))
