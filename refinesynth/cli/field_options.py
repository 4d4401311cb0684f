"""Options of a command, made from the fields of a settings model: name, type, default, help and panel."""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from enum import Enum
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo, OptionInfo

from refinesynth.option import PANELS, PLAY, Option

_DESCRIPTION = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)

Path = tuple[str, ...]
"""Field names that lead to a setting, from the outermost model to the setting."""


def option(*names: str, panel: str | None = None, **extra: Any) -> Any:
    """Annotation of an option, by default `--NAME` of the parameter; `extra` is for `typer.Option`."""
    return typer.Option(*names, rich_help_panel=panel, **extra)


def with_options(
    command: Callable[..., None], model: type[BaseModel] | None = None, field_names: Collection[str] | None = None
) -> Callable[..., None]:
    """Return `command` with the help of `Options:`, the last part of its docstring, and the options of `model`.

    A parameter with a name that has no annotation of typer is the option `--NAME`. Each marked field of `model`, nested
    models included, or each of `field_names` is an option, unless a parameter has its name. Options that were not given
    are None.
    """
    signature = inspect.signature(command, eval_str=True)
    text, _, descriptions = inspect.cleandoc(command.__doc__ or "").partition("\n\nOptions:\n")
    help_by_name = {name: " ".join(words.split()) for name, words in _DESCRIPTION.findall(descriptions)}
    declared = [
        _described(parameter, help_by_name.get(parameter.name))
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    declared_names = {parameter.name for parameter in declared}
    added = [
        _parameter(name, field, mark)
        for (*_, name), field, mark in (() if model is None else _option_fields(model))
        if name not in declared_names and (field_names is None or name in field_names)
    ]
    arguments = [parameter for parameter in declared if not isinstance(_typer_info(parameter), OptionInfo)]
    options = [parameter for parameter in [*declared, *added] if parameter not in arguments]
    if added:
        options.sort(key=_panel_index)

    @wraps(command)
    def wrapper(**typed: Any) -> None:
        command(**typed)

    parameters = [*(parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in arguments), *options]
    wrapper.__doc__ = text
    wrapper.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue] - for `inspect`
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _described(parameter: inspect.Parameter, description: str | None) -> inspect.Parameter:
    info = _typer_info(parameter)
    if info is None and parameter.kind is not parameter.KEYWORD_ONLY:
        return parameter  # The context.
    kind = parameter.annotation if info is None else parameter.annotation.__origin__
    info = typer.Option() if info is None else copy(info)
    if isinstance(info, OptionInfo) and info.default is ... and not info.param_decls:
        # By itself, typer would add `--no-NAME`.
        info.param_decls = (flag(parameter.name),)
    info.help = description or info.help
    return parameter.replace(annotation=Annotated[kind, info])


def values_by_field(model: type[BaseModel], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Typed values by field of `model`, with nested models as mappings."""
    values: dict[str, Any] = {}
    for (*parents, name), _, _ in _option_fields(model):
        if typed.get(name) is not None:
            target = values
            for parent in parents:
                target = target.setdefault(parent, {})
            target[name] = typed[name]
    return values


def option_names(model: type[BaseModel], typed: Mapping[str, Any]) -> dict[str, str]:
    """Map each given setting (`grounding.transient` for a nested one) to the name of its option."""
    return {
        ".".join(path): (mark.names or (flag(path[-1]),))[0]
        for path, _, mark in _option_fields(model)
        if typed.get(path[-1]) is not None
    }


def flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _option_fields(model: type[BaseModel], parents: tuple[str, ...] = ()) -> Iterator[tuple[Path, FieldInfo, Option]]:
    """Path, field and mark of each field that is an option."""
    for name, field in model.model_fields.items():
        if mark := next((item for item in field.metadata if isinstance(item, Option)), None):
            yield (*parents, name), field, mark
        elif (nested := _nested_model(field.annotation)) is not None:
            yield from _option_fields(nested, (*parents, name))


def _parameter(name: str, field: FieldInfo, mark: Option) -> inspect.Parameter:
    kind = _option_type(field.annotation)
    default = field.default if mark.shows_default else None
    description = " ".join((field.description or "").split())
    info = typer.Option(
        *(mark.names or (flag(name),)),
        metavar=mark.metavar,
        # rich reads brackets as style markup.
        help=f"{description}{' Repeat it for more.' if kind == list[str] else ''}".replace("[", "\\["),
        rich_help_panel=mark.panel,
        show_default=str(default) if isinstance(default, str | int | float) and default is not False else False,
    )
    absent = inspect.Parameter.empty if mark.required else None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=absent, annotation=Annotated[kind | None, info]
    )


def _option_type(annotation: Any) -> Any:
    """The type of the option for typer; `str` for other fields, such as those of several types."""
    alternatives = [alternative for alternative in _alternatives(annotation) if alternative is not NoneType]
    if len(alternatives) != 1:
        return str
    kind: Any = alternatives[0]
    if get_origin(kind) is tuple and get_args(kind)[-1] is ...:
        return list[str]
    is_enum = isinstance(kind, type) and issubclass(cast("type[object]", kind), Enum)
    return kind if is_enum or kind in {bool, int, float} or get_origin(kind) is Literal else str


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        return [kind for argument in get_args(annotation) for kind in _alternatives(argument)]
    return [annotation]


def _nested_model(annotation: Any) -> type[BaseModel] | None:
    models = (kind for kind in _alternatives(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel))
    return next(models, None)


def _typer_info(parameter: inspect.Parameter) -> OptionInfo | ArgumentInfo | None:
    metadata = getattr(parameter.annotation, "__metadata__", ())
    return next((item for item in metadata if isinstance(item, OptionInfo | ArgumentInfo)), None)


def _panel_index(parameter: inspect.Parameter) -> int:
    panel = getattr(_typer_info(parameter), "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else len(PANELS)


PlayOption = Annotated[
    str | None,
    typer.Option(
        "--play",
        rich_help_panel=PLAY,
        help="DM and Player turn by turn (live, the default), one call for both voices (narrated), or as live in a world that is "
        "executed (grounded); or a play of another package, see docs/plays.md.",
    ),
]
