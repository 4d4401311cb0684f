"""config.json: what was asked of a run, enough to ask it again; and whether a resumed run asks the same."""

import re
from collections.abc import Iterator, Mapping
from os.path import commonprefix
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import orjson
from pydantic import BaseModel, Field, JsonValue, ValidationError, model_validator

from refinesynth._version import __version__
from refinesynth.errors import RunFolderError
from refinesynth.files.atomic_write import atomic_write
from refinesynth.run.lines import cannot
from refinesynth.settings import PlaySettings
from refinesynth.text.jsontext import write_json
from refinesynth.trajectory import PlayName, explain

_MAY_CHANGE = frozenset({"n", "concurrency", "budget", "early_stop", "connections", "personas", "versions"})
"""Fields that do not change what an episode gives. Personas are compared one by one, so a longer file may be given."""

TO_BE_ANSWERED = frozenset({"max_tokens", "output_mode", "extra"})
"""Of a backend, what can be so wrong that it gives nothing to use."""

_GONE: Mapping[str, JsonValue] = {"grounding.two_steps": False}
"""Settings that there are no more, and the value with which a run is the same without them."""

_LEAD = 20
"""Characters shown before the first that differs, where what is before that is left out."""

SCHEMA_VERSION = 1
"""Of config.json; a later one is of a newer refinesynth."""

_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


class RunConfig(BaseModel, frozen=True, extra="allow"):
    """The settings of a run. No key and no other secret is ever among them.

    A setting of `PlaySettings` that has no field here is an extra one; where an older run does not name it, it had its
    default.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    n: int = Field(ge=1)
    """Accepted trajectories asked for."""
    concurrency: Annotated[int, Field(ge=1)] | Literal["auto"]
    """Most episodes in flight."""
    budget: str | None = None
    """What may be spent in all; None sets no limit."""
    early_stop: int = Field(default=0, ge=0)
    """Episodes without one accepted after which it stops early; 0 goes on. Runs from before there was this went on."""
    play: PlayName
    seed: int
    rules: str
    """`repr` of the chain that accepts a draft."""
    script_rules: str
    """`repr` of the chain that accepts a script."""
    mistakes: dict[str, JsonValue]
    """Where mistakes come from."""
    attempts: dict[str, JsonValue]
    """How often something is tried again, per episode."""
    max_turns: int
    """Longest draft, in turns."""
    judge: bool
    """Whether an LLM judges what the rules accepted."""
    grounding: dict[str, JsonValue] | None = None
    """How the world is executed; None in other plays. The band of difficulty is among the script rules."""
    branches: int = Field(default=1, ge=1)
    """Trajectories of each play."""
    episodes_per_script: int = Field(default=1, ge=1)
    """Plays of each script."""
    curation: dict[str, JsonValue] | None = None
    """What is looked for in what the rules accepted."""
    prompts: str
    """Digest of the prompt templates."""
    models: dict[str, JsonValue]
    """Role name to the backend's settings that change what it answers; a list of these where the role's models take
    turns."""
    connections: dict[str, JsonValue]
    """Role name to the others: where the server is, time-outs, rate limits, the name of the variable with the key."""
    personas: str
    """What the personas were read from, in words. Their content is recorded per episode, see `EpisodeLine.persona`."""
    versions: dict[str, str]
    """Package name to installed version."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, given: dict[str, Any]) -> dict[str, Any]:
        if "patience" in given:
            # Its name in runs of earlier versions.
            given = {"early_stop" if name == "patience" else name: value for name, value in given.items()}
        further = PlaySettings().model_dump(mode="json", exclude=set(cls.model_fields))
        if unknown := given.keys() - cls.model_fields.keys() - further.keys():
            raise ValueError(f"there is no setting {', '.join(sorted(unknown))}")
        return {**further, **given}

    @property
    def part(self) -> str | None:
        """Which shard of a run this is, see `PlaySettings.shard`; None for a whole one."""
        return (self.model_extra or {}).get("shard")

    def save(self, path: Path) -> None:
        """Write this configuration, replacing what is there in one step.

        Raises:
            StorageError: The file cannot be written.
        """
        text = write_json(self.model_dump(mode="json"), option=orjson.OPT_INDENT_2) + b"\n"
        try:
            with atomic_write(path) as file:
                file.write(text)
        except OSError as error:
            raise cannot("write", path, error) from error

    @classmethod
    def load(cls, path: Path) -> "RunConfig":
        """Read what `save` wrote.

        Raises:
            RunFolderError: There is no such file, or it is not a run's configuration.
        """
        found: object = None
        try:
            return cls.model_validate(found := orjson.loads(path.read_bytes()))
        except OSError as error:
            raise RunFolderError(
                f"{str(path.parent)!r} is not the folder of a run: {path.name} cannot be read "
                f"({error.strerror or error}). Give the folder that a run wrote"
            ) from error
        except orjson.JSONDecodeError as error:
            raise RunFolderError(f"{str(path)!r} is not JSON ({error}); put the original back") from error
        except ValidationError as error:
            if not is_of_run(found):
                raise RunFolderError(
                    f"{str(path)!r} was not written by a run (there is no schema_version in it); give the folder that a "
                    f"run wrote"
                ) from error
            raise RunFolderError(
                f"{str(path)!r} was {_writer(found)}, and this is {__version__}: {explain(error)}. Use the version that "
                f"wrote it"
            ) from error


