"""config.json: the settings of a run, and their comparison for a resumed run."""

import re
from collections.abc import Iterator
from os.path import commonprefix
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import orjson
from pydantic import BaseModel, Field, JsonValue, ValidationError, model_validator

from refinesynth._version import __version__
from refinesynth.errors import RunFolderError
from refinesynth.files.atomic_write import atomic_write
from refinesynth.run.jsonl import operation_error
from refinesynth.settings import PlaySettings
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import PlayName, explain

_MAY_CHANGE = frozenset({"n", "concurrency", "budget", "early_stop", "connections", "personas", "versions"})
"""Fields that do not change an episode. `personas` is among them: a resumed run compares the personas themselves."""

_LEAD_CHARS = 20
"""Number of characters shown before the first difference."""
_MAX_CHARS = 200

_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


class RunConfig(BaseModel, frozen=True, extra="allow"):
    """Settings of a run, without keys and other secrets.

    A setting of `PlaySettings` without a field here is an extra field, with its default where an older run lacks it.
    """

    schema_version: Literal[1] = 1
    n: int = Field(ge=1)
    concurrency: Annotated[int, Field(ge=1)] | Literal["auto"]
    budget: str | None = None
    """Budget as text; None for no limit."""
    early_stop: int = Field(default=0, ge=0)
    """Number of first episodes without a trajectory that end the run; 0, also in runs without this field, never does."""
    play: PlayName
    seed: int
    rules: str
    """`repr` of the chain of rules for drafts."""
    script_rules: str
    """`repr` of the chain of rules for scripts."""
    mistakes: dict[str, JsonValue]
    attempts: dict[str, JsonValue]
    max_turns: int
    judge: bool
    grounding: dict[str, JsonValue] | None = None
    """Settings of an executed world; None in other plays. The band of difficulty is part of the script rules."""
    tools: dict[str, str] | None = Field(default=None, exclude_if=lambda tools: tools is None)
    """Digests of the user's tools by name; absent without such tools."""
    real: str | None = Field(default=None, exclude_if=lambda real: real is None)
    """Digest of the described state of the MCP server that executed the tools; absent without a server."""
    branches: int = Field(default=1, ge=1)
    episodes_per_script: int = Field(default=1, ge=1)
    curation: dict[str, JsonValue] | None = None
    prompts: str
    """Digest of the prompt templates."""
    models: dict[str, JsonValue]
    """Backend settings that change the answers, by role name; a list if several models share the role."""
    connections: dict[str, JsonValue]
    """Other backend settings by role name: server, time-outs, rate limits, the name of the key's variable."""
    personas: str
    """Description of the source; `EpisodeLine.persona` records the digest of each persona."""
    versions: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, fields: dict[str, Any]) -> dict[str, Any]:
        defaults = PlaySettings().model_dump(mode="json", exclude=set(cls.model_fields))
        if unknown := fields.keys() - cls.model_fields.keys() - PlaySettings.model_fields.keys():
            raise ValueError(f"there is no setting {', '.join(sorted(unknown))}")
        return {**defaults, **fields}

    @property
    def part(self) -> str | None:
        """Shard of a run, in the form of `PlaySettings.shard`; None for a whole run."""
        return (self.model_extra or {}).get("shard")

    def save(self, path: Path) -> None:
        """Write this configuration atomically. Raises StorageError: the file cannot be written."""
        text = write_json(self.model_dump(mode="json"), option=orjson.OPT_INDENT_2) + b"\n"
        try:
            with atomic_write(path) as file:
                file.write(text)
        except OSError as error:
            raise operation_error("write", path, error) from error

    @classmethod
    def load(cls, path: Path) -> "RunConfig":
        """Read a saved configuration. Raises RunFolderError: there is no file, or it is not a run's configuration."""
        document: object = None
        try:
            return cls.model_validate(document := orjson.loads(path.read_bytes()))
        except OSError as error:
            raise RunFolderError(
                f"{str(path.parent)!r} is not the folder of a run: {path.name} cannot be read "
                f"({error.strerror or error}). Give the folder that a run wrote"
            ) from error
        except orjson.JSONDecodeError as error:
            raise RunFolderError(f"{str(path)!r} is not JSON ({error}); put the original back") from error
        except ValidationError as error:
            if not is_run_config(document):
                raise RunFolderError(
                    f"{str(path)!r} was not written by a run; give the folder that a run wrote"
                ) from error
            versions = cast("dict[str, Any]", document).get("versions")
            unknown = "of a newer version"
            version = versions.get("refinesynth", unknown) if isinstance(versions, dict) else unknown  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            raise RunFolderError(
                f"{str(path)!r} was written by refinesynth {version}, and this is {__version__}: {explain(error)}. Use the "
                f"version that wrote it"
            ) from error


def is_run_config(document: object) -> bool:
    """Return True for the configuration of a run of any version, False for another program's file."""
    return isinstance(document, dict) and "schema_version" in document


def stable_repr(value: object) -> str:
    """Return `repr` without memory addresses, which differ between processes."""
    return _ADDRESS.sub("", repr(value))


def differences(before: RunConfig, after: RunConfig) -> list[str]:
    """Return the changed settings that affect the data, each as `field: old -> new`."""
    old, new = (config.model_dump(mode="json") for config in (before, after))
    names = (name for name in dict.fromkeys([*old, *new]) if name not in _MAY_CHANGE)
    return [line for name in names for line in _changes(name, old.get(name), new.get(name))]


def _changes(name: str, old: JsonValue, new: JsonValue) -> Iterator[str]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from _changes(f"{name}.{key}", old.get(key), new.get(key))
    else:
        before, after = write_json(old).decode(), write_json(new).decode()
        # Two long chains of rules may have a long common beginning.
        common = max(0, len(commonprefix([before, after])) - _LEAD_CHARS)  # noqa: RUF071 - characters are meant
        yield f"{name}: {_short(before, common)} -> {_short(after, common)}"


def _short(text: str, start: int) -> str:
    """Return `text`, or of a long text `_MAX_CHARS` characters after the first `start`."""
    end = start + _MAX_CHARS
    if len(text) <= _MAX_CHARS:
        return text
    return f"{'...' if start else ''}{text[start:end]}{'...' if len(text) > end else ''}"
