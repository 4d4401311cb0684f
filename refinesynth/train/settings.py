"""A configuration as YAML: for a reader, with where each value comes from, and for `train.yaml`, to be read again."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from refinesynth.extras import require
from refinesynth.train.config import PATHS, TrainConfig
from refinesynth.train.hub import bare
from refinesynth.train.layers import Layered, settings_in

_COMMENT_COLUMN: Final = 40
_CACHED: Final = re.compile(r"models--(?P<name>[^/]+)/snapshots/(?P<revision>[^/]+)/?$")


def portable(path: str) -> str:
    """A path without a user's name: below the home folder it begins with `~`."""
    home = Path.home()
    if home == Path("/") or not Path(path).is_relative_to(home):
        return path
    return str(Path("~") / Path(path).relative_to(home))


def published(model: str, revision: str | None = None) -> tuple[str, str | None]:
    """What others may read a model is called, and its revision: the one that is asked for, or that its folder's name says; on this machine it is found by that, too.

    A folder in the hub's cache is the hub's model. Any other is named from the working folder where the absolute path would show
    whose machine it is on: what loads it (`AutoPeftModelForCausalLM`) looks there. Only where neither can be, it begins with `~`.
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
    return _dumped(portable_config(config)) + "\n"


def explained_yaml(layers: Layered) -> str:
    """Every setting with what it means and where its value comes from; a file that `--config` reads."""
    return "\n".join(_explained(layers))


def _explained(layers: Layered) -> Iterator[str]:
    values = portable_config(layers.config)
    for name, value in values.items():
        yield from _documented(TrainConfig, name)
        inside = settings_in(name)
        if inside is not None and value:
            yield f"{name}:"
            for inner, each in value.items():
                yield from _documented(inside, inner, indent="  ")
                yield _line(f"  {_setting(inner, each)}", layers.origin(f"{name}.{inner}"))
        else:
            yield _line(_setting(name, value), layers.origin(name))
        yield ""


def _documented(model: type, name: str, *, indent: str = "") -> Iterator[str]:
    field = getattr(model, "model_fields", {}).get(name)
    yield from (f"{indent}# {line}" for line in ((field and field.description) or "").splitlines())


def _line(setting: str, origin: str) -> str:
    return f"{setting:<{_COMMENT_COLUMN}}  # {' '.join(origin.split())}"


def _setting(name: str, value: object) -> str:
    """`name: value` on one line; a list stays on it."""
    return f"{name}: {_dumped(value, flow=True).removesuffix('...').rstrip()}"


def _dumped(value: object, *, flow: bool = False) -> str:
    """YAML without a final line feed; what a reader could not see in it is written as an escape."""
    yaml = require("yaml", "train")
    text = ""
    for unicode in (True, False):
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=unicode, width=10**9, default_flow_style=flow)
        if text.replace("\n", "").isprintable():
            break
    return text.rstrip("\n")