def is_of_run(found: object) -> bool:
    """Whether this is the configuration of a run, of whatever version, and not that of another program."""
    return isinstance(found, dict) and "schema_version" in found


def _writer(found: object) -> str:
    """By which version a configuration was written that this one cannot read, as far as it says so."""
    fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    schema, versions = fields.get("schema_version"), fields.get("versions")
    wrote: object = cast("dict[str, Any]", versions).get("refinesynth") if isinstance(versions, dict) else None
    if isinstance(schema, int) and schema > SCHEMA_VERSION:
        newer = f" ({wrote})" if isinstance(wrote, str) else ""
        return f"written by a newer refinesynth{newer}"
    return f"written by refinesynth {wrote}" if isinstance(wrote, str) else "not written by this version of refinesynth"


def stable_repr(value: object) -> str:
    """`repr` without memory addresses, which differ from process to process."""
    return _ADDRESS.sub("", repr(value))


def differences(before: RunConfig, after: RunConfig, *, of_models: frozenset[str] = frozenset()) -> list[str]:
    """Settings that changed and would change the data, each as `field: old -> new`; settings of backends that are named
    in `of_models` may change.
    """
    old, new = (config.model_dump(mode="json") for config in (before, after))
    for models in (old["models"], new["models"]):
        models.update((role, _without(given, of_models)) for role, given in models.items())
    changed: list[str] = []
    for name, value in old.items():
        if name not in _MAY_CHANGE and value != new[name]:
            changed.extend(_changes(name, value, new[name]))
    return changed


def _without(given: JsonValue, names: frozenset[str]) -> JsonValue:
    """A backend's settings without some of them; of each, where a role has several."""
    if isinstance(given, list):
        return [_without(one, names) for one in given]
    return {name: value for name, value in given.items() if name not in names} if isinstance(given, dict) else given


def _changes(name: str, old: JsonValue, new: JsonValue) -> Iterator[str]:
    """One line per leaf that differs, so that one changed number is not shown as two whole objects."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key):
                yield from _changes(f"{name}.{key}", old.get(key), new.get(key))
    elif name in _GONE and new is None:
        if old != _GONE[name]:
            wanted = write_json(_GONE[name]).decode()
            yield f"{name}: {write_json(old).decode()} -> this setting is gone; only a run that had {wanted} can be resumed"
    else:
        before, after = write_json(old).decode(), write_json(new).decode()
        # Two long chains may differ far behind their beginning.
        same = max(0, len(commonprefix([before, after])) - _LEAD)  # noqa: RUF071 - characters are meant
        yield f"{name}: {_short(before, same)} -> {_short(after, same)}"


def _short(text: str, same: int, most: int = 200) -> str:
    """`text`, or if it is long, the part of it after the first `same` characters."""
    if len(text) <= most:
        return text
    return f"{'...' if same else ''}{text[same : same + most]}{'...' if len(text) > same + most else ''}"
