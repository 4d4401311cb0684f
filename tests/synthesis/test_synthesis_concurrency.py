"""Episodes in flight where a run finds their number itself."""

from pathlib import Path

import pytest
from fates import Fate, Fates, run

from refinesynth.synthesis import Progress, concurrency
from refinesynth.synthesis.concurrency import MAX_IN_FLIGHT, MIN_IN_FLIGHT, EpisodeLimit, max_in_flight_of


def test_it_grows_with_the_finished_episodes_up_to_the_bound() -> None:
    limit = EpisodeLimit(MAX_IN_FLIGHT, grows=True)
    assert [limit.current(finished) for finished in (0, 8, 32, 10_000)] == [MIN_IN_FLIGHT, 16, 64, MAX_IN_FLIGHT]
    assert EpisodeLimit(5, grows=True).current(100) == 5
    assert EpisodeLimit(300, prefetch=8).current(0) == 2_400


@pytest.mark.parametrize(
    ("mebibytes", "most"),
    [(None, MAX_IN_FLIGHT), (1_000_000, MAX_IN_FLIGHT), (1_024, 512), (64, 32), (1, MIN_IN_FLIGHT)],
)
def test_memory_bounds_it(monkeypatch: pytest.MonkeyPatch, mebibytes: int | None, most: int) -> None:
    bytes_ = None if mebibytes is None else mebibytes * 2**20
    monkeypatch.setattr("refinesynth.synthesis.concurrency.memory_of_machine", lambda: bytes_)
    assert max_in_flight_of("auto") == most
    assert max_in_flight_of(5_000) == 5_000


def test_the_memory_of_a_container_is_what_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("4096\n")
    monkeypatch.setattr(concurrency, "_LIMIT_FILES", (str(tmp_path / "none"), str(tmp_path / "memory.max")))
    assert concurrency.memory_of_machine() == 4_096


async def test_a_run_begins_no_more_than_there_is_room_for(tmp_path: Path) -> None:
    stage, seen = Fates([Fate(steps=300)]), list[Progress]()
    await run(
        tmp_path / "run", stage, n=90, concurrency=EpisodeLimit(24, grows=True), count=120, on_progress=seen.append
    )
    assert all(progress.in_flight <= max(16, 2 * progress.finished) for progress in seen)
    assert max(progress.in_flight for progress in seen) == 24
