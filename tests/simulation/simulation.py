"""A whole run in virtual time, in which one number decides everything: how long each answer takes, which requests fail
and how, at which commit the process is killed, when the disk is full, when it is cancelled.

`PYTHONPATH=tests python tests/simulation/simulation.py 17` replays what number 17 does.
"""

import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import anyio
import orjson
from run_records import contents, scratch
from virtual_time import in_virtual_time

from refinesynth.backends import Backend
from refinesynth.client.http.reply import HttpError
from refinesynth.errors import StorageError
from refinesynth.journal.commits import Batch, Writer
from refinesynth.personas import shipped
from refinesynth.rehearsal import Faults, Rehearsal
from refinesynth.synthesis import SynthesisResult, synthesize

PEOPLE: Final = shipped()[12:22]
FAULTS: Final = Faults(invalid_json=0.1, missing_keys=0.1, no_success=0.2, too_few_errors=0.2)
MOST_FAILURES: Final = 3
"""Of one request in a row; fewer than the tries that it has."""


class Killed(BaseException):
    """The process ends: nothing is written after this."""


@dataclass
class World:
    """Server, disk and process of one run."""

    seed: int
    rng: Random = field(init=False)
    """Decides what happens to the process; what happens to a request follows from the request."""
    paid: Counter[str] = field(default_factory=Counter[str])
    """Request to how often its answer was sent and billed."""
    failures: Counter[str] = field(default_factory=Counter[str])
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of the undisturbed run too: the same request has the same answer."""
    largest: int = 0
    """Tokens of the largest request with its answer."""
    commits_left: int | None = None
    """Until the process is killed or the disk is full; None: neither happens."""
    full: bool = False
    """Whether it is the disk."""

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)

    async def answer(self, **request: Any) -> object:
        """A completion, after some time, or an error of the server."""
        key = f"{request['seed']} {sha256(orjson.dumps(request['messages'])).hexdigest()}"
        fate = Random(f"{self.seed} {key} {self.failures[key]}")
        await anyio.sleep(fate.expovariate(1 / 2))
        if self.failures[key] < MOST_FAILURES and fate.random() < 0.15:
            self.failures[key] += 1
            status = fate.choice((429, 500, 502, 503, 529))
            raise HttpError(status, "busy", {"retry-after": "1"} if fate.random() < 0.3 else {})
        if key not in self.answers:
            self.answers[key] = await Rehearsal(faults=FAULTS)(**request)
        self.paid[key] += 1
        self.largest = max(self.largest, self.answers[key]["usage"]["total_tokens"])
        return self.answers[key]

    def before_commit(self) -> None:
        """Raises: Killed or sqlite3.OperationalError: This commit does not come about."""
        if self.commits_left is None:
            return
        self.commits_left -= 1
        if self.commits_left < 0:
            if self.full:
                raise sqlite3.OperationalError("database or disk is full")
            raise Killed


@contextmanager
def synchronous_journal(world: World, killed: Callable[[], None]) -> Generator[None]:
    """The journal without its thread: each call is a commit, right where it is made."""
    put, write = Writer.put, Writer.write

    def committed(self: Writer, batch: Batch) -> None:
        before = world.commits_left
        after = world.rng.random() < 0.5 and before == 0 and not world.full
        if after:  # committed, and nobody is told
            write(self, batch)
        try:
            world.before_commit()
        except Killed:
            killed()
            raise
        write(self, batch)

    def put_now(self: Writer, fill: Callable[[Batch], None]) -> Batch:
        if self._failure is not None:  # pyright: ignore[reportPrivateUsage]
            raise self._failure.error()  # pyright: ignore[reportPrivateUsage]
        batch = Batch()
        fill(batch)
        batch.end(self._commit(batch))  # pyright: ignore[reportPrivateUsage]
        return batch

    Writer.put, Writer.write = put_now, committed
    try:
        yield
    finally:
        Writer.put, Writer.write = put, write


@dataclass(frozen=True)
class Plan:
    """The run that is asked for."""

    n: int
    play: Literal["live", "narrated"]
    concurrency: int

    async def begin(
        self, world: World, folder: Path, *, stop_at: float | None = None, budget: int | None = None
    ) -> SynthesisResult | None:
        """The run, begun or gone on with; None if it is cancelled before its end."""
        backend = Backend(model="openai/any", retries=MOST_FAILURES + 1)
        with anyio.move_on_after(stop_at):
            return await synthesize(
                PEOPLE,
                self.n,
                backend,
                play=self.play,
                output=folder,
                call=world.answer,
                concurrency=self.concurrency,
                budget=None if budget is None else f"{budget}tok",
            )
        return None


def simulate(seed: int) -> None:
    """Play a run that is ended in many ways and gone on with, and compare it with one that nothing happens to.

    Raises:
        AssertionError: Something accepted is lost or twice, the files differ, or more was paid twice than was in flight.
    """
    rng = Random(f"plan {seed}")
    plan = Plan(
        rng.randint(1, 3), rng.choice(("narrated", "narrated", "narrated", "narrated", "live")), rng.randint(1, 6)
    )
    with scratch() as home:
        whole, undisturbed = Path(home, "whole"), World(seed)
        with synchronous_journal(undisturbed, lambda: None):
            expected = in_virtual_time(lambda: plan.begin(undisturbed, whole))
        assert expected is not None
        assert set(undisturbed.paid.values()) == {1}

        world, folder, bound = World(seed, answers=undisturbed.answers), Path(home, "0"), 0
        spent = expected.usage.input_tokens + expected.usage.output_tokens
        result: SynthesisResult | None = None
        for number in range(1, rng.randint(2, 6)):
            how = rng.choice(("kill", "kill", "full", "cancel"))
            world.full = how == "full"
            world.commits_left = None if how == "cancel" else rng.randint(0, 12)
            stop_at = rng.uniform(0, 40) if how == "cancel" else None
            budget = rng.randint(1, spent) if how == "cancel" and rng.random() < 0.5 else None
            copy, before = Path(home, str(number)), world.paid.total()

            def killed(source: Path = folder, copy: Path = copy) -> None:
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*-shm"))
                for name in ("trajectories.jsonl", "rejected.jsonl"):
                    if (copy / name).exists() and rng.random() < 0.3:
                        with (copy / name).open("ab") as file:
                            file.write(b'{"half a line')

            with synchronous_journal(world, killed):
                try:
                    result = in_virtual_time(partial(plan.begin, world, folder, stop_at=stop_at, budget=budget))
                except* Killed:
                    folder = copy
                except* StorageError:
                    pass
            bound += plan.concurrency
            if result is not None and budget is not None:
                within = result.usage.input_tokens + result.usage.output_tokens <= budget + world.largest
                assert within or world.paid.total() == before, "more was spent than the budget"
            elif result is not None:
                break
        world.commits_left = None
        with synchronous_journal(world, lambda: None):
            result = in_virtual_time(lambda: plan.begin(world, folder))
        assert result is not None
        assert contents(folder) == contents(whole)
        assert result.usage.requests == expected.usage.requests
        again = sum(count - 1 for count in world.paid.values())
        assert again <= bound, f"{again} were paid twice, and at most {bound} were in flight"


if __name__ == "__main__":
    for each in sys.argv[1:]:
        simulate(int(each))
