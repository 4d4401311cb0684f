"""Names of backends: presets, the rehearsal with its faults, runs to replay, litellm model strings, roles."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, JsonValue, ValidationError

from refinesynth.backends.backend import REHEARSAL, Backend, Mixed
from refinesynth.backends.presets import PRESETS
from refinesynth.backends.providers import known_models, known_providers
from refinesynth.backends.role import Role
from refinesynth.errors import ConfigurationError
from refinesynth.trajectory import explain

if TYPE_CHECKING:
    from refinesynth.rehearsal import Faults


REPLAY = "replay"


def _as_list(value: object) -> object:
    return cast("object", value) if isinstance(value, list) else [value]


_Settings = Annotated[tuple[Mapping[str, JsonValue], ...], BeforeValidator(_as_list)]
"""Settings of a role's backends; more than one for a mixture."""


class ReplayedRun(BaseModel, frozen=True, extra="ignore"):
    """Part of a run's config.json that a replay needs. `run.RunConfig` describes the whole file; this package may not
    import it, and it refuses some files of other versions that can be replayed.
    """

    seed: int
    models: Mapping[str, _Settings]
    """Role name to the backend settings that change its answers."""
    connections: Mapping[str, _Settings]
    """Role name to the other backend settings."""
    rules: str = ""
    """Rule chain for drafts, as text; empty if the file has none."""
    script_rules: str = ""
    """Rule chain for scripts, as text."""

    @classmethod
    def read(cls, folder: Path) -> "ReplayedRun":
        """Read the configuration of the run in `folder`. Raises ConfigurationError: it cannot be read or replayed."""
        try:
            run = cls.model_validate_json((folder / "config.json").read_bytes())
        except OSError as error:
            raise ConfigurationError(
                f"{REPLAY}:{folder}: there is no run to replay: config.json cannot be read ({error.strerror or error})"
            ) from error
        except ValidationError as error:
            raise ConfigurationError(f"{REPLAY}:{folder}: config.json is not a run's: {explain(error)}") from error
        if not journal_of(folder).exists():
            raise ConfigurationError(f"{REPLAY}:{folder}: that run has no journal, so there are no answers to replay")
        return run

    def backend(self, role: Role) -> Backend:
        """Return the backend of `role`, with the settings that affect requests. Raises ConfigurationError: none."""
        if role.value not in self.models:
            raise ConfigurationError(
                f"the replayed run has no answers of the {role.value}, only of {', '.join(self.models)}; replay with the "
                f"same play and roles, or name another backend for that role"
            )
        pairs = zip(self.models[role.value], self.connections.get(role.value, ({},)), strict=True)
        try:
            return Mixed.of(
                [Backend.model_validate({**model, "base_url": server.get("base_url")}) for model, server in pairs]
            )
        except (ValueError, ConfigurationError) as error:
            raise ConfigurationError(f"the replayed run's backend cannot be read: {error}") from error


def replayed_folder(backend: Backend) -> Path | None:
    """Return the folder of the run that a backend replays; None for another backend."""
    prefix, colon, folder = backend.model.partition(":")
    return Path(folder) if colon and prefix == REPLAY else None


def recorded_run(folder: Path, role: Role) -> ReplayedRun:
    """Return the run that recorded `role`: the one in `folder`, or the one that it replayed for that role."""
    seen: list[Path] = []
    while folder not in seen:
        seen.append(folder)
        run = ReplayedRun.read(folder)
        replayed = replayed_folder(run.backend(role))
        if replayed is None:
            return run
        folder = replayed
    raise ConfigurationError(f"{REPLAY}:{folder}: replays of replays go round in circles")


def journal_of(folder: Path) -> Path:
    return folder / "journal.sqlite"


BackendSpec: TypeAlias = str | Backend | Mapping[str, str | Backend | Sequence[str | Backend]]
"""Name or backend, or a mapping from role to name or backend, with `default` for other roles; a list for a mixture."""

PLANNER = "planner"
"""Backend that only the `repairer` accepts: planning in the executed world, without a model."""

DEFAULT = "default"
"""Key for roles without a key in a mapping."""


_FALLBACKS: Mapping[Role, tuple[str, ...]] = {
    Role.NARRATOR: (Role.DUNGEON_MASTER, DEFAULT),
    Role.JUDGE: (DEFAULT, Role.DUNGEON_MASTER, Role.NARRATOR),
    Role.REPAIRER: (DEFAULT, Role.PLAYER),
}
"""Role to the keys that replace it in a mapping without the role, in order; only `DEFAULT` for other roles."""


def resolve(spec: str | Backend) -> Backend:
    """Return the backend of a name: a preset, `rehearsal:FAULT=RATE,...`, `replay:FOLDER`, or a litellm model string.

    Raises:
        ConfigurationError: The name is unknown, the rehearsal's faults are invalid, or the run cannot be replayed.
    """
    if isinstance(spec, Backend):
        return spec
    name = spec.strip()
    if (preset := PRESETS.get(name.casefold())) is not None:
        return preset.backend
    kind, _, argument = (part.strip() for part in name.partition(":"))
    if kind.casefold() == REHEARSAL:
        if not argument:
            return PRESETS[REHEARSAL].backend
        model = f"{REHEARSAL}:{argument}"
        rehearsal_faults(model)
        return Backend(name=REHEARSAL, model=model)
    if kind.casefold() == REPLAY:
        if not argument:
            raise ConfigurationError(f"{name!r}: name the folder of the run to replay, as in {REPLAY}:runs/first")
        ReplayedRun.read(Path(argument))
        return Backend(model=f"{REPLAY}:{argument}")
    if not name or name.split() != [name]:
        raise ConfigurationError(f"{spec!r} is no backend; give one of {_join(PRESETS)} or a litellm model string")
    _check_litellm_name(name)
    return Backend(model=name)


