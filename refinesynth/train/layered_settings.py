"""Settings from layers (defaults < recipe < file < options), and as YAML with the origin of each value."""

import difflib
import os
import re
import reprlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from refinesynth.errors import ConfigurationError
from refinesynth.files.settings_file import dumped, explained, read_settings
from refinesynth.train.config import PATHS, TrainConfig, bare

_RECIPES = Path(__file__).with_name("recipes")
RECIPES: Final = ("paper-8b", "paper-70b", "lora", "smoke")
"""Names of the built-in recipes."""

DEFAULT: Final = "default"
TO_BE_GIVEN: Final = "to be given"
_THEIR_NAMES: Final = {
    "learning_rate": ["lr"],
    "schedule": ["lr_scheduler_type"],
    "epochs": ["num_train_epochs"],
    "max_steps": ["max_train_steps"],
    "batch_size": ["per_device_train_batch_size", "gradient_accumulation_steps"],
    "tokens_per_pack": ["per_device_eval_batch_size"],
    "warmup": ["warmup_ratio", "warmup_steps"],
    "adam_betas": ["adam_beta1", "adam_beta2"],
    "evaluate_every": ["eval_steps", "eval_strategy"],
    "save_every": ["save_steps", "save_strategy"],
    "log_every": ["logging_steps", "logging_strategy"],
    "keep": ["save_total_limit"],
    "device": ["use_cpu"],
    "gradient_checkpointing": ["gradient_checkpointing_kwargs"],
    "parallel": ["fsdp", "fsdp_config"],
    "precision": ["bf16", "fp16"],
    "resume": ["resume_from_checkpoint"],
    "output": ["output_dir"],
}
OTHER_NAMES: Final = {theirs: ours for ours, names in _THEIR_NAMES.items() for theirs in names}
"""Settings by their names in other libraries, mostly transformers."""
_INSTEAD: Final = {
    "plots": "TensorBoard (--tensorboard) and trackers (trainer.report_to) draw the curves",
    **dict.fromkeys(
        ("trainer.torch_compile", "trainer.torch_compile_backend", "trainer.torch_compile_mode"),
        "packs differ in shape, and compiling each shape takes longer than it saves",
    ),
    "trainer.ddp_backend": "GPUs use nccl, and CPUs gloo",
    "trainer.ddp_bucket_cap_mb": "DDP has torch's buckets",
    "trainer.torch_empty_cache_steps": "take fewer tokens_per_pack where memory is short",
    **dict.fromkeys(
        ("trainer.use_liger_kernel", "trainer.liger_kernel_config"),
        "apply liger-kernel's own patch to the model's class before the training",
    ),
}
RETIRED: Final = {name: f"setting {name} is removed and ignored; {instead}" for name, instead in _INSTEAD.items()}
"""Messages for removed settings, by name; old files may contain these settings."""
_RECIPE: Final = "recipe"
_HOW_TO_GIVE: Final = {
    "data": "DATA...",
    "model": "--model NAME-OR-FOLDER (on the Hugging Face Hub, or here), --model scratch (a tiny random one, made from the data, to see "
    "a training run)",
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
    read = partial(read_settings, nested=lambda name: settings_in(name) is not None)
    written, given = {} if file is None else read(file), dict(given or {})
    of_file, of_given = written.pop(_RECIPE, None), given.pop(_RECIPE, None)
    recipe = of_given if recipe is None else recipe
    named = of_file if recipe is None else recipe
    layers = [(f"recipe {named}", read(_find_recipe(named)))] if named is not None else []
    layers += [(str(file), written), (given_by, given)]
    values, origins = _merged(layers)
    if named is not None:
        values[_RECIPE], origins[_RECIPE] = named, given_by if recipe is not None else str(file)
    values.update((name, _at_home(values[name])) for name in PATHS if name in values)
    try:
        origins.update((name, TO_BE_GIVEN) for name in defaults or {} if name not in values)
        return Layered(TrainConfig.model_validate({**(defaults or {}), **values}), origins)
    except ValidationError as error:
        raise ConfigurationError("\n".join(_explained(error, origins))) from None


def _at_home(value: object) -> object:
    def expanded(one: object) -> object:
        return str(Path(one).expanduser()) if isinstance(one, str) and one.startswith("~/") else one

    return [*map(expanded, cast("Iterable[object]", value))] if isinstance(value, list | tuple) else expanded(value)


def _find_recipe(name: object) -> Path:
    if name in RECIPES:
        return _RECIPES / f"{name}.yaml"
    near = difflib.get_close_matches(str(name), RECIPES, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    raise ConfigurationError(
        f"there is no recipe {reprlib.repr(name)}{meant} The recipes are {', '.join(RECIPES)}; "
        "a file of your own is given with --config"
    )


def _merged(layers: list[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        for name, value in layer.items():
            owner, dot, inner = name.partition(".")
            if settings_in(owner) is not None:
                _merge_inside(values, origins, origin, owner, {inner: value} if dot else value)
            elif not _is_retired(name, value):
                _check_known(name, TrainConfig, origin)
                values[name], origins[name] = value, origin
    return values, origins


def _is_retired(name: str, value: object) -> bool:
    """Return True for removed settings, with a warning if the setting is on. Old files have an empty `optim_args`."""
    if name in RETIRED and value not in (None, False, {}):
        warnings.warn(RETIRED[name], FutureWarning, stacklevel=5)
    return name in RETIRED or (name == "trainer.optim_args" and not value)


def settings_in(name: str) -> type[BaseModel] | type[dict[str, Any]] | None:
    """Type of the settings nested in a field: a model, `dict` for free names, or None."""
    field = TrainConfig.model_fields.get(name)
    if field is None:
        return None
    for each in (field.annotation, *get_args(field.annotation)):
        if get_origin(each) is dict:
            return dict
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def _merge_inside(values: dict[str, Any], origins: dict[str, str], origin: str, name: str, value: object) -> None:
    """Merge nested settings: off, on, or some settings over the layers below."""
    inside = settings_in(name)
    is_model = inside is not None and issubclass(inside, BaseModel)
    if value in (None, False, "false"):
        for each in [each for each in origins if each.startswith(f"{name}.")]:
            del origins[each]
        may_be_none = type(None) in get_args(TrainConfig.model_fields[name].annotation)
        values[name], origins[name] = (None if may_be_none else {}), origin
        return
    if not isinstance(value, dict) and not (is_model and value in (True, "true")):
        how = "true, false or its settings" if is_model else "its settings"
        raise ConfigurationError(f"{name} is {reprlib.repr(value)} ({origin}): write {how}")
    fields = cast("dict[object, Any]", value) if isinstance(value, dict) else {}
    settings = {each: of for each, of in fields.items() if not _is_retired(f"{name}.{each}", of)}
    for each in settings:
        if is_model:
            _check_known(str(each), cast("type[BaseModel]", inside), origin, prefix=f"{name}.")
        origins[f"{name}.{each}"] = origin
    values[name] = {**(values.get(name) or {}), **settings}
    origins.setdefault(name, origin)


def _check_known(name: str, model: type[BaseModel], origin: str, *, prefix: str = "") -> None:
    """Raises: ConfigurationError: `name` is no field; the message suggests similar names."""
    if name in model.model_fields:
        return
    known = [f"{prefix}{field}" for field in model.model_fields]
    if model is TrainConfig:
        inside = ((owner, settings_in(owner)) for owner in model.model_fields)
        known += [f"{owner}.{each}" for owner, of in inside for each in getattr(of, "model_fields", ())]
    short = name if name in TrainConfig.model_fields else OTHER_NAMES.get(name)
    if short is not None and prefix != "lora.":
        near = [short]
    else:
        near = difflib.get_close_matches(f"{prefix}{name}", known, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    if name.startswith(("push_to_hub", "hub_")):
        meant = "a finished model is pushed with the hub's own command: hf upload OWNER/NAME FOLDER"
    if name == "optim_args":
        meant = "an optimizer has its own defaults beside learning_rate and adam_betas; leave it out"
    raise ConfigurationError(f"there is no setting {(prefix + name)[:80]!r} ({origin}); {meant}")


def _explained(error: ValidationError, origins: Mapping[str, str]) -> Iterator[str]:
    seen: set[str] = set()
    for item in error.errors(include_url=False):
        # pydantic reports a problem for each member of a union: one per field is enough.
        loc = [str(part) for part in item["loc"]]
        name = ".".join(loc[: 1 if settings_in("".join(loc[:1])) is None else 2])
        if name in seen:
            continue
        seen.add(name)
        problem = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            yield f"{name} is missing: give {_HOW_TO_GIVE.get(name, name)}, or `{name}:` in a file for --config"
        elif not name or (item["type"] == "value_error" and settings_in(name) is dict):
            yield problem
        else:
            origin = origins.get(name, DEFAULT)
            yield f"{name} is {reprlib.repr(item['input'])} ({origin}): {_EXPECTED.get(name, problem)}"


_EXPECTED: Final = {
    "data": "expected a list of names, each with its weight if it has one, without a blank: [runs/a, 'runs/b:0.3']",
    "evaluate_every": "expected epoch, never, a share of an epoch (below 1) or a number of steps (from 1 on)",
    "save_every": "expected epoch, never, a share of an epoch (below 1) or a number of steps (from 1 on)",
    "keep": "expected all, or a number from 1 on",
    "gradient_checkpointing": "expected auto, true or false",
    "adam_betas": "expected two numbers from 0 to below 1, as in [0.9, 0.999]",
}
"""Messages for unions and pairs, for which pydantic reports each member separately."""


_CACHED: Final = re.compile(r"models--(?P<name>[^/]+)/snapshots/(?P<revision>[^/]+)/?$")


def portable(path: str) -> str:
    """Replace the home folder in a path with `~`, to hide the user's name."""
    home = Path.home()
    if home == Path("/") or not Path(path).is_relative_to(home):
        return path
    return str(Path("~") / Path(path).relative_to(home))


def published(model: str, revision: str | None = None) -> tuple[str, str | None]:
    """Published name and revision of a model, without the user's name where possible.

    A folder in the hub's cache gets its hub name. Another absolute path becomes relative to the working folder, where
    `AutoPeftModelForCausalLM` looks, if the path is inside it or both are in the home folder. Else `portable` applies.
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
    """All fields as plain values, in order, with portable paths."""
    values = config.model_dump(mode="json")
    for name in (name for name in PATHS if values[name] is not None):
        value = values[name]
        values[name] = portable(value) if isinstance(value, str) else [*map(portable, value)]
    return values


def to_yaml(config: TrainConfig) -> str:
    """All settings in the form of `train.yaml`, with `resume: auto`."""
    config = config.model_copy(update={"resume": "auto"})
    return dumped(portable_config(config)) + "\n"


def explained_yaml(layers: Layered) -> str:
    """All settings with description and origin, as a file for `--config`."""
    return explained(TrainConfig, portable_config(layers.config), origin=layers.origin, inside=settings_in)
