"""Episodes that gave nothing and are played again: as new episodes, behind all that the run knew of until then.

Nothing that is committed moves or is played again, so files only grow, and everything that holds of a run holds of one
with second tries: each is in its place in the order, has an id and a seed of its own, and is journalled, continued and
counted as any other.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import TypeAdapter

from refinesynth.errors import RunFolderError
from refinesynth.run.episodes import EpisodeLine, Totals


class Round(NamedTuple):
    """Second tries that were asked for at once. From index `at` on, these episodes' personas come once more; then those
    that would have come there.
    """

    at: int
    episodes: tuple[int, ...]
    """Their indices; one may have been a second try itself."""

    @property
    def end(self) -> int:
        """The index behind the last of them."""
        return self.at + len(self.episodes)


NOTE = "second_tries"
"""The journal's note of a run's rounds."""
_ROUNDS = TypeAdapter(tuple[Round, ...])


def read_rounds(note: bytes | None) -> tuple[Round, ...]:
    """What `write_rounds` wrote."""
    return _ROUNDS.validate_json(note or b"[]")


def write_rounds(rounds: Sequence[Round]) -> bytes:
    """For the journal."""
    return _ROUNDS.dump_json(tuple(rounds))


def superseded(rounds: Iterable[Round]) -> frozenset[int]:
    """Indices of the episodes that are played again."""
    return frozenset(chain.from_iterable(one.episodes for one in rounds))


class Run(Protocol):
    """What is asked of a run folder, see `RunFolder`."""

    @property
    def path(self) -> Path: ...

    def second_tries(self) -> tuple[Round, ...]: ...

    def started(self) -> int: ...

    def totals(self) -> Totals: ...

    def episodes(self) -> Iterator[EpisodeLine]: ...

    def waiting_lines(self) -> list[EpisodeLine]: ...


def with_another(folder: Run, *, stopped: bool) -> tuple[Round, ...]:
    """The rounds of a run, with another one for all that gave nothing; as they are while the last has not ended, unless
    the run was `stopped` for what has.

    Those that gave something which curation refused had their turn.

    Raises:
        RunFolderError: There is none to be played again.
        StorageError: The journal cannot be read.
    """
    rounds = folder.second_tries()
    end = rounds[-1].end if rounds else 0
    if folder.totals().episodes < end and not stopped:
        return rounds
    lines = [*folder.episodes(), *folder.waiting_lines()]
    again = superseded(rounds)
    failed = tuple(line.index for line in lines if line.index not in again and _failed(line))
    if not failed:
        of = (
            f"all {len(lines):,} finished episodes gave a trajectory, or were tried again"
            if lines
            else "no episode is finished"
        )
        raise RunFolderError(
            f"nothing failed in {str(folder.path)!r}: {of}. Without --retry-failed (in Python retry_failed=True) the same "
            f"goes on with it"
        )
    return (*rounds, Round(max(folder.started(), end), failed))


def _failed(line: EpisodeLine) -> bool:
    # Imported here: it brings numpy with it.
    from refinesynth.diversity import CURATING

    return not line.accepted and CURATING.isdisjoint(line.by_rule)
