"""Import of a file's records into a run folder: each is accepted or refused, in order, and committed."""

import sys
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from anyio import CancelScope
from anyio.lowlevel import checkpoint

from refinesynth._version import __version__
from refinesynth.errors import InputError, RunFolderError
from refinesynth.files.atomic_write import irregular_kind
from refinesynth.files.compressed import bounded_lines, open_compressed
from refinesynth.imports.import_formats import PLAY, RULES, find, read_record
from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.run import CompletedEpisode, RunConfig, RunWriter, next_run_folder
from refinesynth.settings import PlaySettings
from refinesynth.synthesis import SynthesisResult
from refinesynth.text.distinct_names import DistinctNames
from refinesynth.text.json_reader import load_json
from refinesynth.train.data.conversation_reader import MAX_LINE_BYTES
from refinesynth.trajectory import Persona


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
