"""Options of a command, made from the fields of a settings model: name, type, default, help and panel."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo, OptionInfo

from refinesynth.option import PANELS, Option


def options_from(
    model: type[BaseModel], command: Callable[..., None], *, only: Collection[str] | None = None
) -> Callable[..., None]:
    """`command` with an option for each marked field of `model` (those of nested models included), or of `only`.

    Options that were not given are None. A parameter of `command` with a field's name replaces that field's option.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    taken = {each.name for each in own}
    made = [
        _parameter(name, field, option)
        for name, field, option in _marked(model)
        if name not in taken and (only is None or name in only)
    ]
    arguments = [each for each in own if not isinstance(_info(each), OptionInfo)]
    options = sorted((each for each in [*own, *made] if each not in arguments), key=_panel)

    @wraps(command)
    def called(**typed: Any) -> None:
        command(**typed)

    parameters = [*(each.replace(kind=each.KEYWORD_ONLY) for each in arguments), *options]
    called.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue] - for `inspect`
    called.__annotations__ = {each.name: each.annotation for each in [*arguments, *options]}
    return called


def given(model: type[BaseModel], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Typed values by field of `model`, those of nested models in mappings."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if (inside := _model_in(field.annotation)) is not None and _option(field) is None:
            if within := given(inside, typed):
                found[name] = within
        elif typed.get(name) is not None and _option(field) is not None:
            found[name] = typed[name]
    return found


def typed_names(model: type[BaseModel], typed: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Setting (`grounding.transient` for a nested one) to the option by which it was typed."""
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        if (option := _option(field)) is not None:
            if typed.get(name) is not None:
                found[f"{prefix}{name}"] = (option.names or (flag(name),))[0]
        elif (inside := _model_in(field.annotation)) is not None:
            found |= typed_names(inside, typed, f"{prefix}{name}.")
    return found


def flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _marked(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo, Option]]:
    for name, field in model.model_fields.items():
        if (option := _option(field)) is not None:
            yield name, field, option
        elif (inside := _model_in(field.annotation)) is not None:
            yield from _marked(inside)


def _option(field: FieldInfo) -> Option | None:
    return next((each for each in field.metadata if isinstance(each, Option)), None)


def _parameter(name: str, field: FieldInfo, option: Option) -> inspect.Parameter:
    kind = _typed(field.annotation)
    default = field.default if option.shows_default else None
    described = " ".join((field.description or "").split())
    info = typer.Option(
        *(option.names or (flag(name),)),
        metavar=option.metavar,
        # In brackets, rich would read a style.
        help=f"{described}{' Repeat it for more.' if kind == list[str] else ''}".replace("[", "\\["),
        rich_help_panel=option.panel,
        show_default=str(default) if isinstance(default, str | int | float) and default is not False else False,
    )
    absent = inspect.Parameter.empty if option.required else None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=absent, annotation=Annotated[kind | None, info]
    )


def _typed(annotation: Any) -> Any:
    """The type that typer reads; text for fields that take several types."""
    alternatives = [each for each in _alternatives(annotation) if each is not NoneType]
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
        return [kind for each in get_args(annotation) for kind in _alternatives(each)]
    return [annotation]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    models = (each for each in _alternatives(annotation) if isinstance(each, type) and issubclass(each, BaseModel))
    return next(models, None)


def _info(parameter: inspect.Parameter) -> OptionInfo | ArgumentInfo | None:
    found = getattr(parameter.annotation, "__metadata__", ())
    return next((each for each in found if isinstance(each, OptionInfo | ArgumentInfo)), None)


def _panel(parameter: inspect.Parameter) -> int:
    panel = getattr(_info(parameter), "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else len(PANELS)
