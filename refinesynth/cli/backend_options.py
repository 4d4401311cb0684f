"""Options `--backend` and `--set` (backends by role, and their settings), and the command `backends`."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated

import orjson
import typer
from rich.table import Table

from refinesynth.backends import Backend, Role, resolve, resolve_roles
from refinesynth.backends.backend import Mixed
from refinesynth.backends.names import PRESETS, resolve_mixture
from refinesynth.backends.providers import key_of, key_variables
from refinesynth.cli.terminal import output, styled
from refinesynth.client.http.transport import MIN_FOR_DIRECT, path_of
from refinesynth.errors import ConfigurationError
from refinesynth.option import MODEL

BackendOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        metavar="[ROLE=]NAME",
        help="A preset, any litellm model string, or `rehearsal` (the default: built in, offline, free). Repeat it with "
        "ROLE= for other models in some roles: script_writer, dungeon_master, player, narrator, repairer, judge. Models that are given "
        "to one role take turns; `repairer=planner` repairs mistakes by a plan, in grounded play.",
        rich_help_panel=MODEL,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="[ROLE.]SETTING=VALUE",
        help="A setting of the backends: base_url, api_key_env, temperature, max_tokens, timeout, requests_per_minute, "
        "tokens_per_minute, output_mode, retries, ...; see docs/backends.md. Repeat it for more.",
        rich_help_panel=MODEL,
    ),
]

_SETTING = re.compile(r"(?:(?P<role>[a-z_-]+)\.)?(?P<name>[a-z_]+)\s*=(?P<value>.*)", re.DOTALL | re.IGNORECASE)

_ROLES = ("default", *(role.value for role in Role))
_ROLE = re.compile(r"([A-Za-z][A-Za-z_-]*)=(.*)", re.DOTALL)
"""`ROLE=NAME`, such as `player=gpt-4o`. A model string with a provider (`openai/NAME`) does not match."""


def backend_spec(options: Sequence[str]) -> str | dict[str, str | list[str]] | None:
    """Parse the values of `--backend`: one name for all roles, or a mapping by role; None without values.

    A role that is named more than once gets several backends, which take turns.

    Raises:
        ConfigurationError: A role is unknown, a name is blank, or two backends are given for all roles.
    """
    chosen: dict[str, list[str]] = {}
    for text in options:
        match = _ROLE.fullmatch(text.strip())
        role, spec = (match[1].casefold().replace("-", "_"), match[2]) if match else ("default", text)
        if role not in _ROLES:
            similar = get_close_matches(role, _ROLES, n=1)
            raise ConfigurationError(
                f"--backend {text!r}: there is no role {role!r}; the roles are {', '.join(_ROLES)}"
                + (f". Did you mean {similar[0]}={spec}?" if similar else "")
            )
        if role in chosen and role == "default":
            raise ConfigurationError(
                f"--backend: {role} is given twice, {chosen[role][0]!r} and {spec!r}; give it once. Several can take turns in one "
                f"role, such as player={chosen[role][0]} and player={spec}"
            )
        if not spec.strip():
            raise ConfigurationError(f"--backend {text!r} names no backend; `refinesynth backends` lists the names")
        chosen.setdefault(role, []).append(spec.strip())
    if not chosen:
        return None
    if chosen.keys() == {"default"}:
        return chosen["default"][0]
    return {role: specs if len(specs) > 1 else specs[0] for role, specs in chosen.items()}


def tuned(
    spec: str | Mapping[str, str | Sequence[str]], settings: Sequence[str]
) -> str | Mapping[str, str | Sequence[str] | Backend]:
    """Apply `[ROLE.]SETTING=VALUE` to `spec`, settings without a role first; raises ConfigurationError."""
    if not settings:
        return spec
    by_role = {"default": spec} if isinstance(spec, str) else spec
    resolved = {role: resolve_mixture(role, role_spec) for role, role_spec in by_role.items()}
    parsed = _parsed(settings)
    for role, name in sorted(parsed, key=lambda key: (key[0] is not None, key[1] == "max_tokens")):
        value = parsed[role, name]
        if role is None:
            resolved = {key: _with_setting(backend, name, value) for key, backend in resolved.items()}
        elif role not in _ROLES:
            raise ConfigurationError(
                f"--set {role}.{name}: there is no role {role!r}; the roles are {', '.join(_ROLES)}"
            )
        elif role == Role.REPAIRER and role not in resolved:
            # A setting must not add a repairer to a run without one.
            raise ConfigurationError(
                f"--set {role}.{name} is given, and no backend for the {role}; add --backend {role}=NAME"
            )
        else:
            # A role without its own backend starts from the backend that it would resolve to.
            backend = resolved[role] if role in resolved else resolve_roles(resolved)[Role(role)]
            resolved[role] = _with_setting(backend, name, value)
    return resolved


def split_fallback(settings: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split settings into those of the fallback (`fallback.SETTING=VALUE`, prefix removed) and the others."""
    prefix = "fallback."
    fallback_settings = [text for text in settings if text.strip().casefold().startswith(prefix)]
    others = [text for text in settings if text not in fallback_settings]
    return [text.strip()[len(prefix) :] for text in fallback_settings], others


