"""Import formats: one record to one trajectory."""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, cast

from pydantic import ValidationError

from refinesynth._version import __version__
from refinesynth.errors import InputError
from refinesynth.imports.conversations import ParsedPlay, read_conversation
from refinesynth.rules import RequiredKeys
from refinesynth.train.data.record_forms import read_paper
from refinesynth.trajectory import DungeonMasterTurn, Persona, PlayerTurn, Provenance, Trajectory, explain


def _read_document(document: Mapping[str, Any], location: str) -> Trajectory:
    """Read a document of `AtifFormat`; raises InputError for others."""
    try:
        name = document.get("trajectory_id") or document["session_id"]
        turns = [turn for step in document["steps"][1:] for turn in _turns(step)]
        return Trajectory.model_validate({**document["extra"], "id": name, "turns": turns})
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = explain(error) if isinstance(error, ValidationError) else repr(error)
        raise InputError(f"{location}: this is no document that refinesynth wrote: {reason}") from error


def _turns(step: Mapping[str, Any]) -> Iterator[PlayerTurn | DungeonMasterTurn]:
    judgement, text = step["extra"].get("dungeon_master"), step["message"]
    if step["source"] == "agent":
        action = step["tool_calls"][0]["arguments"]["action"]
        parallel = step["extra"].get("parallel") is True
        yield PlayerTurn(thought=text, action=action, by=step["extra"].get("by"), parallel=parallel)
        text = step["observation"]["results"][0]["content"] if judgement else ""
    if judgement:
        yield DungeonMasterTurn.model_validate({**judgement, "observation": text})


PLAY: Final = "imported"
"""Play of imported trajectories."""

RULES: Final = repr(RequiredKeys())
"""Rule in the provenance of imported trajectories."""

_MAX_GOAL = 300


def read_record(record: object, format: str, location: str, *, index: int = 0) -> Trajectory:  # noqa: A002
    """Return a record as a trajectory; `index` gives it an id if it has none. Raises InputError with `location`: not valid."""
    read = find(format)
    if not isinstance(record, Mapping):
        raise InputError(f"{location}: expected a JSON object, got {type(record).__name__}")
    # Rows of a table have a null for every missing key.
    fields = {str(key): value for key, value in cast("Mapping[Any, Any]", record).items() if value is not None}
    try:
        parsed = read(fields, location)
        return parsed if isinstance(parsed, Trajectory) else _trajectory(parsed, fields, index)
    except ValidationError as error:
        raise InputError(f"{location}: {explain(error)}") from error
    except RecursionError as error:
        raise InputError(f"{location}: it is nested too deeply to be written down again") from error


def find(name: str) -> Callable[[Mapping[str, Any], str], Trajectory | ParsedPlay]:
    """Return the reader of that format; raises InputError for an unknown format."""
    if reader := FORMATS.get(name.strip().casefold()):
        return reader
    similar = get_close_matches(name.casefold(), FORMATS, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else "."
    raise InputError(f"there is no format {name!r} to import{hint} Choose one of: {', '.join(FORMATS)}")


def _trajectory(play: ParsedPlay, record: Mapping[str, Any], index: int) -> Trajectory:
    script, turns = play
    stated = record.get("persona") if "trajectory" in record else None
    persona = Persona(text=stated if isinstance(stated, str) else f"Somebody with this task: {script.goal[:_MAX_GOAL]}")
    name = record.get("id")
    return Trajectory(
        id=str(name) if isinstance(name, str | int) else f"{index:06d}-{script.digest[:8]}",
        persona=persona,
        script=script,
        turns=turns,
        provenance=Provenance(
            models={},
            play=PLAY,
            seed=0,
            rules=RULES,
            package_version=__version__,
            attempts=1,
            script_attempts=0,
            script_id=script.digest,
        ),
    )


def _chat(record: Mapping[str, Any], location: str, *keys: str) -> ParsedPlay:
    if not record.keys() >= {*keys}:
        raise InputError(f"{location}: expected `{'` and `'.join(keys)}` among the keys {sorted(record)[:8]}")
    return ParsedPlay(*read_paper(record, location)) if "script" in keys else read_conversation(record, location)


FORMATS: Final[Mapping[str, Callable[[Mapping[str, Any], str], Trajectory | ParsedPlay]]] = MappingProxyType(
    {
        "agentinstruct": lambda record, location: _chat(record, location, "conversations"),
        "openai": lambda record, location: _chat(record, location, "messages"),
        "atif": _read_document,
        "paper": lambda record, location: _chat(record, location, "script", "trajectory"),
    }
)
"""Reader of each format by its name."""
