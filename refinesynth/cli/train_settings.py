"""What a person types after `refinesynth train`, as the settings that `TrainConfig` has."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from refinesynth.cli.terminal import notes
from refinesynth.errors import ConfigurationError
from refinesynth.train.layers import RETIRED, settings_in

_ASSIGNMENT: Final = re.compile(r"\s*(?P<name>[\w.-]+?)\s*=(?P<value>.*)", re.DOTALL)
_STAGES: Final = ("zero2", "zero3")


def given(
    options: Mapping[str, Any], *, deepspeed: str | None = None, assignments: Sequence[str] = ()
) -> dict[str, Any]:
    """The settings that were given, and no others; `assignments` (`--set`) override options.

    Raises:
        ConfigurationError: An assignment is none, or names a setting twice.
    """
    settings = {
        name: str(value) if isinstance(value, Path) else value for name, value in options.items() if value is not None
    }
    if deepspeed is not None:
        settings |= {"parallel": deepspeed} if deepspeed in _STAGES else {"deepspeed": _file(deepspeed)}
    assigned: dict[str, object] = {}
    for text in assignments:
        name, value = _assignment(text)
        if name in RETIRED:
            notes().print(f"! {RETIRED[name]}", soft_wrap=True)
            continue
        if name in assigned:
            raise ConfigurationError(f"--set {name} is given twice; give it once")
        assigned[name] = value
    return settings | assigned


def _file(name: str) -> str:
    if not Path(name).is_file():
        raise ConfigurationError(f"--deepspeed {name!r} is neither zero2 nor zero3, and there is no such file")
    return name


def _assignment(text: str) -> tuple[str, object]:
    found = _ASSIGNMENT.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"--set {text!r}: write FIELD=VALUE, as in weight_decay=0.1 or lora.rank=64")
    name = found["name"].replace("-", "_")
    # In a mapping there is no field that would read a number or a truth from text.
    return name, _value(found["value"].strip(), reads_text=settings_in(name.partition(".")[0]) is not dict)


def _value(text: str, *, reads_text: bool) -> object:
    """Null, a list, an object or a quoted text as JSON; all else too, or as it stands where a field `reads_text`."""
    if text == "null":
        return None
    if not reads_text or text.startswith(("[", "{", '"')):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    if not reads_text and text in {"True", "False"}:
        return text == "True"
    return text
