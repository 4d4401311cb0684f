"""A folder from before an episode could give several trajectories: it is read and gone on with as if it were new.

And the other way round: what is kept of episodes with several comes back whole.
"""

import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_records import CONFIG, FEWER, contents, outcome, scratch, trajectory, write

from refinesynth.errors import StorageError
from refinesynth.outcome import EpisodeOutcome
from refinesynth.run import CompletedEpisode, EpisodeLine, RunFolder, RunWriter
from refinesynth.run.status import RunStatus
from refinesynth.trajectory import Persona

COUNTED = {"scripts_refused", "drafts_refused", "by_rule", "violations", "usage", "cost_usd", "wasted"}
LINE = COUNTED | {"index", "id", "persona", "accepted", "reason"}
TOTALS = COUNTED | {"episodes", "accepted", "fruitless", "last_reason"}
SETTINGS = {
    "schema_version",
    "n",
    "concurrency",
    "budget",
    "play",
    "seed",
    "rules",
    "script_rules",
    "mistakes",
    "attempts",
    "max_turns",
    "judge",
    "prompts",
    "models",
    "connections",
    "personas",
    "versions",
}


def make_old(path: Path) -> None:
    """Rewrite a run, which has no episode with several trajectories, into what the program wrote before there were
    any."""

    def only(names: set[str], data: bytes) -> bytes:
        value: dict[str, Any] = orjson.loads(data)
        assert names <= value.keys()
        return orjson.dumps({name: value[name] for name in value if name in names})

    journal = sqlite3.connect(path / "journal.sqlite", isolation_level=None)
    for table in ("entries", "held"):
        for index, line in journal.execute(f"SELECT idx, line FROM {table}").fetchall():
            journal.execute(f"UPDATE {table} SET line = ? WHERE idx = ?", (only(LINE, line), index))
    for (totals,) in journal.execute("SELECT value FROM notes WHERE name = 'totals'").fetchall():
        journal.execute("UPDATE notes SET value = ? WHERE name = 'totals'", (only(TOTALS, totals),))
    journal.close()
    (path / "config.json").write_bytes(only(SETTINGS, (path / "config.json").read_bytes()))


def counts(path: Path) -> tuple[object, ...]:
    """What the journal says, without what it did not know before: what the trajectories are like, and how many reasons are
    alike."""
    folder = RunFolder.open(path)
    lines = [line.model_dump(exclude={"figures"}) for line in (*folder.episodes(), *folder.waiting_lines())]
    return lines, folder.totals().model_dump(exclude={"figures", "reasons"})


async def test_a_folder_from_before_is_read(tmp_path: Path) -> None:
    new = await write(tmp_path / "new", True, False, True, waiting=(4, 5))
    old = await write(tmp_path / "old", True, False, True, waiting=(4, 5))
    make_old(old.path)
    assert counts(old.path) == counts(new.path)
    assert list(old.trajectories()) == list(new.trajectories())
    assert RunFolder.open(old.path).config == CONFIG
    status = RunStatus.of(RunFolder.open(old.path))
    assert (status.accepted, status.waiting, status.totals.accepted, status.totals.fruitful) == (2, 2, 4, 4)


@FEWER
@given(accepted=st.lists(st.booleans(), max_size=4), more=st.lists(st.booleans(), max_size=4), torn=st.booleans())
async def test_a_folder_from_before_is_continued(accepted: list[bool], more: list[bool], torn: bool) -> None:
    next_ = len(accepted) + 1
    waiting = tuple(range(next_, next_ + 2))
    with scratch() as home:
        old, new = Path(home, "old"), Path(home, "new")
        for path in (old, new):
            await write(path, *accepted, waiting=waiting)
        make_old(old)
        if torn and any(accepted):
            # Killed before the last episode was on the disk: it is made again.
            lines = (old / "trajectories.jsonl").read_bytes().splitlines(keepends=True)
            (old / "trajectories.jsonl").write_bytes(b"".join(lines[:-1]))
        for path in (old, new):
            folder = RunWriter.claim(path, CONFIG)
            for index in range(folder.committed.episodes, next_ + 2):
                if index in folder.waiting:
                    await folder.append(folder.read_waiting(index))
                else:
                    good = accepted[index] if index < len(accepted) else True
                    await folder.append(CompletedEpisode.of(outcome(index, accepted=good)))
            for index, good in enumerate(more, start=next_ + 2):
                await folder.append(CompletedEpisode.of(outcome(index, accepted=good)))
            folder.close()
        for name in ("trajectories", "rejected"):
            assert contents(old)[name] == contents(new)[name]
        assert counts(old) == counts(new)


