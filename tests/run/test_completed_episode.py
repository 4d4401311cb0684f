"""Episodes with several trajectories, kept in the journal and read back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_records import CONFIG, outcome, trajectory

from refinesynth.errors import StorageError
from refinesynth.outcome import EpisodeOutcome
from refinesynth.run import CompletedEpisode, EpisodeLine, RunFolder, RunWriter
from refinesynth.trajectory import Persona


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
