"""Import formats, and the import of a file's records into a run: accepted or refused, in order, and committed."""

import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from anyio import CancelScope
from anyio.lowlevel import checkpoint
from pydantic import ValidationError

from refinesynth._version import __version__
from refinesynth.errors import InputError, RunFolderError
from refinesynth.files.atomic_write import irregular_kind
from refinesynth.files.compressed import bounded_lines, open_compressed
from refinesynth.imports.conversations import ParsedPlay, read_conversation
from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.rules import RequiredKeys
from refinesynth.run import CompletedEpisode, RunConfig, RunWriter, next_run_folder
from refinesynth.settings import PlaySettings
from refinesynth.synthesis import SynthesisResult
from refinesynth.text.formatting import DistinctNames
from refinesynth.text.json_reader import load_json
from refinesynth.train.data.conversation_reader import MAX_LINE_BYTES
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


class Raw(NamedTuple):
    location: str
    line: bytes
    """Content of the record; empty for a line that is too long."""

    def parsed(self) -> object:
        """Parse the record; raises InputError if the record is too long or is not JSON."""
        if not self.line:
            raise InputError(f"{self.location}: it is longer than {MAX_LINE_BYTES:,} bytes")
        try:
            return load_json(self.line)
        except ValueError as error:
            raise InputError(f"{self.location}: this is no JSON: {error}") from error


def records(source: Path) -> Iterator[Raw]:
    """Yield the lines of a file. Raises InputError: unreadable."""
    if kind := irregular_kind(source, follow=True):
        raise InputError(f"{str(source)!r} is {kind}; it is read twice, so give a file")
    if not source.is_file():
        raise InputError(f"there is no file {str(source)!r}")
    with open_compressed(source) as file:
        for number, line in bounded_lines(file, MAX_LINE_BYTES):
            if line.strip():
                yield Raw(f"{source}:{number}", line.removesuffix(b"\n") if len(line) <= MAX_LINE_BYTES else b"")


_BATCH_SIZE: Final = 64

_NO_PERSONA: Final = Persona(text="Nobody: the record could not be read.")


async def import_trajectories(
    source: str | PathLike[str],
    *,
    format: str,  # noqa: A002 - the word that users type
    output: str | PathLike[str] | None = None,
    fresh: bool = False,
    on_progress: Callable[[int], object] = lambda _: None,
) -> SynthesisResult:
    """Read another program's trajectories, or an export of this package, into a run folder.

    An unreadable record is refused, with its text and the reason.

    Args:
        source: A file of JSON lines, also `.gz`.
        format: `agentinstruct`, `openai`, `atif` or `paper`.
        output: The run folder; None for the next free `runs/NNN`.
        fresh: Move an existing run aside and begin anew.
        on_progress: Called with the number of records read.

    Raises:
        InputError: Unknown format, unreadable file, no record of that format (nothing is written), or a folder with a run.
        StorageError: The folder cannot be written.
    """
    path, folder = Path(source), None if output is None else Path(output)
    find(format)
    count = await _check_source(path, format, on_progress)
    run = RunWriter.claim(folder or next_run_folder(), _config(path, format, n=count), fresh=fresh)
    if run.committed.episodes:
        run.close()
        raise RunFolderError(
            f"{str(run.path)!r} holds an import; give another folder, or --fresh (in Python fresh=True) to begin anew"
        )
    try:
        await _write(run, records(path), format, on_progress)
    finally:
        run.close()
    return SynthesisResult.open(run.path)


async def _check_source(path: Path, format: str, on_progress: Callable[[int], object]) -> int:  # noqa: A002
    """Read the whole file and return its number of records; raises InputError without a valid one."""
    count, reason, any_readable = 0, "there are none", False
    for count, raw in enumerate(records(path), start=1):
        if not any_readable:
            try:
                read_record(raw.parsed(), format, raw.location)
                any_readable = True
            except InputError as error:
                reason = str(error) if count == 1 else reason
        if count % _BATCH_SIZE == 0:
            on_progress(count)
            await checkpoint()
    if not any_readable:
        raise InputError(f"none of {count:,} records of {str(path)!r} can be read as {format}; of the first: {reason}")
    return count


async def _write(run: RunWriter, raws: Iterator[Raw], format: str, on_progress: Callable[[int], object]) -> None:  # noqa: A002
    started, reason = monotonic(), "interrupted"
    facts = run.config.model_dump(mode="json", include={"n", "play", "personas", "versions"})
    run.milestones.info("run_started", **facts, finished=run.committed.episodes, accepted=run.committed.accepted)
    names = DistinctNames()
    try:
        for batch in _batches(enumerate(raws)):
            with CancelScope(shield=True):
                await run.append(*(_completed_episode(index, raw, format, names) for index, raw in batch))
            on_progress(run.committed.episodes)
            await checkpoint()
        run.config = run.config.model_copy(update={"n": max(1, run.committed.accepted)})
        run.config.save(run.config_file)
        reason = "reached"
    finally:
        accepted, seconds = run.committed.accepted, round(monotonic() - started, 1)
        run.milestones.info("run_ended", why=reason, accepted=accepted, n=run.config.n, seconds=seconds)


def _batches(raws: Iterator[tuple[int, Raw]]) -> Iterator[list[tuple[int, Raw]]]:
    batch, size = list[tuple[int, Raw]](), 0
    for index, raw in raws:
        batch.append((index, raw))
        size += len(raw.line)
        if len(batch) == _BATCH_SIZE or size > MAX_LINE_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _completed_episode(index: int, raw: Raw, format: str, names: DistinctNames) -> CompletedEpisode:  # noqa: A002
    """Return a record as a finished episode; repeated ids get a number."""
    try:
        trajectory = read_record(raw.parsed(), format, raw.location, index=index)
        trajectory = trajectory.model_copy(update={"id": names(trajectory.id)})
        outcome = EpisodeOutcome(index=index, id=trajectory.id, persona=trajectory.persona, trajectories=(trajectory,))
    except InputError as error:
        name, record, reason = f"{index:06d}", raw.line.decode(errors="replace"), str(error)
        refused = Refused(episode=name, persona=_NO_PERSONA, stage="script", attempt=1, text=reason, record=record)
        outcome = EpisodeOutcome(index=index, id=name, persona=_NO_PERSONA, refused=(refused,), reason=reason)
    return CompletedEpisode.of(outcome.model_copy(update={"cost_usd": 0.0}))


def _config(path: Path, format: str, *, n: int) -> RunConfig:  # noqa: A002
    unplayed = PlaySettings().model_dump(mode="json", exclude={"mistakes", "attempts", "grounding"})
    return RunConfig.model_validate(
        {
            **unplayed,
            "n": n,
            "concurrency": 1,
            "play": PLAY,
            "rules": RULES,
            "script_rules": "script()",
            "mistakes": {"policy": PLAY, "format": format.strip().casefold()},
            "attempts": {},
            "prompts": "",
            "models": {},
            "connections": {},
            "personas": f"{str(path)!r} as {format}",
            "versions": {"refinesynth": __version__, "python": ".".join(map(str, sys.version_info[:3]))},
        }
    )
