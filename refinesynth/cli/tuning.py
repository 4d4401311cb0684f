"""`--set`: settings of the backends, such as a temperature or a server's address, by role."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import orjson

from refinesynth.errors import ConfigurationError

if TYPE_CHECKING:
    from refinesynth.backends import Backend

_SETTING = re.compile(r"(?:(?P<role>[a-z_-]+)\.)?(?P<name>[a-z_]+)\s*=(?P<value>.*)", re.DOTALL | re.IGNORECASE)


def tuned(
    spec: "str | Mapping[str, str | Sequence[str]]", settings: Sequence[str]
) -> "str | Mapping[str, str | Sequence[str] | Backend]":
    """`spec` with `[ROLE.]SETTING=VALUE` applied: without a role to every backend, then by role, to all that take turns
    in it.

    Raises:
        ConfigurationError: No such role or setting, or a value that it does not take.
    """
    if not settings:
        return spec
    from refinesynth.backends import Role, resolve_roles
    from refinesynth.backends.names import resolve_mixture

    named = {"default": spec} if isinstance(spec, str) else spec
    tuned = {role: resolve_mixture(role, given) for role, given in named.items()}
    parsed = [_parse(text) for text in settings]
    for role, name, value in sorted(parsed, key=lambda setting: setting[0] is not None):
        if role is None:
            tuned = {each: _with(backend, name, value) for each, backend in tuned.items()}
        elif role == "default" or role in set(Role):
            # A role of its own begins as what it would have been.
            backend = tuned[role] if role in tuned else resolve_roles(tuned)[Role(role)]
            tuned[role] = _with(backend, name, value)
        else:
            known = ", ".join(["default", *(each.value for each in Role)])
            raise ConfigurationError(f"--set {role}.{name}: there is no role {role!r}; the roles are {known}")
    return tuned


FALLBACK = "fallback"


def split_fallback(settings: Sequence[str]) -> tuple[list[str], list[str]]:
    """The settings of the fallback (`fallback.SETTING=VALUE`, without that prefix), and the others."""
    of_fallback: list[str] = []
    others: list[str] = []
    for text in settings:
        role, _, rest = text.strip().partition(".")
        if role.casefold() == FALLBACK:
            of_fallback.append(rest)
        else:
            others.append(text)
    return of_fallback, others


def tuned_fallback(name: str | None, settings: Sequence[str]) -> "str | Backend | None":
    """The fallback with its settings; None if there is none.

    Raises:
        ConfigurationError: There are settings and no fallback, or one of them cannot be.
    """
    if name is None:
        if settings:
            raise ConfigurationError("--set fallback.SETTING=VALUE is given without --fallback NAME; name one")
        return None
    return tuned_backend(name, settings) if settings else name


def tuned_backend(name: "str | Backend", settings: Sequence[str]) -> "Backend":
    """One backend, for all roles, with its settings.

    Raises:
        ConfigurationError: There is no such backend or setting.
    """
    from refinesynth.backends import resolve

    found = resolve(name)
    for text in settings:
        role, setting, value = _parse(text)
        if role is not None:
            raise ConfigurationError(f"--set {role}.{setting}: there are no roles here; write {setting}=VALUE")
        found = _with(found, setting, value)
    return found


def _parse(text: str) -> tuple[str | None, str, object]:
    found = _SETTING.fullmatch(text.strip())
    if found is None:
        # Never the value: it may be a key.
        raise ConfigurationError(
            f"--set {text.partition('=')[0]!r}: write [ROLE.]SETTING=VALUE, as in temperature=0.7 or player.base_url=http://127.0.0.1:8000/v1"
        )
    role = found["role"] and found["role"].casefold().replace("-", "_")
    return role, found["name"].casefold(), _value(found["value"].strip())


def _value(text: str) -> object:
    """JSON where it is JSON, else the text itself, which needs no quotes."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _with(backend: "Backend", name: str, value: object) -> "Backend":
    from refinesynth.backends import Backend
    from refinesynth.backends.backend import RETIRED, Mixed

    if len(backend.each) > 1:
        return Mixed.of([_with(one, name, value) for one in backend.each])
    if name in RETIRED:
        from refinesynth.cli.terminal import notes

        notes().print(f"--set {name} has no effect any more; {RETIRED[name]}", style="yellow")
        return backend
    known = [field for field in Backend.model_fields if field not in {"model", "name"}]
    if name not in known:
        near = get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ConfigurationError(f"--set {name}: a backend has no setting {name!r}; {meant}")
    if name == "extra" and not isinstance(value, dict):
        # Never the value, in which a key may stand.
        raise ConfigurationError(
            f'--set extra: expected a JSON object, such as \'extra={{"reasoning_effort": "low"}}\', and got {_what(value)}; '
            f"single quotes around it keep the shell away from it"
        )
    try:
        return Backend.model_validate({**backend.model_dump(), name: value})
    except ConfigurationError as error:
        says = str(error).removeprefix("Backend: ").removeprefix(f"{name}: ")
        raise ConfigurationError(f"--set {name}: {says}") from None


def _what(value: object) -> str:
    """What was given instead of an object, without its words."""
    if isinstance(value, str):
        try:
            orjson.loads(value)
        except orjson.JSONDecodeError as error:
            return f"no JSON ({error})"
    return "other JSON"
