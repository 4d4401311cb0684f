"""Merge of runs or shards into a new run folder: episodes with their records and costs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from os import PathLike, fstat
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pydantic import JsonValue

from refinesynth.errors import InputError, RunFolderError
from refinesynth.journal import JournalReader, SpentRow
from refinesynth.journal.sqlite_file import damaged
from refinesynth.outcome import EpisodeOutcome, Refused
from refinesynth.run.completed_episode import CompletedEpisode, EpisodeLine
from refinesynth.run.jsonl import lines_missing, size_of
from refinesynth.run.run_config import RunConfig
from refinesynth.run.run_folder import RunFolder, holds_run, summed, waiting_note
from refinesynth.run.writer import RunWriter
from refinesynth.settings import Shard
from refinesynth.text.formatting import DistinctNames
from refinesynth.trajectory import Persona, Trajectory

Keep = Callable[[Trajectory], bool]

_MAX_COMMIT = 64
"""Maximum number of episodes in one commit."""
_UNKNOWN_PERSONA = Persona(text="of an episode that keeps its fingerprint")
_SHARED_SETTINGS = ("play", "rules", "script_rules")
"""Settings that merged runs must share, because the new run has one play and one chain of rules."""


class Merged(NamedTuple):
    """Result of a merge."""

    path: Path
    trajectories: int
    duplicates: int
    """Number of trajectories with the script and turns of an earlier one, which are left out."""
    renamed: int
    """Number of episodes with an id that was taken; a number is appended to the id."""
    missing: tuple[str, ...] = ()
    """Missing shards of the given sharded runs, such as `2/4`."""
    waiting: int = 0
    """Number of accepted trajectories of unfinished runs that wait for an earlier episode and are left out: the run may
    still refuse them as near-duplicates when it is continued."""


async def merge_runs(
    sources: Sequence[str | PathLike[str]],
    output: str | PathLike[str],
    *,
    keep: Keep | None = None,
    rules: str | None = None,
    fresh: bool = False,
) -> Merged:
    """Write the episodes of runs into a new run, in their order: trajectories, refusals, costs.

    `keep` selects trajectories; an episode without a selected trajectory is left out with its cost. `rules` is the text
    of the chain that the selected trajectories satisfy, if it differs from the run's.

    Raises:
        InputError: No run, a run named twice, runs of different plays or rules, a run without a journal, or no trajectory
            is left.
        StorageError: A journal cannot be read, or the folder cannot be written.
    """
    folders = [RunFolder.open(Path(source)) for source in sources]
    output = Path(output)
    _check(folders, output, fresh=fresh)
    config = _config(folders, rules=rules)
    waiting = sum(folder.waiting_accepted() for folder in folders)
    if not any(True for folder in folders for _ in _selected(folder, keep)):
        raise InputError(f"nothing is left: no run has a trajectory of this kind. {waiting_note(waiting)}".rstrip(". "))
    with closing(RunWriter.claim(output, config, fresh=fresh)) as writer:
        merged = await _write(writer, folders, keep)
        writer.config = config.model_copy(update={"n": max(1, merged.trajectories)})
        writer.config.save(writer.config_file)
        writer.milestones.info("run_ended", why="reached", accepted=merged.trajectories, n=writer.config.n)
    return merged._replace(waiting=waiting, missing=_missing([folder.config for folder in folders]))


merge = merge_runs
"""Public name, `refinesynth.merge`."""


def _check(folders: Sequence[RunFolder], output: Path, *, fresh: bool) -> None:
    if not folders:
        raise InputError("no run is named; give the folders of one or more")
    read = dict[Path, RunFolder]()
    for folder in folders:
        if (earlier := read.setdefault(folder.path.resolve(), folder)) is not folder:
            other = f", also as {str(folder.path)!r}" if folder.path != earlier.path else ""
            raise InputError(f"{str(earlier.path)!r} is named twice{other}; name each run once")
        if (counted := folder.committed_part()) is None:
            raise RunFolderError(
                f"{str(folder.path)!r} has no journal, which says what belongs together; give the whole folder"
            )
        files = (folder.trajectories_file, counted.trajectories_end), (folder.rejected_file, counted.rejected_end)
        for path, end in files:
            if size_of(path) < end:
                raise lines_missing(path, end)
        if output.resolve() == folder.path.resolve():
            raise InputError(f"{str(output)!r} is one of the runs that are read; give a new folder")
    if holds_run(output) and not fresh:
        raise RunFolderError(f"{str(output)!r} holds a run already; give a new folder, or --fresh (fresh=True)")


async def _write(writer: RunWriter, folders: Sequence[RunFolder], keep: Keep | None) -> Merged:
    merger = _Merger()
    for folder in folders:
        writer.milestones.info("merged", source=str(folder.path), config=folder.config.model_dump(mode="json"))
        episodes = _selected(folder, keep)
        while batch := [merger.add(finished, str(folder.path)) for finished in islice(episodes, _MAX_COMMIT)]:
            await writer.append(*batch)
    spent = summed(row for folder in folders for row in folder.spent()) if keep is None else _total_spent(writer)
    await writer.carry(spent)
    return Merged(writer.path, writer.committed.accepted, merger.duplicates, merger.renamed)


class _Merger:
    """Numbering of episodes and search for duplicates."""

    def __init__(self) -> None:
        self.duplicates = self.renamed = 0
        self._next = 0
        self._names = DistinctNames()
        self._seen: dict[bytes, str] = {}

    def add(self, finished: CompletedEpisode, source: str) -> CompletedEpisode:
        """Return the episode for the new run: next index, unique id, without duplicate trajectories."""
        index, self._next = self._next, self._next + 1
        name, unique, original = self._names(finished.line.id), list[Trajectory](), ""
        self.renamed += name != finished.line.id
        for trajectory in map(Trajectory.from_json, finished.trajectories):
            digest = blake2b(trajectory.model_dump_json(include={"script", "turns"}).encode(), digest_size=16).digest()
            if digest in self._seen:
                self.duplicates, original = self.duplicates + 1, self._seen[digest]
            else:
                self._seen[digest] = f"{trajectory.id} of {source}"
                unique.append(trajectory)
        if name != finished.line.id or len(unique) != len(finished.trajectories):
            finished = _rewritten(finished, unique, name=name, reason=f"the same as {original}")
        return replace(finished, line=finished.line.model_copy(update={"index": index}))


def _selected(folder: RunFolder, keep: Keep | None) -> Iterator[CompletedEpisode]:
    for finished in _episodes(folder):
        trajectories = [] if keep is None else [Trajectory.from_json(line) for line in finished.trajectories]
        selected = [trajectory for trajectory in trajectories if keep is None or keep(trajectory)]
        if len(selected) == len(trajectories):
            if keep is None or trajectories:
                yield finished
        elif selected:
            yield _rewritten(finished, selected, name=finished.line.id)


def _episodes(folder: RunFolder) -> Iterator[CompletedEpisode]:
    """Yield the committed episodes with their lines in both files."""
    with (
        JournalReader(folder.journal_file) as journal,
        folder.trajectories_file.open("rb") as accepted,
        folder.rejected_file.open("rb") as refused,
    ):
        for entry in journal.entries():
            if entry.trajectories_end is None or entry.rejected_end is None:
                return
            yield CompletedEpisode(
                line=EpisodeLine.from_json(entry.line),
                trajectories=_lines(accepted, entry.trajectories_end, journal),
                rejected=_lines(refused, entry.rejected_end, journal),
            )


def _lines(file: BinaryIO, end: int, journal: JournalReader) -> tuple[bytes, ...]:
    if not file.tell() <= end <= fstat(file.fileno()).st_size:
        raise damaged(journal.path, f"the lines of an episode end at byte {end:,}")
    return tuple(file.read(end - file.tell()).split(b"\n")[:-1])


def _rewritten(
    finished: CompletedEpisode, kept: Sequence[Trajectory], *, name: str, reason: str = ""
) -> CompletedEpisode:
    """Return an episode with the `kept` trajectories and the id `name`."""
    outcome = EpisodeOutcome(
        index=finished.index,
        id=name,
        persona=_UNKNOWN_PERSONA,
        trajectories=tuple(
            item.model_copy(update={"id": name + item.id.removeprefix(finished.line.id)}) for item in kept
        ),
        refused=tuple(Refused.from_json(line).model_copy(update={"episode": name}) for line in finished.rejected),
        reason=None if kept else (finished.line.reason or reason),
        lost=finished.line.lost,
        salvaged=finished.line.figures.salvaged,
        usage=finished.line.usage,
        cost_usd=finished.line.cost_usd,
    )
    rewritten = CompletedEpisode.of(outcome)
    return replace(rewritten, line=rewritten.line.model_copy(update={"persona": finished.line.persona}))


def _total_spent(writer: RunWriter) -> list[SpentRow]:
    """Return the cost of the selected episodes in one row; costs per role are unknown for single episodes."""
    usage, cost = writer.committed.usage, writer.committed.cost_usd
    return [
        SpentRow(
            role="all_roles",
            model="of the selected episodes",
            **usage.model_dump(),
            cache_write_tokens=0,
            cost_usd=cost or 0.0,
            unpriced=usage.requests if cost is None else 0,
        )
    ]


def _config(folders: Sequence[RunFolder], *, rules: str | None) -> RunConfig:
    """Return the first run's configuration with all models and personas; `merged` events hold each configuration."""
    first = folders[0].config
    for folder in folders:
        for name in _SHARED_SETTINGS:
            setting, other_setting = getattr(first, name), getattr(folder.config, name)
            if setting != other_setting:
                raise RunFolderError(
                    f"{str(folder.path)!r} has another setting {name!r} than {str(folders[0].path)!r}: {other_setting}, there {setting}. "
                    f"Put together runs of one play; what other rules accepted goes through `refinesynth filter RUN --rules` first"
                )
    configs = [folder.config for folder in folders]
    models = {
        role: _distinct(config.models.get(role) for config in configs) for config in configs for role in config.models
    }
    return first.model_copy(
        update={
            "rules": rules or first.rules,
            "shard": first.part if len(folders) == 1 else None,
            "models": {role: names[0] if len(names) == 1 else names for role, names in models.items()},
            "personas": " and ".join(dict.fromkeys(config.personas for config in configs)),
        }
    )


def _missing(configs: Sequence[RunConfig]) -> tuple[str, ...]:
    parts = {config.part for config in configs} - {None}
    shards = [Shard.model_validate(part) for part in sorted(parts, key=str)]
    all_parts = dict.fromkeys(f"{index}/{shard.of}" for shard in shards for index in range(shard.of))
    return tuple(name for name in all_parts if name not in parts)


def _distinct(values: Iterable[JsonValue | None]) -> list[JsonValue]:
    distinct: list[JsonValue] = []
    for value in values:
        for item in value if isinstance(value, list) else [value]:
            if item is not None and item not in distinct:
                distinct.append(item)
    return distinct
