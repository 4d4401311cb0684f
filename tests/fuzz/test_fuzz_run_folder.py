"""A run folder whose files were cut or changed is completed, or refused in words; what is completed holds nothing
unverified."""

import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import anyio
import pytest
from fuzzing import thoroughly
from hypothesis import given
from hypothesis import strategies as st

import refinesynth as rs
from refinesynth.errors import RunFolderError, StorageError
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.synthesis.progress import Progress

N = 6
DATA = ("trajectories.jsonl", "rejected.jsonl")
JOURNAL = ("journal.sqlite", "journal.sqlite-wal")
REHEARSAL = Rehearsal(faults=Faults(invalid_json=0.1, too_few_errors=0.3, wrong_parameters=0.2))


def make(folder: Path, *, stop_at: int | None = None, copy: Path | None = None) -> None:
    """Make the run, or go on with it; stop at so many accepted and copy what a killed process would leave."""

    def watch(progress: Progress) -> None:
        if stop_at is not None and progress.accepted >= stop_at:
            if copy is not None:
                shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.lock", "*-shm"))
            raise InterruptedError

    async def run() -> None:
        await rs.synthesize(
            n=N, play="narrated", output=folder, call=REHEARSAL, concurrency=3, seed=5, on_progress=watch
        )

    anyio.run(run)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@cache
def folders() -> tuple[dict[str, bytes], dict[str, bytes], dict[str, bytes]]:
    """The files of a run that ended well, of one that was interrupted, and of one that was killed."""
    place = Path(mkdtemp())
    make(place / "whole")
    with suppress(InterruptedError):
        make(place / "interrupted", stop_at=3, copy=place / "killed")
    found = tuple(contents(place / name) for name in ("whole", "interrupted", "killed"))
    shutil.rmtree(place)
    return found[0], found[1], found[2]


@dataclass(frozen=True)
class Harm:
    """What was done to one file: its end is gone, or bytes are other than they were, at shares of its length."""

    file: str
    cut: float | None
    flips: tuple[tuple[float, int], ...] = ()

    def do(self, files: dict[str, bytes]) -> None:
        if self.file not in files:
            return
        content = bytearray(files[self.file])
        for at, byte in self.flips if content else ():
            content[min(int(at * len(content)), len(content) - 1)] = byte
        files[self.file] = bytes(content if self.cut is None else content[: int(self.cut * len(content))])


shares = st.floats(0, 1)
flips = st.lists(st.tuples(shares, st.integers(0, 255)), max_size=5).map(tuple)


def completed(files: dict[str, bytes], folder: Path) -> bool:
    """Whether the run can be completed with these files; if it cannot, the reason is one that a user can act on."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    reason = ""
    try:
        make(folder)
    except (StorageError, RunFolderError) as error:
        reason = str(error)
    else:
        return True
    assert reason.strip()
    return False


@pytest.mark.long
@thoroughly
@given(st.booleans(), st.sampled_from(JOURNAL), shares)
def test_a_journal_that_was_cut_is_refused_or_the_run_is_the_same(closed: bool, file: str, cut: float) -> None:
    whole, interrupted, killed = folders()
    files = dict(interrupted if closed else killed)
    Harm(file, cut).do(files)
    with TemporaryDirectory() as place:
        if not completed(files, Path(place) / "run"):
            return
        found = contents(Path(place) / "run")
    assert {name: found[name] for name in DATA} == {name: whole[name] for name in DATA}


@pytest.mark.long
@thoroughly
@given(
    st.sampled_from(("whole", "interrupted", "killed")),
    st.lists(
        st.builds(Harm, st.sampled_from((*DATA, *JOURNAL, "config.json", "events.jsonl")), st.none() | shares, flips),
        min_size=1,
        max_size=3,
    ),
)
def test_whatever_was_done_to_the_files_nothing_unforeseen_is_raised(state: str, harms: list[Harm]) -> None:
    whole, interrupted, killed = folders()
    files = dict({"whole": whole, "interrupted": interrupted, "killed": killed}[state])
    for harm in harms:
        harm.do(files)
    with TemporaryDirectory() as place:
        folder = Path(place) / "run"
        if not completed(files, folder) or any(harm.file in DATA and harm.flips for harm in harms):
            return
        for trajectory in rs.SynthesisResult.open(folder):
            assert rs.rules.verify(trajectory.draft(), rs.rules.strict()).accepted
