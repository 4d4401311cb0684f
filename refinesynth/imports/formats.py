"""The forms of records that can be imported, by name: one record to one trajectory."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, cast

from pydantic import ValidationError

from refinesynth._version import __version__
from refinesynth.errors import InputError
from refinesynth.imports import atif
from refinesynth.imports.conversations import Played, read_conversation
from refinesynth.rules import RequiredKeys
from refinesynth.train.data.shapes import read_paper
from refinesynth.trajectory import Persona, Provenance, Trajectory, explain

PLAY: Final = "imported"
"""How trajectories were played of which no record says how."""

RULES: Final = repr(RequiredKeys())
"""What an import checks; the rules of a run are there for who wants more."""

_SHOWN = 300
"""Characters of a goal that stand in the place of a persona."""


def read_record(record: object, format: str, where: str, *, index: int = 0) -> Trajectory:  # noqa: A002
    """A record in the named format as a trajectory; `index` is its place in the file, for an id if it has none.

    Raises:
        InputError: There is no such format, or this is no such record; the message begins with `where`.
    """
    read = find(format)
    if not isinstance(record, Mapping):
        raise InputError(f"{where}: expected a JSON object, got {type(record).__name__}")
    # Tables have a column for every key: where a record has none, its value is null.
    given = {str(key): value for key, value in cast("Mapping[Any, Any]", record).items() if value is not None}
    try:
        found = read(given, where)
        return found if isinstance(found, Trajectory) else _trajectory(found, given, index)
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error)}") from error
    except RecursionError as error:
        raise InputError(f"{where}: it is nested too deeply to be written down again") from error


def find(name: str) -> Callable[[Mapping[str, Any], str], Trajectory | Played]:
    """What reads the format of that name.

    Raises:
        InputError: There is none; the message lists what there is.
    """
    if found := FORMATS.get(name.strip().casefold()):
        return found
    near = get_close_matches(name.casefold(), FORMATS, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    raise InputError(f"there is no format {name!r} to import{meant} Choose one of: {', '.join(FORMATS)}")


def _trajectory(found: Played, given: Mapping[str, Any], index: int) -> Trajectory:
    script, turns = found
    said = given.get("persona") if "trajectory" in given else None
    persona = Persona(text=said if isinstance(said, str) else f"Somebody with this task: {script.goal[:_SHOWN]}")
    name, agent = given.get("id") or given.get("trajectory_id") or given.get("session_id"), given.get("agent")
    model: object = cast("Mapping[str, Any]", agent).get("model_name") if isinstance(agent, Mapping) else None
    return Trajectory(
        id=str(name) if isinstance(name, str | int) else f"{index:06d}-{script.digest[:8]}",
        persona=persona,
        script=script,
        turns=turns,
        provenance=Provenance(
            models={"player": model} if isinstance(model, str) else {},
            play=PLAY,
            seed=0,
            rules=RULES,
            package_version=__version__,
            attempts=1,
            script_attempts=0,
            script_id=script.digest,
        ),
    )


def _chat(given: Mapping[str, Any], where: str, key: str) -> Played:
    if key not in given:
        raise InputError(f"{where}: there is no `{key}` among the keys {sorted(given)[:8]}")
    return read_conversation(given, where)


def _agentinstruct(given: Mapping[str, Any], where: str) -> Played:
    return _chat(given, where, "conversations")


def _openai(given: Mapping[str, Any], where: str) -> Played:
    return _chat(given, where, "messages")


def _paper(given: Mapping[str, Any], where: str) -> Played:
    if not {"script", "trajectory"} <= given.keys():
        raise InputError(f"{where}: there are no `script` and `trajectory` among the keys {sorted(given)[:8]}")
    return Played(*read_paper(given, where))


def _atif(given: Mapping[str, Any], where: str) -> Trajectory | Played:
    atif.refuse_others(given, where)
    return atif.read_ours(given, where) if atif.is_ours(given) else _openai(atif.as_chat(given, where), where)


FORMATS: Final = MappingProxyType({"agentinstruct": _agentinstruct, "openai": _openai, "atif": _atif, "paper": _paper})
"""What reads each format, by its name."""
