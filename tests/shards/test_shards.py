"""Episodes in processes of their own: the same outcomes, one budget, and a process that dies costs nothing but time."""

import multiprocessing
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from refinesynth.run import Finished
from refinesynth.synthesis.shards import open_crew
from refinesynth.synthesis.shards.crew import Crew
from refinesynth.synthesis.shards.shard import Assignment, share
from refinesynth.trajectory import Draft, Persona

PERSONAS = [Persona(text=f"A clerk with {number} keys.") for number in range(6)]
SETTINGS = settings_for(seed=3)


def assignments(
    folder: Path, *, shards: int, limited: bool = False, settings: EpisodeSettings = SETTINGS
) -> list[Assignment]:
    roles = find(settings.play).roles(settings)
    backends = {role: found for role, found in resolve_roles("rehearsal").items() if role in roles}
    journals = tuple(folder / f"journal-{number}.sqlite" for number in range(1, shards + 1))
    return [
        Assignment(
            settings=settings,
            backends=backends,
            fallback=None,
            call=None,
            journal=journal,
            recall=tuple(other for other in journals if other != journal),
            shards=shards,
            limited=limited,
        )
        for journal in journals
    ]


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


async def test_episodes_are_the_same_in_whichever_process_they_are_played(tmp_path: Path) -> None:
    expected = await in_this_process()
    async with open_crew(assignments(tmp_path, shards=2), tracker=Counted(free=True)) as crew:
        assert await all_of(crew) == expected
    assert completions(tmp_path) == sum(finished.line.usage.requests for finished in expected)
    for number in (1, 2):
        with closing(JournalReader.read(tmp_path / f"journal-{number}.sqlite")) as journal:
            assert journal.paid_count()


async def test_what_one_shard_has_paid_for_another_recalls(tmp_path: Path) -> None:
    async with open_crew(assignments(tmp_path, shards=2), tracker=Counted(free=True)) as crew:
        expected = await all_of(crew)
    paid = completions(tmp_path)
    turned = assignments(tmp_path, shards=2)[::-1]
    async with open_crew(turned, tracker=Counted(free=True)) as crew:
        assert await all_of(crew) == expected
    assert completions(tmp_path) == paid


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


async def test_all_shards_pay_from_one_tracker(tmp_path: Path) -> None:
    tracker = Counted()
    async with open_crew(assignments(tmp_path, shards=2, limited=True), tracker=tracker) as crew:
        finished = await all_of(crew)
    assert tracker.held == tracker.settled == completions(tmp_path) == sum(one.line.usage.requests for one in finished)


async def test_without_a_budget_what_is_paid_is_counted_all_the_same(tmp_path: Path) -> None:
    tracker = Counted(free=True)
    async with open_crew(assignments(tmp_path, shards=1), tracker=tracker) as crew:
        finished = await crew.play(0, PERSONAS[0])
    assert tracker.settled == finished.line.usage.requests


async def test_an_empty_tracker_ends_it_with_its_own_words(tmp_path: Path) -> None:
    tracker = Counted(most=7)
    with pytest.raises(RunStopped, match=r"^the budget is spent\.$"):
        async with open_crew(assignments(tmp_path, shards=2, limited=True), tracker=tracker) as crew:
            await crew.play(0, PERSONAS[0])
    assert tracker.settled == completions(tmp_path) == 7


async def test_a_process_that_is_killed_is_replaced_and_goes_on_where_it_was(tmp_path: Path) -> None:
    expected = await in_this_process()
    kills = 0

    def kill_sometimes() -> None:
        nonlocal kills
        if tracker.held in (9, 40):
            for process in multiprocessing.active_children():
                process.kill()
                kills += 1

    tracker = Counted(on_hold=kill_sometimes)
    async with open_crew(assignments(tmp_path, shards=1, limited=True), tracker=tracker) as crew:
        assert await all_of(crew) == expected
    assert kills == 2
    # Twice paid for is at most what was in flight.
    assert completions(tmp_path) == sum(finished.line.usage.requests for finished in expected)


async def die(**_: object) -> object:
    os._exit(1)


async def test_processes_that_always_die_are_given_up_on(tmp_path: Path) -> None:
    assigned = [replace(one, call=die) for one in assignments(tmp_path, shards=1)]
    with pytest.raises(RunStopped, match="worker processes died one after the other, the last with exit code 1"):
        async with open_crew(assigned, tracker=Counted(free=True)) as crew:
            await crew.play(0, PERSONAS[0])


async def test_what_no_process_could_do_better_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "journal-1.sqlite").mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        async with open_crew(assignments(tmp_path, shards=1), tracker=Counted(free=True)) as crew:
            await crew.play(0, PERSONAS[0])


async def test_what_cannot_be_given_to_another_process_is_said(tmp_path: Path) -> None:
    def local(draft: Draft) -> Iterator[rules.Violation]:
        del draft
        return iter(())

    settings = settings_for(rules=local)
    with pytest.raises(ConfigurationError, match="defined at the top of a module"):
        async with open_crew(assignments(tmp_path, shards=1, settings=settings), tracker=Counted(free=True)) as crew:
            await crew.play(0, PERSONAS[0])


def test_limits_are_shared_out() -> None:
    whole = Backend(model="gpt-4o", requests_per_minute=90, tokens_per_minute=None, max_in_flight=2)
    part = share(whole, 3)
    assert (part.requests_per_minute, part.tokens_per_minute, part.max_in_flight) == (30, None, 1)
    assert share(whole, 1) is whole