def _several(index: int, gives: int, refused: bool = True) -> EpisodeOutcome:
    made = outcome(index, accepted=gives > 0)
    persona = Persona(text=f"Somebody with the number {index}")
    given_ = tuple(
        trajectory(index, persona).model_copy(update={"id": f"{index:06d}-{number}"}) for number in range(gives)
    )
    return made.model_copy(update={"trajectories": given_, "refused": made.refused if refused else ()})


several = st.builds(_several, st.integers(0, 10**6), st.integers(0, 4), st.booleans())


@given(several)
def test_what_waits_comes_back_as_it_was_however_many_trajectories_it_has(made: EpisodeOutcome) -> None:
    finished = CompletedEpisode.of(made)
    assert finished.line.trajectories == len(made.trajectories)
    assert CompletedEpisode.read(finished.waiting_entry()) == finished
    assert EpisodeLine.from_json(finished.line.to_json()) == finished.line


@given(several)
def test_curating_that_touches_nothing_changes_nothing(made: EpisodeOutcome) -> None:
    finished = CompletedEpisode.of(made)
    seen: list[EpisodeOutcome] = []

    def look(found: EpisodeOutcome) -> EpisodeOutcome:
        seen.append(found)
        return found

    assert finished.curated(look) is finished
    assert seen == ([made] if made.trajectories else [])


@given(several)
def test_an_episode_whose_last_trajectory_is_refused_counts_as_refused(made: EpisodeOutcome) -> None:
    finished = CompletedEpisode.of(made)
    none = finished.curated(lambda found: found.model_copy(update={"trajectories": (), "reason": "seen before"}))
    assert none.trajectories == ()
    assert not none.line.accepted
    assert none.line.persona == finished.line.persona
    assert none.rejected == finished.rejected
    assert CompletedEpisode.read(none.waiting_entry()) == none


def test_a_count_that_the_records_do_not_have_is_damage() -> None:
    finished = CompletedEpisode.of(_several(3, 2, refused=False))
    entry = finished.waiting_entry()
    for count, held in ((3, entry.held), (2, (entry.held or b"").split(b"\n")[0]), (0, entry.held)):
        line = finished.line.model_copy(update={"trajectories": count, "accepted": count > 0})
        damaged = type(entry)(
            index=entry.index, id=entry.id, persona=entry.persona, accepted=True, line=line.to_json(), held=held
        )
        with pytest.raises(StorageError, match="damaged"):
            CompletedEpisode.read(damaged)
    with pytest.raises(StorageError, match="damaged"):
        EpisodeLine.from_json(finished.line.to_json().replace(b'"trajectories":2', b'"trajectories":0'))


async def test_lines_alone_still_tell_how_many_episodes_they_are_of(tmp_path: Path) -> None:
    folder = RunWriter.claim(tmp_path, CONFIG)
    await folder.append(
        CompletedEpisode.of(_several(0, 3)), CompletedEpisode.of(_several(1, 0)), CompletedEpisode.of(_several(2, 1))
    )
    folder.close()
    for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    totals = RunFolder.open(tmp_path).totals()
    assert (totals.accepted, totals.fruitful, totals.episodes) == (4, 2, 2)
