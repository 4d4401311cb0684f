"""Options of a command, made from the fields of a settings model: name, type, default, help and panel."""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperCommand
from typer.models import ArgumentInfo, OptionInfo

from refinesynth.option import PANELS, PLAY, Option

_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)

Path = tuple[str, ...]
"""Field names that lead to a setting, from the outermost model to the setting."""


def option(
    name: str, help_: str | None = None, panel: str | None = None, metavar: str | None = None, **more: Any
) -> Any:
    """Annotation of an option; without `help_`, the help comes from `Options:` in the command's docstring."""
    return typer.Option(name, help=help_, rich_help_panel=panel, metavar=metavar, **more)


def documented(command: Callable[..., None]) -> Callable[..., None]:
    """Move the help of options from `Options:`, the last part of the docstring of `command`, to the options."""
    text, _, arguments = inspect.cleandoc(command.__doc__ or "").partition("\n\nOptions:\n")
    helps = {name: " ".join(words.split()) for name, words in _ARGUMENT.findall(arguments)}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if (info := _info(parameter)) is not None:
            info.help = helps.get(parameter.name, info.help)
    command.__doc__ = text
    return command


def options_from(
    model: type[BaseModel], command: Callable[..., None], *, only: Collection[str] | None = None
) -> Callable[..., None]:
    """Add an option to `command` for each marked field of `model`, nested models included, or for those in `only`.

    Options that were not given are None. A parameter of `command` with a field's name replaces that field's option.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    taken = {parameter.name for parameter in own}
    added = [
        _parameter(name, field, marked)
        for (*_, name), field, marked in _marked(model)
        if name not in taken and (only is None or name in only)
    ]
    arguments = [parameter for parameter in own if not isinstance(_info(parameter), OptionInfo)]
    options = sorted((parameter for parameter in [*own, *added] if parameter not in arguments), key=_panel)

    @wraps(command)
    def called(**typed: Any) -> None:
        command(**typed)

    parameters = [*(parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in arguments), *options]
    called.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue] - for `inspect`
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in [*arguments, *options]}
    return called


def values_by_field(model: type[BaseModel], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Typed values by field of `model`, with nested models as mappings."""
    values: dict[str, Any] = {}
    for (*within, name), _, _ in _marked(model):
        if typed.get(name) is not None:
            inside = values
            for outer in within:
                inside = inside.setdefault(outer, {})
            inside[name] = typed[name]
    return values


def typed_names(model: type[BaseModel], typed: Mapping[str, Any]) -> dict[str, str]:
    """Map each given setting (`grounding.transient` for a nested one) to the name of its option."""
    return {
        ".".join(path): (marked.names or (flag(path[-1]),))[0]
        for path, _, marked in _marked(model)
        if typed.get(path[-1]) is not None
    }


def flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _marked(model: type[BaseModel], within: tuple[str, ...] = ()) -> Iterator[tuple[Path, FieldInfo, Option]]:
    """Path, field and mark of each field that is an option."""
    for name, field in model.model_fields.items():
        if mark := next((item for item in field.metadata if isinstance(item, Option)), None):
            yield (*within, name), field, mark
        elif (inside := _model_in(field.annotation)) is not None:
            yield from _marked(inside, (*within, name))


def _parameter(name: str, field: FieldInfo, marked: Option) -> inspect.Parameter:
    kind = _typed(field.annotation)
    default = field.default if marked.shows_default else None
    described = " ".join((field.description or "").split())
    info = typer.Option(
        *(marked.names or (flag(name),)),
        metavar=marked.metavar,
        # rich reads brackets as style markup.
        help=f"{described}{' Repeat it for more.' if kind == list[str] else ''}".replace("[", "\\["),
        rich_help_panel=marked.panel,
        show_default=str(default) if isinstance(default, str | int | float) and default is not False else False,
    )
    absent = inspect.Parameter.empty if marked.required else None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=absent, annotation=Annotated[kind | None, info]
    )


def _typed(annotation: Any) -> Any:
    """The type of the option for typer; `str` for other fields, such as those of several types."""
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
    metadata = getattr(parameter.annotation, "__metadata__", ())
    return next((item for item in metadata if isinstance(item, OptionInfo | ArgumentInfo)), None)


def _panel(parameter: inspect.Parameter) -> int:
    panel = getattr(_info(parameter), "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else len(PANELS)


class ListsPlays(TyperCommand):
    """Command whose help lists the registered plays, which are looked up when the help is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for option in self.params:
            if option.name == "play":
                option.metavar = f"[{'|'.join(_names())}]"
        super().format_help(ctx, formatter)


def _names() -> tuple[str, ...]:
    from refinesynth.episode import plays

    return tuple(plays.PLAYS.entries())


def _known(name: str | None) -> str | None:
    """Check the name of a play; raises BadParameter for an unknown one."""
    if name is not None and name not in (known := _names()):
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, known))}.")
    return name


PlayOption = Annotated[
    str | None,
    typer.Option(
        "--play",
        rich_help_panel=PLAY,
        callback=_known,
        autocompletion=_names,
        help="DM and Player turn by turn (live, the default), one call for both voices (narrated), or as live in a world that is "
        "executed (grounded); or a play of another package, see docs/plays.md.",
    ),
]
