"""Rule chains as they are typed, and all settings of a run as a file."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel

from refinesynth import rules
from refinesynth.backends import Backend
from refinesynth.cli.terminal import output
from refinesynth.errors import ConfigurationError, InputError
from refinesynth.files.settings_file import explained
from refinesynth.run import stable_repr
from refinesynth.settings import RunSettings
from refinesynth.text.printable import printable


def chain(option: str, text: str) -> rules.Rule:
    """A rule chain from its expression; raises ConfigurationError that begins with the option."""
    try:
        return rules.parse(text)
    except InputError as error:
        raise ConfigurationError(f"{option}: {error}") from error


def show_config(asked: Mapping[str, Any], layers: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Print every setting, its meaning and origin, as a file for `--config`; raises ConfigurationError."""
    settings = RunSettings.of({name: value for name, value in asked.items() if name in RunSettings.model_fields})
    values = {name: _plain(getattr(settings, name)) for name in RunSettings.model_fields}
    if "grounding" not in settings.model_fields_set:
        # Said of another play, it would be refused.
        values["grounding"] = None
    origins = {name: origin for origin, layer in layers for name in layer}
    text = explained(RunSettings, values, origin=lambda name: origins.get(name, "default"))
    output().print(printable(text), end="", soft_wrap=True)


def _plain(value: object) -> object:
    """The value as JSON: rules and budgets as text, of a backend what was set."""
    if isinstance(value, Backend):
        return value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("Sequence[object]", value)]
    if value is None or isinstance(value, str | int | float):
        return value
    return stable_repr(value) if callable(value) else str(value)
