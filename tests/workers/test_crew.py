"""Episodes played by workers: the same outcomes, one budget, and a worker that dies costs nothing but time."""

import logging
import os
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

import anyio
import pytest
from pydantic_ai.usage import RequestUsage
from stage import rehearsing, settings_for

from refinesynth import rules
from refinesynth.backends import Backend, resolve_roles
from refinesynth.client.account import CostTracker, Price, Reservation, Unlimited
from refinesynth.episode import EpisodeSettings, play_episode
from refinesynth.episode.plays import find
from refinesynth.errors import ConfigurationError, RunStopped, StorageError
from refinesynth.journal import JournalReader
from refinesynth.run import Finished, JournalSums, worker_journals
from refinesynth.run.logs import facts_of
from refinesynth.synthesis.workers import Crew, Driver, open_crew
from refinesynth.synthesis.workers.member import Member, Playing
from refinesynth.synthesis.workers.messages import Ready
from refinesynth.synthesis.workers.worker import Assignment, Given, journal_of, share
from refinesynth.trajectory import Draft, Persona

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("local_ray")]

PERSONAS = [Persona(text=f"A clerk with {number} keys.") for number in range(6)]
SETTINGS = settings_for(seed=3)


def assignments(
    folder: Path, *, workers: int, limited: bool = False, settings: EpisodeSettings = SETTINGS
) -> list[Assignment]:
    roles = find(settings.play).roles(settings)
    return [
        Assignment(
            settings=settings,
            backends={role: found for role, found in resolve_roles("rehearsal").items() if role in roles},
            fallback=None,
            call=None,
            number=number,
            journals=str(folder),
            workers=workers,
            limited=limited,
        )
        for number in range(1, workers + 1)
    ]


@asynccontextmanager
async def crew_of(assigned: list[Assignment], tracker: "Counted") -> AsyncGenerator[Crew]:
    async with open_crew(assigned, Driver(tracker=tracker)) as crew:
        yield crew


