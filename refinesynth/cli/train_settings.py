"""Options of `refinesynth train` as settings of `TrainConfig`."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from refinesynth.cli.terminal import notes
from refinesynth.errors import ConfigurationError
from refinesynth.train.layered_settings import RETIRED, settings_in

_NAME: Final = re.compile(r"[\w.-]+")
_STAGES: Final = ("zero2", "zero3")


def given(options: Mapping[str, Any], *, assignments: Sequence[str] = ()) -> dict[str, Any]:
    """The given settings; `assignments` (`--set`) override options, and `deepspeed` may be a ZeRO stage.

    Raises `ConfigurationError` for an assignment of another form, and for two of one setting.
    """
    settings = {
        name: str(value) if isinstance(value, Path) else value for name, value in options.items() if value is not None
    }
    deepspeed = settings.get("deepspeed")
    if deepspeed in _STAGES:
        settings["parallel"] = settings.pop("deepspeed")
    elif deepspeed is not None and not Path(deepspeed).is_file():
        raise ConfigurationError(f"--deepspeed {deepspeed!r} is neither zero2 nor zero3, and there is no such file")
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


def _assignment(text: str) -> tuple[str, object]:
    name, sign, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not sign or not _NAME.fullmatch(name):
        raise ConfigurationError(f"--set {text!r}: write FIELD=VALUE, as in weight_decay=0.1 or lora.rank=64")
    # In a mapping there is no field that would read a number or a truth from text.
    return name, _value(value.strip(), reads_text=settings_in(name.partition(".")[0]) is not dict)


def _value(text: str, *, reads_text: bool) -> object:
    """Read null, a list, an object or a quoted text as JSON; others too, unless the field `reads_text`."""
    if text == "null":
        return None
    if not reads_text or text.startswith(("[", "{", '"')):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    if not reads_text and text in {"True", "False"}:
        return text == "True"
    return text