def _check_litellm_name(name: str) -> None:
    prefix, slash, rest = name.partition("/")
    if slash and prefix not in known_providers():
        raise _unknown_error(name, prefix, known_providers(), "a provider that litellm has", suffix=f"/{rest}")
    if slash and not rest:
        raise ConfigurationError(f"{name!r} names a provider and no model; write {name}MODEL")
    if not slash and known_models() and name not in known_models():
        raise _unknown_error(name, name, {*PRESETS, *known_models()}, "a preset or a model that litellm has")


def resolve_roles(spec: BackendSpec) -> dict[Role, Backend]:
    """Return a backend for every role; without `repairer` if its backend is the planner.

    Several backends for one role take turns by episode and play. In a mapping, roles without a key get `default`.
    Exceptions: the narrator first gets the DungeonMaster's backend. Without `default`, the judge gets the
    DungeonMaster's, else the narrator's, and the repairer gets the Player's.

    Raises:
        ConfigurationError: A key is no role, a role has no backend, or a name is unknown.
    """
    if isinstance(spec, str | Backend):
        return dict.fromkeys(Role, resolve(spec))
    if not isinstance(spec, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"a backend is a name, a Backend or a mapping from role to these or to lists of these; got {spec!r}"
        )
    for key in spec:
        if key != DEFAULT and key not in set(Role):
            raise _unknown_error(key, key, {DEFAULT, *Role}, "a role")
    backends = {key: resolve_mixture(key, value) for key, value in spec.items()}
    chosen: dict[Role, Backend] = {}
    for role in Role:
        backend = next((backends[key] for key in (role, *_FALLBACKS.get(role, (DEFAULT,))) if key in backends), None)
        if backend is None:
            raise ConfigurationError(
                f"no backend for {role}: the mapping has {_join(backends)}; add {role!r} or {DEFAULT!r}"
            )
        if backend.model != PLANNER:
            chosen[role] = backend
    return chosen


def resolve_mixture(role: str, spec: object) -> Backend:
    """Return the backend of a mapping's value for a role: a name, a backend, or a list of these for a mixture."""
    is_list = isinstance(spec, Sequence) and not isinstance(spec, str)
    parts = cast("Sequence[object]", spec if is_list else (spec,))
    names = [part for part in parts if isinstance(part, str | Backend)]
    if role == Role.REPAIRER and any(isinstance(part, str) and part.strip().casefold() == PLANNER for part in names):
        if not is_list:
            return Backend(name=PLANNER, model=PLANNER)
        raise ConfigurationError(
            f"{role} has {spec!r}; the planner takes no turns with others, name it alone or leave it out"
        )
    if not names or len(names) != len(parts):
        raise ConfigurationError(f"{role} has {spec!r}; expected a name, a Backend, or a list of one or more of these")
    return Mixed.of([resolve(part) for part in names])


def rehearsal_faults(model: str) -> "Faults":
    """Return the settings in `rehearsal:FAULT=RATE,...`. `skill` belongs to the Player; `families=NAME+NAME` selects
    the worlds of the ScriptWriter (`all` for all worlds).

    Raises:
        ConfigurationError: A fault or family is unknown, or a rate is no probability.
    """
    from refinesynth.rehearsal import Faults
    from refinesynth.rehearsal.families import FAMILIES

    faults, given = Faults(), set[str]()
    for part in filter(None, (part.strip() for part in model.partition(":")[2].split(","))):
        fault, _, value = (text.strip() for text in part.partition("="))
        if fault in given:
            raise ConfigurationError(f"{part!r}: {fault} is given twice; give it once")
        given.add(fault)
        if fault not in Faults.model_fields:
            raise _unknown_error(part, fault, Faults.model_fields, "a fault of the rehearsal")
        names = tuple(FAMILIES) if value == "all" else tuple(dict.fromkeys(name.strip() for name in value.split("+")))
        try:
            faults = Faults.model_validate({**dict(faults), fault: names if fault == "families" else value})
        except ValidationError as error:
            expected = f"a rate is a probability from 0 to 1, as in {fault}=0.1"
            if fault == "families":
                expected = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ConfigurationError(f"{part!r}: {expected}") from None
    return faults


def _unknown_error(text: str, part: str, known: Iterable[str], kind: str, *, suffix: str = "") -> ConfigurationError:
    names = list(known)
    matches = [f"{name}{suffix}" for name in get_close_matches(part, names, n=4, cutoff=0.6)]
    advice = f"did you mean {_join(matches)}?" if matches else "`refinesynth backends` lists the names"
    if not matches and len(names) <= len(PRESETS) + len(Role):
        advice = f"there are {_join(names)}"
    return ConfigurationError(f"{text!r}: {part!r} is not {kind}; {advice}")


def _join(names: Iterable[str]) -> str:
    return ", ".join(str(name) for name in names)