def worker_processes() -> list[int]:
    """Of this process: those of actors that were not told to end."""
    return [pid for pid in family(os.getpid()) if b"ray::Worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def family(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield int(child)
            yield from family(int(child))


async def in_this_process() -> list[Finished]:
    models = rehearsing()
    return [
        Finished.of(await play_episode(persona, index=index, settings=SETTINGS, models=models))
        for index, persona in enumerate(PERSONAS)
    ]


async def all_of(crew: Crew) -> list[Finished]:
    found: dict[int, Finished] = {}

    async def play(index: int, persona: Persona) -> None:
        found[index] = await crew.play(index, persona)

    async with anyio.create_task_group() as tasks:
        for index, persona in enumerate(PERSONAS):
            tasks.start_soon(play, index, persona)
    return [found[index] for index in range(len(PERSONAS))]


def completions(folder: Path) -> int:
    total = 0
    for path in folder.glob("journal-*.sqlite"):
        with closing(JournalReader.read(path)) as journal:
            total += journal.paid_count()
    return total


@dataclass
class Counted(Unlimited):
    """A tracker that counts, says when there is something to count, and refuses after `most`."""

    most: int = 10**9
    free: bool = False
    held: int = 0
    settled: int = 0
    released: int = 0
    on_hold: Callable[[], None] = field(default=lambda: None)

    @contextmanager
    def episode(self, index: int) -> Generator[CostTracker]:
        assert 0 <= index < len(PERSONAS)
        yield self

    async def reserve(self, *, prompt_tokens: float, max_tokens: int | None, price: Price) -> Reservation:
        del max_tokens
        if self.free:
            return self
        assert prompt_tokens > 0
        assert price(RequestUsage(input_tokens=10)) == 0.0
        if self.held >= self.most:
            raise RunStopped("the budget is spent.")
        self.held += 1
        self.on_hold()
        return self

    def settle(self, usage: RequestUsage, cost_usd: float | None) -> None:
        assert (usage.input_tokens > 0, cost_usd) == (True, 0.0)
        self.settled += 1

    def release(self) -> None:
        self.released += 1


async def test_outcomes_are_those_of_one_process_all_is_paid_from_one_tracker_and_another_worker_recalls_it(
    tmp_path: Path,
) -> None:
    expected = await in_this_process()
    tracker = Counted()
    async with crew_of(assignments(tmp_path, workers=2, limited=True), tracker) as crew:
        assert await all_of(crew) == expected
    needed = sum(finished.line.usage.requests for finished in expected)
    assert tracker.held == tracker.settled == completions(tmp_path) == needed
    for path in worker_journals(tmp_path):
        with closing(JournalReader.read(path)) as journal:
            assert journal.paid_count()
    another = [replace(assignments(tmp_path, workers=1)[0], number=3)]
    async with crew_of(another, tracker) as crew:
        assert await all_of(crew) == expected
    assert (completions(tmp_path), len(worker_journals(tmp_path))) == (needed, 3)


async def test_a_rule_may_be_written_where_it_is_needed_and_what_is_paid_or_said_is_heard_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def every(draft: Draft) -> Iterator[rules.Violation]:
        facts = {"event": "slow_rule", "rule": "every"}
        logging.getLogger("refinesynth.rules").warning("the rule every took long", extra={"facts": facts})
        yield rules.Violation(rule="every", turn=0, code="every", message=f"{len(draft.turns)} turns")

    tracker = Counted(free=True)
    async with crew_of(assignments(tmp_path, workers=1, settings=settings_for(rules=every)), tracker) as crew:
        finished = await crew.play(0, PERSONAS[0])
    assert "every" in finished.line.by_rule
    assert tracker.settled == finished.line.usage.requests
    heard = [record for record in caplog.records if facts_of(record)["event"] == "slow_rule"]
    assert {(record.getMessage(), facts_of(record)["rule"]) for record in heard} == {
        ("the rule every took long", "every")
    }


def test_ray_keeps_no_list_of_calls_that_nobody_looks_at() -> None:
    # Its memory would grow with the run.
    (gcs,) = (pid for pid in family(os.getpid()) if b"gcs_server" in Path(f"/proc/{pid}/cmdline").read_bytes())
    assert b"RAY_task_events_report_interval_ms=0" in Path(f"/proc/{gcs}/environ").read_bytes().split(b"\0")


async def test_what_is_noted_of_a_journal_elsewhere_is_all_that_the_run_has_not_committed(tmp_path: Path) -> None:
    assigned = [replace(one, away=True) for one in assignments(tmp_path, workers=1)]
    noted: list[JournalSums] = []
    committed = 0
    driver = Driver(tracker=Counted(free=True), first=lambda: committed, learn=noted.append)
    async with open_crew(assigned, driver) as crew:
        for index in range(3):
            await crew.play(index, PERSONAS[index])
        # The first of them is committed now; the run may be killed before it has the others.
        committed = 1
        await crew.play(3, PERSONAS[3])
    assert [one.index for one in noted[-1].outstanding] == [1, 2, 3]


async def test_an_empty_tracker_ends_it_with_its_own_words(tmp_path: Path) -> None:
    tracker = Counted(most=7)
    with pytest.raises(RunStopped, match=r"^the budget is spent\.$"):
        async with crew_of(assignments(tmp_path, workers=1, limited=True), tracker) as crew:
            await crew.play(0, PERSONAS[0])
    assert tracker.settled == completions(tmp_path) == 7


async def test_a_worker_that_is_killed_is_replaced_and_goes_on_where_it_was(tmp_path: Path) -> None:
    expected = await in_this_process()
    kills = 0

    def kill_sometimes() -> None:
        nonlocal kills
        if tracker.held in (9, 40):
            for pid in worker_processes():
                os.kill(pid, signal.SIGKILL)
                kills += 1

    tracker = Counted(on_hold=kill_sometimes)
    async with crew_of(assignments(tmp_path, workers=1, limited=True), tracker) as crew:
        assert await all_of(crew) == expected
    assert kills == 2
    # Twice paid for is at most what was in flight.
    assert completions(tmp_path) == sum(finished.line.usage.requests for finished in expected)


async def die(**_: object) -> object:
    os._exit(1)


async def test_workers_that_always_die_are_given_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refinesynth.synthesis.workers.member._LIVES", 2)
    assigned = [replace(one, call=die) for one in assignments(tmp_path, workers=1)]
    with pytest.raises(RunStopped, match=r"2 workers died one after the other, the last one so: .*is dead because"):
        async with crew_of(assigned, Counted(free=True)) as crew:
            await crew.play(0, PERSONAS[0])


async def test_a_worker_that_dies_with_nothing_to_do_is_none_that_always_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refinesynth.synthesis.workers.member._LIVES", 1)
    async with crew_of(assignments(tmp_path, workers=1), Counted(free=True)) as crew:
        for pid in worker_processes():
            os.kill(pid, signal.SIGKILL)
        while crew.read:  # noqa: ASYNC110 - until it is noticed
            await anyio.sleep(0.01)
        await crew.play(0, PERSONAS[0])


@pytest.mark.parametrize("place", [True, False])
async def test_others_play_what_was_given_to_a_worker_without_a_place_but_not_to_one_that_is_on_its_way(
    place: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(tracker=Counted(free=True))
    waiting, ready = (Member(one, driver) for one in assignments(tmp_path, workers=2))
    ready.ready = Ready("node", begun=frozenset(), read=frozenset())
    waiting.playing[0] = Playing(Given(0, PERSONAS[0]), Counted(free=True))
    looks = 0
    looked_often = anyio.Event()

    async def no_room(_: Crew) -> str | None:
        nonlocal looks
        looks += 1
        if looks == 5:
            looked_often.set()
        return None if place else "there is no place"

    monkeypatch.setattr(Crew, "_no_room", no_room)
    monkeypatch.setattr("refinesynth.synthesis.workers.crew._PATIENCE", 0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Crew([waiting, ready], driver).look_after)
        await looked_often.wait()
        tasks.cancel_scope.cancel()
    assert (list(waiting.playing), list(ready.playing)) == (([0], []) if place else ([], [0]))


async def test_what_no_worker_could_do_better_is_said_once(tmp_path: Path) -> None:
    journal_of(assignments(tmp_path, workers=1)[0]).mkdir()
    with pytest.raises(StorageError, match="no journal but a directory"):
        async with crew_of(assignments(tmp_path, workers=1), Counted(free=True)) as crew:
            await crew.play(0, PERSONAS[0])


@dataclass(frozen=True)
class Locked:
    """A rule that no other process can have."""

    lock: object = field(default_factory=Lock)

    def __call__(self, draft: Draft, /) -> Iterator[rules.Violation]:
        del draft
        return iter(())


async def test_what_cannot_be_given_to_another_process_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be given to another process"):
        async with crew_of(assignments(tmp_path, workers=1, settings=settings_for(rules=Locked())), Counted()):
            pass


@pytest.mark.parametrize(
    ("journals", "said"), [("/no/such/folder", "does not see the run's folder"), ("$NO_DISK_HERE", "no such variable")]
)
def test_a_folder_that_a_machine_does_not_have_is_named(journals: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=said):
        journal_of(replace(assignments(tmp_path, workers=1)[0], journals=journals))


def test_limits_are_shared_out() -> None:
    whole = Backend(model="gpt-4o", requests_per_minute=90, tokens_per_minute=None, max_in_flight=2)
    part = share(whole, 3)
    assert (part.requests_per_minute, part.tokens_per_minute, part.max_in_flight) == (30, None, 1)
    assert share(whole, 1) is whole
