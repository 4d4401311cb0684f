"""Settings from a file beside arguments; functions with the parameters of another."""

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from os import PathLike
from pathlib import Path
from reprlib import repr as shortened
from textwrap import fill
from typing import Any, ParamSpec, TypeVar, cast

from pydantic import BaseModel

from refinesynth.errors import ConfigurationError
from refinesynth.settings import RunSettings
from refinesynth.settings.run import with_present_names

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R")
_S = TypeVar("_S")

_ARG = " " * 4


def settings_of(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the settings in a file, by name. Raises InputError: it cannot be read, or has an unknown setting."""
    from refinesynth.files.settings_file import read_settings

    found = with_present_names(read_settings(Path(path)))
    for name in found.keys() - RunSettings.model_fields.keys():
        near = get_close_matches(name, RunSettings.model_fields, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(RunSettings.model_fields)}"
        raise ConfigurationError(f"{str(path)!r}: there is no setting {shortened(name)}; {meant}")
    for name in found.keys() & {"backend", "fallback"}:
        found[name] = _backends(found[name])
    return found


def _backends(given: Any) -> Any:
    """Return names, or the backend that a file describes by settings (`{model: NAME, temperature: 0.7}`)."""
    from refinesynth.backends import Backend, resolve

    if isinstance(given, list):
        return [_backends(one) for one in cast("list[Any]", given)]
    if not isinstance(given, dict):
        return given
    settings = cast("dict[str, Any]", given)
    if "model" not in settings:
        return {role: _backends(one) for role, one in settings.items()}
    base = resolve(str(settings["model"]))
    try:
        return Backend.model_validate({**dict(base), **settings, "model": base.model})
    except ConfigurationError as error:
        raise ConfigurationError(f"the backend {settings['model']!r}: {str(error).removeprefix('Backend: ')}") from None


def merged(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given arguments, and from the file in `config` all others."""
    rest = {name: value for name, value in given.items() if name != "config"}
    return rest if given.get("config") is None else {**settings_of(given["config"]), **rest}


def _bound(name: str, signature: inspect.Signature, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
    """Return arguments by the name of their parameter. Raises TypeError: one has none; the nearest is named."""
    kwargs = with_present_names(kwargs)
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        unknown = next((one for one in kwargs if one not in signature.parameters), None)
        near = [] if unknown is None else get_close_matches(unknown, signature.parameters, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"{name}() {error}{meant}") from None


def configured(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function with an argument `config`, a file from which settings without an argument are taken."""
    signature = inspect.signature(function)
    further = next((one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD), None)

    @wraps(function)
    def with_file(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given = dict(_bound(function.__name__, signature, *args, **kwargs))
        return function(**merged({**given.pop(further or "", {}), **given}))  # pyright: ignore[reportCallIssue] - as bound

    return with_file


def described_by(model: type[BaseModel]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Put the descriptions of a model's fields into the `Args:` of a function, before those that it has."""

    def with_descriptions(function: Callable[_P, _R]) -> Callable[_P, _R]:
        head, section, rest = inspect.cleandoc(function.__doc__ or "").partition("Args:\n")
        args = [
            fill(
                f"{name}: {model.model_fields[name].description}", 116, initial_indent=_ARG, subsequent_indent=2 * _ARG
            )
            for name in inspect.signature(function).parameters
            if name in model.model_fields
        ]
        function.__doc__ = "\n".join([f"{head}{section}".rstrip("\n"), *args, rest])
        return function

    return with_descriptions


def takes_what(other: Callable[_P, _R]) -> Callable[[Callable[_Q, _S]], Callable[_P, _S]]:
    """Give a function of keyword arguments the parameters of `other`, for editors and `help` too."""
    signature = inspect.signature(other)

    def with_its_signature(function: Callable[_Q, _S]) -> Callable[_P, _S]:
        @wraps(function)
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _S:
            return function(**_bound(function.__name__, signature, *args, **kwargs))  # pyright: ignore[reportCallIssue] - as bound

        called.__signature__ = signature.replace(return_annotation=inspect.signature(function).return_annotation)  # pyright: ignore[reportAttributeAccessIssue] - what `inspect` reads
        return called

    return with_its_signature
