"""A configuration as YAML: for a reader, with where each value comes from, and for `train.yaml`, to be read again."""

import os
import re
from pathlib import Path
from typing import Any, Final

from refinesynth.files.settings_file import dumped, explained
from refinesynth.train.config import PATHS, TrainConfig
from refinesynth.train.hub import bare
from refinesynth.train.layers import Layered, settings_in

_CACHED: Final = re.compile(r"models--(?P<name>[^/]+)/snapshots/(?P<revision>[^/]+)/?$")


def portable(path: str) -> str:
    """A path without a user's name: below the home folder it begins with `~`."""
    home = Path.home()
    if home == Path("/") or not Path(path).is_relative_to(home):
        return path
    return str(Path("~") / Path(path).relative_to(home))


def published(model: str, revision: str | None = None) -> tuple[str, str | None]:
    """What others may read a model is called, and its revision: the one that is asked for, or that its folder's name
    says; on this machine it is found by that, too.

    A folder in the hub's cache is the hub's model. Any other is named from the working folder where the absolute path
    would show whose machine it is on: what loads it (`AutoPeftModelForCausalLM`) looks there. Only where neither can
    be, it begins with `~`.
    """
    path, here = Path(model), Path.cwd()
    if (cached := _CACHED.search(model)) is not None and path.is_dir():
        return cached["name"].replace("--", "/"), revision or cached["revision"]
    if not path.is_absolute():
        return bare(model), revision
    if path.is_relative_to(here):
        return str(path.relative_to(here)), None
    if portable(str(here)) != str(here) and portable(model) != model:
        return os.path.relpath(path, here), None
    return portable(model), None


def portable_config(config: TrainConfig) -> dict[str, Any]:
    """The fields as plain values, in order, their paths portable."""
    values = config.model_dump(mode="json")
    for name in PATHS:
        value = values[name]
        if isinstance(value, str):
            values[name] = portable(value)
        elif value is not None:
            values[name] = [portable(each) for each in value]
    return values


def to_yaml(config: TrainConfig) -> str:
    """Every setting, as it is written to `train.yaml` and read again by `--config`.

    But for `resume`: a training with the same file goes on, even if this training began anew.
    """
    config = config.model_copy(update={"resume": "auto"})
    return dumped(portable_config(config)) + "\n"


def explained_yaml(layers: Layered) -> str:
    """Every setting with what it means and where its value comes from; a file that `--config` reads."""
    return explained(TrainConfig, portable_config(layers.config), origin=layers.origin, inside=settings_in)
