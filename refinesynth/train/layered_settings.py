"""Settings from layers (defaults < recipe < file < options), and as YAML with the origin of each value."""

import difflib
import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from refinesynth.errors import ConfigurationError
from refinesynth.files.settings_file import commented_yaml, dump_yaml, read_settings
from refinesynth.train.config import PATH_FIELDS, TrainConfig

_RECIPES = Path(__file__).with_name("recipes")
RECIPES: Final = ("paper-8b", "paper-70b", "lora", "smoke")
"""Names of the built-in recipes."""

DEFAULT: Final = "default"
REQUIRED: Final = "to be given"
_RECIPE: Final = "recipe"
_USAGE: Final = {
    "data": "DATA...",
    "model": "--model NAME-OR-FOLDER, or --model scratch (a tiny random one, to see a training run)",
    "output": "-o FOLDER",
}


@dataclass(frozen=True, slots=True)
class Layered:
    """Configuration and the origin of each setting."""

    config: TrainConfig
    origins: Mapping[str, str]
    """Origins by field name, dotted for nested fields (`lora.rank`); defaults are absent."""

    def origin(self, field: str) -> str:
        """Description of the origin of a field's value."""
        return self.origins.get(field, DEFAULT)


def layered(
    *,
    recipe: str | None = None,
    file: Path | None = None,
    given: Mapping[str, Any] | None = None,
    given_by: str = "command line",
    defaults: Mapping[str, Any] | None = None,
) -> Layered:
    """Merge the layers. `recipe` overrides the `recipe` in the file.

    Nested settings (`lora`, mappings) are merged; dotted names (`lora.rank`) set a nested field. `false` or `null`
    discards the layers below; `true` enables nested settings with a model. `defaults` are for required fields.

    Raises:
        ConfigurationError: A recipe or field does not exist, a value is invalid, or a required field is missing.
        InputError: The file cannot be read.
    """
    read = partial(read_settings, nested=lambda name: nested_type(name) is not None)
    file_values, given = {} if file is None else read(file), dict(given or {})
    file_recipe, given_recipe = file_values.pop(_RECIPE, None), given.pop(_RECIPE, None)
    recipe = given_recipe if recipe is None else recipe
    recipe_name = file_recipe if recipe is None else recipe
    layers = [(f"recipe {recipe_name}", read(_find_recipe(recipe_name)))] if recipe_name is not None else []
    layers += [(str(file), file_values), (given_by, given)]
    values, origins = _merge(layers)
    if recipe_name is not None:
        values[_RECIPE], origins[_RECIPE] = recipe_name, given_by if recipe is not None else str(file)
    values.update((name, _expand_home(values[name])) for name in PATH_FIELDS if name in values)
    try:
        origins.update((name, REQUIRED) for name in defaults or {} if name not in values)
        return Layered(TrainConfig.model_validate({**(defaults or {}), **values}), origins)
    except ValidationError as error:
        raise ConfigurationError("\n".join(_explain(error, origins))) from None


def _expand_home(value: object) -> object:
    def expand(item: object) -> object:
        return str(Path(item).expanduser()) if isinstance(item, str) and item.startswith("~/") else item

    return [*map(expand, cast("Iterable[object]", value))] if isinstance(value, list | tuple) else expand(value)


def _find_recipe(name: object) -> Path:
    if name in RECIPES:
        return _RECIPES / f"{name}.yaml"
    matches = difflib.get_close_matches(str(name), RECIPES, n=1)
    hint = f"; did you mean {matches[0]!r}?" if matches else "."
    raise ConfigurationError(
        f"there is no recipe {reprlib.repr(name)}{hint} The recipes are {', '.join(RECIPES)}; "
        "a file of your own is given with --config"
    )