def tuned_fallback(name: str | None, settings: Sequence[str]) -> str | Backend | None:
    """The fallback with its settings; raises ConfigurationError for settings without a fallback."""
    if name is None:
        if settings:
            raise ConfigurationError("--set fallback.SETTING=VALUE is given without --fallback NAME; name one")
        return None
    return tuned_backend(name, settings) if settings else name


def tuned_backend(name: str | Backend, settings: Sequence[str]) -> Backend:
    """Resolve one backend for all roles and apply its settings; raises ConfigurationError."""
    backend = resolve(name)
    for (role, setting), value in _parsed(settings).items():
        if role is not None:
            raise ConfigurationError(f"--set {role}.{setting}: there are no roles here; write {setting}=VALUE")
        backend = _with_setting(backend, setting, value)
    return backend


def _parsed(settings: Sequence[str]) -> dict[tuple[str | None, str], object]:
    """Values by role, None for all roles, and setting."""
    values: dict[tuple[str | None, str], object] = {}
    for text in settings:
        match = _SETTING.fullmatch(text.strip())
        if match is None:
            # The message omits the value, which may be an API key.
            raise ConfigurationError(
                f"--set {text.partition('=')[0]!r}: write [ROLE.]SETTING=VALUE, as in temperature=0.7 or player.base_url=http://127.0.0.1:8000/v1"
            )
        key = match["role"] and match["role"].casefold().replace("-", "_"), match["name"].casefold()
        if key in values:
            raise ConfigurationError(f"--set {'.'.join(filter(None, key))} is given twice; give it once")
        values[key] = value_of(match["value"].strip())
    return values


def value_of(text: str) -> object:
    """Parse text as JSON; return the text itself if it is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _with_setting(backend: Backend, name: str, value: object) -> Backend:
    if len(backend.members) > 1:
        return Mixed.of([_with_setting(part, name, value) for part in backend.members])
    known = [field for field in Backend.model_fields if field not in {"model", "name"}]
    if name not in known:
        similar = get_close_matches(name, known, n=1)
        hint = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(known)}"
        raise ConfigurationError(f"--set {name}: a backend has no setting {name!r}; {hint}")
    if name == "extra" and not isinstance(value, dict):
        # The message omits the value, which may contain an API key.
        actual = "a text that is no JSON" if isinstance(value, str) else "other JSON"
        raise ConfigurationError(
            f'--set extra: expected a JSON object, such as \'extra={{"reasoning_effort": "low"}}\', and got {actual}; '
            f"single quotes around it keep the shell away from it"
        )
    settings: dict[str, object] = {**backend.model_dump(), name: value}
    if name == "max_tokens":  # null also removes the default bound of the role
        extra = {key: item for key, item in backend.extra.items() if key != name or item is not None}
        settings["extra"] = extra if value is not None else {**extra, name: None}
    try:
        return Backend.model_validate(settings)
    except ConfigurationError as error:
        reason = str(error).removeprefix("Backend: ").removeprefix(f"{name}: ")
        raise ConfigurationError(f"--set {name}: {reason}") from None


def backends() -> None:
    """List the backends by name, with their models, how requests travel and whether the keys are set (never the
    keys).
    """
    console = output()
    table = Table.grid(padding=(0, 2))
    for name, preset in PRESETS.items():
        variable = next(iter(key_variables(preset.backend)), None)
        is_set = key_of(preset.backend) is not None
        key = styled("needs no key", "dim")
        if variable is not None:
            key = styled(f"{variable} {'✓ set' if is_set else '✗ not set'}", "green" if is_set else "dim")
        path = path_of(preset.backend, in_flight=MIN_FOR_DIRECT).path
        table.add_row(styled(name, "bold"), styled(preset.backend.model), styled(path, "dim"), key)
    console.print(table)
    console.print()
    for name, preset in PRESETS.items():
        console.print(styled(f"{name}: {preset.note}", "dim"))
