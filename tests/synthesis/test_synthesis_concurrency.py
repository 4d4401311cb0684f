"""Episodes in flight where a run finds their number itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from fates import Fate, Fates, run
from limited_servers import Server, Unmoved, ask
from virtual_time import in_virtual_time

from refinesynth.client.limiter.limits import ConcurrencyLimit, TokenBuckets
from refinesynth.client.limiter.rate_limiter import RateLimiter
from refinesynth.synthesis import Progress, concurrency
from refinesynth.synthesis.concurrency import MAX_IN_FLIGHT, MIN_IN_FLIGHT, EpisodeLimit, max_in_flight_of
from refinesynth.synthesis.progress import LimitingFactor

MANY = 200
"""What stands for the bound by memory here."""
ASKS = 12
"""Requests of an episode, one after the other."""


def in_flight(server: Server, *, seconds: int) -> list[int]:
    """Episodes in flight, each second, of a run that begins as many as there is room for."""

    async def play() -> list[int]:
        limiter, playing, seen = RateLimiter("m"), 0, list[int]()
        room = EpisodeLimit(MANY, MIN_IN_FLIGHT, lambda: [limiter])

        async def episode(number: int) -> None:
            nonlocal playing
            for _ in range(ASKS):
                await ask(limiter, server, priority=number)
            playing -= 1

        async with anyio.create_task_group() as episodes:
            for second in range(seconds):
                while playing < room.current():
                    playing += 1
                    episodes.start_soon(episode, second)
                seen.append(playing)
                await anyio.sleep(1)
            assert room.limiting_factor(playing) in {LimitingFactor.SERVER, LimitingFactor.MEMORY}
            episodes.cancel_scope.cancel()
        return seen

    return in_virtual_time(play)


@pytest.mark.long
def test_it_begins_with_sixteen_and_grows_while_the_server_takes_more_up_to_the_bound() -> None:
    seen = in_flight(Server(), seconds=150)
    assert seen[0] == MIN_IN_FLIGHT
    assert max(seen) == MANY


@pytest.mark.long
@pytest.mark.parametrize("server", [Server(capacity=60), Server(most=60)], ids=["queues", "refuses"])
def test_it_does_not_grow_beyond_what_the_server_takes(server: Server) -> None:
    late = in_flight(server, seconds=700)[300:]
    assert 60 <= sorted(late)[len(late) // 2] <= 1.25 * 1.14 * 60 + 1


def test_servers_that_do_not_answer_and_those_without_a_limit_give_no_room() -> None:
    silent, embedded = RateLimiter("silent"), RateLimiter("embedded", limit=ConcurrencyLimit(start=None))
    assert EpisodeLimit(MAX_IN_FLIGHT, MIN_IN_FLIGHT, lambda: [silent, embedded]).current() == MIN_IN_FLIGHT


def test_a_rate_limit_is_told_from_the_server() -> None:
    async def wait() -> tuple[LimitingFactor, LimitingFactor, LimitingFactor]:
        limiter, slow = RateLimiter("m", limit=Unmoved(2)), TokenBuckets(requests_per_minute=1)
        room, scope = EpisodeLimit(MAX_IN_FLIGHT, MIN_IN_FLIGHT, lambda: [limiter]), anyio.CancelScope()

        async def hold(buckets: TokenBuckets | None) -> None:
            async with limiter.permit(buckets=buckets):
                await anyio.sleep_forever()

        found = list[LimitingFactor]()
        with scope:
            async with anyio.create_task_group() as group:
                for buckets in (slow, slow, None, None):
                    group.start_soon(hold, buckets)
                    await anyio.sleep(0.1)
                    found.append(room.limiting_factor(16))
                scope.cancel()
        return found[0], found[1], found[3]

    assert in_virtual_time(wait) == (LimitingFactor.SERVER, LimitingFactor.RATE, LimitingFactor.SERVER)


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


@dataclass(frozen=True)
class Changing(EpisodeLimit):
    """Little room at first, then all, then less."""

    played: Sequence[int] = ()

    def current(self) -> int:
        begun = len(self.played)
        return self.minimum if begun < 10 else self.maximum if begun < 60 else 2 * self.minimum


async def test_a_run_begins_no_more_than_there_is_room_for_and_says_what_bounds_it(tmp_path: Path) -> None:
    stage, seen, started = Fates([Fate(steps=300)]), list[Progress](), 0
    room = Changing(maximum=24, minimum=4, played=stage.played)

    def check(progress: Progress) -> None:
        nonlocal started, before
        if progress.started > started:
            started = progress.started
            assert progress.in_flight <= max(before, room.current())
        before = room.current()
        seen.append(progress)

    before = room.current()
    await run(tmp_path / "run", stage, n=90, concurrency=room, count=120, on_progress=check)
    assert max(progress.in_flight for progress in seen) == 24
    assert {LimitingFactor.SERVER, LimitingFactor.MEMORY, LimitingFactor.MISSING} <= {
        progress.bound for progress in seen
    }
