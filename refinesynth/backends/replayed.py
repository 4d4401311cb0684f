"""`replay:FOLDER`: a run whose journal answers instead of a model, to requests of the same form."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel, JsonValue, ValidationError

from refinesynth.backends.backend import Backend, Mixed
from refinesynth.backends.role import Role
from refinesynth.errors import ConfigurationError
from refinesynth.trajectory import explain

REPLAY = "replay"

_LINKS = 16
"""Most replays of replays that are followed."""


_Settings: TypeAlias = Mapping[str, JsonValue]


class ReplayedRun(BaseModel, frozen=True, extra="ignore"):
    """Part of a run's config.json."""

    seed: int
    models: Mapping[str, _Settings | tuple[_Settings, ...]]
    """Role name to the backend settings that change its answers; several where the role's models took turns."""
    connections: Mapping[str, _Settings | tuple[_Settings, ...]]
    """Role name to the other settings."""
    rules: str = ""
    """Chain for drafts, as text; empty in a run of another version."""
    script_rules: str = ""
    """Chain for scripts, as text."""

    @classmethod
    def read(cls, folder: Path) -> "ReplayedRun":
        """Read the configuration of the run in `folder`."""
        try:
            run = cls.model_validate_json((folder / "config.json").read_bytes())
        except OSError as error:
            raise ConfigurationError(
                f"{REPLAY}:{folder}: there is no run to replay: config.json cannot be read ({error.strerror or error})"
            ) from error
        except ValidationError as error:
            raise ConfigurationError(f"{REPLAY}:{folder}: config.json is not a run's: {explain(error)}") from error
        if not journals(folder):
            raise ConfigurationError(f"{REPLAY}:{folder}: that run has no journal, so there are no answers to replay")
        return run

    def backend(self, role: Role) -> Backend:
        """Return the backend that played `role`, as far as it decides the form of requests."""
        if role.value not in self.models:
            raise ConfigurationError(
                f"the replayed run has no answers of the {role.value}, only of {', '.join(self.models)}; replay with the "
                f"same play and roles, or name another backend for that role"
            )
        models, connections = _several(self.models[role.value]), _several(self.connections.get(role.value, {}))
        try:
            return Mixed.of(
                [
                    Backend.model_validate({**model, "base_url": connection.get("base_url")})
                    for model, connection in zip(models, connections, strict=True)
                ]
            )
        except (ValueError, ConfigurationError) as error:
            raise ConfigurationError(f"the replayed run's backend cannot be read: {error}") from error


def _several(settings: _Settings | tuple[_Settings, ...]) -> tuple[_Settings, ...]:
    return settings if isinstance(settings, tuple) else (settings,)


def replayed_folder(backend: Backend) -> Path | None:
    """Return the folder of the run that a backend replays; None if it asks a model."""
    prefix, colon, folder = backend.model.partition(":")
    return Path(folder) if colon and prefix == REPLAY else None


def resolve_replay(name: str) -> Backend:
    """Return the backend of `replay:FOLDER`."""
    folder = name.partition(":")[2].strip()
    if not folder:
        raise ConfigurationError(f"{name!r}: name the folder of the run to replay, as in {REPLAY}:runs/first")
    ReplayedRun.read(Path(folder))
    return Backend(model=f"{REPLAY}:{folder}")


def recorded_run(folder: Path, role: Role) -> ReplayedRun:
    """Return the run in `folder`, or if it replayed the role itself, the run behind it."""
    for _ in range(_LINKS):
        run = ReplayedRun.read(folder)
        further = replayed_folder(run.backend(role))
        if further is None:
            return run
        folder = further
    raise ConfigurationError(f"{REPLAY}:{folder}: replays of replays go round in circles")


def journals(folder: Path) -> list[Path]:
    """Return the journals of a run; several if workers of an earlier version played it."""
    return sorted(folder.glob("journal*.sqlite"))