def _merge(layers: list[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        for name, value in layer.items():
            owner, dot, inner = name.partition(".")
            if nested_type(owner) is not None:
                _merge_nested(values, origins, origin, owner, {inner: value} if dot else value)
            else:
                _check_known(name, TrainConfig, origin)
                values[name], origins[name] = value, origin
    return values, origins


def nested_type(name: str) -> type[BaseModel] | type[dict[str, Any]] | None:
    """Type of the settings nested in a field: a model, `dict` for free names, or None."""
    field = TrainConfig.model_fields.get(name)
    if field is None:
        return None
    for annotation in (field.annotation, *get_args(field.annotation)):
        if get_origin(annotation) is dict:
            return dict
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
    return None


def _merge_nested(values: dict[str, Any], origins: dict[str, str], origin: str, name: str, value: object) -> None:
    """Merge nested settings: off, on, or some settings over the layers below."""
    nested = nested_type(name)
    is_model = nested is not None and issubclass(nested, BaseModel)
    if value in (None, False, "false"):
        for field in [dotted for dotted in origins if dotted.startswith(f"{name}.")]:
            del origins[field]
        may_be_none = type(None) in get_args(TrainConfig.model_fields[name].annotation)
        values[name], origins[name] = (None if may_be_none else {}), origin
        return
    if not isinstance(value, dict) and not (is_model and value in (True, "true")):
        expected = "true, false or its settings" if is_model else "its settings"
        raise ConfigurationError(f"{name} is {reprlib.repr(value)} ({origin}): write {expected}")
    fields = cast("dict[object, Any]", value) if isinstance(value, dict) else {}
    for field in fields:
        if is_model:
            _check_known(str(field), cast("type[BaseModel]", nested), origin, prefix=f"{name}.")
        origins[f"{name}.{field}"] = origin
    values[name] = {**(values.get(name) or {}), **fields}
    origins.setdefault(name, origin)


def _check_known(name: str, model: type[BaseModel], origin: str, *, prefix: str = "") -> None:
    """Raises: ConfigurationError: `name` is no field; the message suggests similar names."""
    if name in model.model_fields:
        return
    known = [f"{prefix}{field}" for field in model.model_fields]
    if model is TrainConfig:
        types = ((owner, nested_type(owner)) for owner in model.model_fields)
        known += [f"{owner}.{field}" for owner, nested in types for field in getattr(nested, "model_fields", ())]
    matches = [name] if name in TrainConfig.model_fields else []
    matches = matches or difflib.get_close_matches(f"{prefix}{name}", known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(matches)}?" if matches else f"there are {', '.join(known)}"
    raise ConfigurationError(f"there is no setting {(prefix + name)[:80]!r} ({origin}); {hint}")


def _explain(error: ValidationError, origins: Mapping[str, str]) -> Iterator[str]:
    found: dict[str, tuple[ErrorDetails, list[str]]] = {}
    for item in error.errors(include_url=False):
        # pydantic reports a problem for each member of a union: they are joined.
        loc = [str(part) for part in item["loc"]]
        name = ".".join(loc[: 1 if nested_type("".join(loc[:1])) is None else 2])
        found.setdefault(name, (item, []))[1].append(item["msg"].removeprefix("Value error, "))
    for name, (item, messages) in found.items():
        problem = ", or: ".join(dict.fromkeys(messages))
        if item["type"] == "missing":
            yield f"{name} is missing: give {_USAGE.get(name, name)}, or `{name}:` in a file for --config"
        elif not name or (item["type"] == "value_error" and nested_type(name) is dict):
            yield problem
        else:
            yield f"{name} is {reprlib.repr(item['input'])} ({origins.get(name, DEFAULT)}): {problem}"


def portable(path: str) -> str:
    """Replace the home folder in a path with `~`, to hide the user's name."""
    home = Path.home()
    if home == Path("/") or not Path(path).is_relative_to(home):
        return path
    return str(Path("~") / Path(path).relative_to(home))


def published(path: str) -> str:
    """Published name of a model, without the user's name where possible.

    An absolute path becomes relative to the working folder, where `AutoPeftModelForCausalLM` looks, if it is inside that
    folder or both are in the home folder. Else `portable` applies.
    """
    working_folder = Path.cwd()
    are_in_home = portable(str(working_folder)) != str(working_folder) and portable(path) != path
    if Path(path).is_absolute() and (are_in_home or Path(path).is_relative_to(working_folder)):
        return os.path.relpath(path, working_folder)
    return portable(path)


def portable_config(config: TrainConfig) -> dict[str, Any]:
    """All fields as plain values, in order, with portable paths."""
    values = config.model_dump(mode="json")
    for name in (name for name in PATH_FIELDS if values[name] is not None):
        value = values[name]
        values[name] = portable(value) if isinstance(value, str) else [*map(portable, value)]
    return values


def to_yaml(config: TrainConfig) -> str:
    """All settings in the form of `train.yaml`."""
    return dump_yaml(portable_config(config)) + "\n"


def explained_yaml(layers: Layered) -> str:
    """All settings with description and origin, as a file for `--config`."""
    return commented_yaml(TrainConfig, portable_config(layers.config), origin=layers.origin, nested_type=nested_type)
