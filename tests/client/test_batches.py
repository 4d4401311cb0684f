"""Requests that travel in batches: the same run at half the price, and nothing sent twice, whatever breaks."""

import json
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anthropic_server import AnthropicServer
from batch_server import BatchServer, Manners

from refinesynth import Backend, synthesize
from refinesynth.backends.providers import read_table
from refinesynth.client.batch import batching
from refinesynth.client.batch.batching import Batches
from refinesynth.client.budget.price_table import listed_rates
from refinesynth.client.classify_error import ClassifiedError, ErrorCategory, FailureAction
from refinesynth.client.limiter.rate_limiter import limiter_of
from refinesynth.errors import ConfigurationError, RunFolderError, RunStopped, StorageError
from refinesynth.journal import BATCHES, Journal
from refinesynth.run import RunFolder
from refinesynth.synthesis import SynthesisResult

pytestmark = pytest.mark.process

PEOPLE = ["a night nurse", "a baker", "a bicycle courier", "a beekeeper", "a locksmith", "a tailor"]


@pytest.fixture
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchServer]:
    monkeypatch.setattr(batching, "IDLE_S", 0.1)
    monkeypatch.setattr(batching, "POLL_S", (0.01, 0.05))
    with getattr(request, "param", BatchServer)() as serving:
        yield serving


both = pytest.mark.parametrize("server", [BatchServer, AnthropicServer], indirect=True)
anthropics = pytest.mark.parametrize("server", [AnthropicServer], indirect=True)


def backend(server: BatchServer, **settings: Any) -> Backend:
    asked = {**server.asked_as, "base_url": server.url, "longest_wait": 0.01}
    return Backend.model_validate(asked | settings)


async def run(server: BatchServer, folder: Path, **asked: Any) -> SynthesisResult:
    given: dict[str, Any] = {"n": 4, "play": "narrated", "batch": True, "backend": backend(server), **asked}
    return await synthesize(PEOPLE, output=folder, **given)


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("trajectories.jsonl", "rejected.jsonl")}


def requests(server: BatchServer) -> int:
    """How many requests were worked on; each once."""
    assert set(server.asked.values()) <= {1}
    return server.asked.total()


@both
async def test_a_run_in_batches_is_the_same_run(server: BatchServer, tmp_path: Path) -> None:
    batched = await run(server, tmp_path / "batched")
    assert (requests(server), server.directly) == (batched.usage.requests, 0)
    assert len(server.batches) < requests(server) / 2
    assert set(server.downloads.values()) == {1}
    alone = await run(server, tmp_path / "alone", batch=False)
    assert server.directly == alone.usage.requests
    bodies, others = (sorted(json.dumps(body) for body in these) for these in (server.bodies, server.alone))
    assert bodies == others
    if isinstance(server, AnthropicServer):
        assert server.betas == server.betas_alone > set()
    assert files(batched.path) == files(alone.path)


async def test_turns_of_a_conversation_are_sent_by_themselves(server: BatchServer, tmp_path: Path) -> None:
    result = await run(server, tmp_path / "run", n=2, play="grounded")
    by_role = {role: spent.usage.requests for role, spent in result.spending.by_role.items()}
    assert requests(server) == by_role.pop("script_writer")
    assert server.directly == sum(by_role.values()) > 0


@both
@pytest.mark.parametrize("bound", ["_MAX_REQUESTS", "_MAX_BYTES"])
async def test_a_batch_is_no_larger_than_providers_take(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """One request that is longer than all that is taken is sent, for the provider to refuse."""
    for most in (1, 2 if bound == "_MAX_REQUESTS" else 80_000):
        monkeypatch.setattr(batching, bound, most)
        result = await run(server, tmp_path / str(most))
        batches = [server.lines(batch) for batch in server.batches.values()]
        sizes = [
            len(lines) if bound == "_MAX_REQUESTS" else len(json.dumps(lines)) for lines in batches if len(lines) > 1
        ]
        assert max(sizes, default=0) <= 1.1 * most
        assert requests(server) == result.usage.requests
        server.batches.clear()
        server.asked.clear()


@pytest.mark.parametrize(
    ("server", "at"),
    [
        *((BatchServer, at) for at in ("make", "look", "content")),
        *((AnthropicServer, at) for at in ("make", "content")),
    ],
    indirect=["server"],
)
async def test_broken_off_anywhere_nothing_is_sent_twice(server: BatchServer, tmp_path: Path, at: str) -> None:
    whole = await run(server, tmp_path / "whole")
    asked = requests(server)
    server.asked.clear()
    server.manners = Manners(hangs_at=at)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial_run, server, tmp_path / "parts")
        await anyio.to_thread.run_sync(server.hanging.wait, 30)
        tasks.cancel_scope.cancel()
    server.manners = Manners()
    result = await run(server, tmp_path / "parts")
    assert requests(server) == asked
    assert files(result.path) == files(whole.path)
    assert result.usage == whole.usage


async def partial_run(server: BatchServer, folder: Path) -> None:
    await run(server, folder)


KILLED = """
import sys
import anyio
from refinesynth import Backend, synthesize
from refinesynth.backends.providers import read_table
from refinesynth.client.batch import batching

batching.QUIET, batching.POLL = 0.1, (0.01, 0.05)
backend, folder, *people = sys.argv[1:]
backend = Backend.model_validate_json(backend)
anyio.run(lambda: synthesize(people, 4, backend, play="narrated", batch=True, output=folder))
"""


@both
async def test_killed_between_sending_and_looking_nothing_is_sent_twice(server: BatchServer, tmp_path: Path) -> None:
    server.manners = Manners(hangs_at="look")
    command = [sys.executable, "-c", KILLED, backend(server).model_dump_json(exclude_unset=True), str(tmp_path / "run")]
    async with await anyio.open_process([*command, *PEOPLE], stdout=None, stderr=None) as process:
        assert await anyio.to_thread.run_sync(server.hanging.wait, 120)
        process.kill()
    assert len(server.batches) > requests(server) == 0
    server.manners = Manners()
    result = await run(server, tmp_path / "run")
    assert result.reached
    assert requests(server) == result.usage.requests
    assert server.sent == result.usage.requests


@pytest.mark.parametrize(
    ("server", "manners"),
    [
        (BatchServer, Manners(lost_answers=1)),
        (BatchServer, Manners(broken_looks=3)),
        (BatchServer, Manners(refusals=[500, 429])),
        (BatchServer, Manners(endings=["failed", "completed", "failed"])),
        (BatchServer, Manners(endings=["expired", "cancelled"])),
        (AnthropicServer, Manners(broken_looks=3)),
        (AnthropicServer, Manners(refusals=[500, 429])),
        (AnthropicServer, Manners(endings=["expired", "canceled"])),
    ],
    indirect=["server"],
    ids=repr,
)
async def test_whatever_becomes_of_a_batch_each_request_is_answered_once(
    server: BatchServer, tmp_path: Path, manners: Manners
) -> None:
    server.manners = manners
    result = await run(server, tmp_path / "run")
    assert result.reached
    assert requests(server) == result.usage.requests
    assert (server.manners.endings, server.manners.refusals) == ([], [])


@anthropics
async def test_what_another_run_sends_at_the_same_time_is_not_taken_for_ours(
    server: AnthropicServer, tmp_path: Path
) -> None:
    server.manners, server.strangers = Manners(lost_answers=1), 2
    result = await run(server, tmp_path / "run")
    assert server.sent - 2 * len(server.lines(server.batches["stranger_0"])) == result.usage.requests
    assert set(server.downloads) >= {"stranger_0", "stranger_1"}


@both
async def test_a_request_that_fails_is_made_again_by_itself(server: BatchServer, tmp_path: Path) -> None:
    server.manners = Manners(failing={0: 500, 2: 529})
    result = await run(server, tmp_path / "run")
    assert result.reached
    assert server.asked.total() == result.usage.requests + 2
    assert sorted(server.asked.values())[-3:] == [1, 2, 2]


@both
async def test_a_request_that_is_refused_costs_its_own_episode_alone(server: BatchServer, tmp_path: Path) -> None:
    server.manners = Manners(failing={1: 400})
    result = await run(server, tmp_path / "run")
    assert result.reached
    lost = [line for line in RunFolder.open(result.path).episodes() if not line.accepted]
    assert any("HTTP 400" in (line.reason or "") for line in lost)


@both
async def test_a_key_that_is_not_taken_stops_the_run(server: BatchServer, tmp_path: Path) -> None:
    server.manners = Manners(refusals=[401] * 10)
    with pytest.raises(RunStopped, match="does not accept the key"):
        await run(server, tmp_path / "run")


@both
async def test_a_server_that_stays_down_stops_the_run_and_its_batch_is_found_again(
    server: BatchServer, tmp_path: Path
) -> None:
    server.manners = Manners(broken_looks=10**6)
    with pytest.raises(RunStopped, match="stays down"):
        await run(server, tmp_path / "run", backend=backend(server, outage=0))
    # At once: what stops a run is no fault of a request, to be tried again.
    assert server.manners.broken_looks > 10**6 - 5
    server.manners = Manners()
    result = await run(server, tmp_path / "run")
    assert requests(server) == result.usage.requests


@both
async def test_a_batch_that_is_unknown_at_first_is_looked_for_again(server: BatchServer, tmp_path: Path) -> None:
    server.manners = Manners(broken_looks=2, look_status=404)
    assert (await run(server, tmp_path / "run")).reached
    server.manners = Manners(broken_looks=10**6, look_status=404)
    with pytest.raises(RunStopped, match=r"does not know a batch of this run; give the key"):
        await run(server, tmp_path / "other", backend=backend(server, outage=0))


async def test_requests_that_fail_together_are_no_outage() -> None:
    limiter = limiter_of(Backend(model="gpt-4o"), batched=True)
    fault = ClassifiedError(FailureAction.RETRY, ErrorCategory.TIMEOUT, "expired")
    async with AsyncExitStack() as held:
        permits = [await held.enter_async_context(limiter.permit(priority=number)) for number in range(200)]
        permits[0].answered(seconds=1, output_tokens=1, billed=1)
        for permit in permits[1:]:
            permit.failed(fault)
        assert not limiter.is_down


@both
async def test_a_budget_holds_for_all_that_is_in_a_batch(server: BatchServer, tmp_path: Path) -> None:
    result = await run(server, tmp_path / "run", budget="60ktok", backend=backend(server, max_tokens=2000))
    assert not result.reached
    assert 0 < result.usage.input_tokens + result.usage.output_tokens <= 60_000


async def test_a_run_that_has_sent_batches_goes_on_with_batches(server: BatchServer, tmp_path: Path) -> None:
    await run(server, tmp_path / "run", n=1)
    with pytest.raises(RunFolderError, match="go on with batch"):
        await run(server, tmp_path / "run", n=2, batch=False)
    assert server.directly == 0
    assert (await run(server, tmp_path / "run", n=2)).reached


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backend": "rehearsal"}, "OpenAI and Anthropic alone"),
        ({"backend": Backend(model="gpt-4o"), "workers": 2}, "in one process"),
        ({"backend": Backend(model="openai/responses/gpt-5.1")}, "cannot be asked in batches"),
    ],
)
async def test_what_cannot_be_batched_is_refused_before_anything_is_written(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await synthesize(PEOPLE, 1, play="narrated", batch=True, output=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


async def test_without_anthropics_sdk_the_extra_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> str | None:
        return None if name == "anthropic" else name

    monkeypatch.setattr("refinesynth.lazy_imports.find_spec", found)
    asked = Backend(model="anthropic/claude-sonnet-5-5")
    with pytest.raises(ConfigurationError, match=r"refinesynth\[anthropic\]"):
        await synthesize(PEOPLE, 1, asked, play="narrated", batch=True, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_batch_costs_what_the_map_says_and_else_half() -> None:
    prices = read_table("model_prices_and_context_window_backup.json")
    for model in ("gpt-4o", "gpt-5.1", "claude-sonnet-5-5", "deepseek/deepseek-flash"):
        usual, batched = listed_rates(model), listed_rates(model, batch=True)
        assert usual is not None
        assert batched is not None
        halves = replace(usual, **{name: getattr(usual, name) / 2 for name in ("input", "cached", "written", "output")})
        assert batched == pytest.approx(halves), model
        listings = ("input_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost")
        for name, price in zip(
            ("input", "cached", "written", "output"), (*listings, "output_cost_per_token"), strict=True
        ):
            known = prices[model].get(f"{price}_batches")
            assert known is None or getattr(batched, name) == known


async def test_what_is_noted_of_batches_is_known_to_the_next_process(tmp_path: Path) -> None:
    first, second = Batches(), Batches()
    with Journal(tmp_path / "j.sqlite") as journal:
        first.open(journal)
        assert [await first.begin(key, names) for key, names in (("k0", ["a", "b"]), ("k1", ["c", "a"]))] == [0, 1]
        await first.change(0, first[0].model_copy(update={"id": "batch_0"}))
        second.open(journal)
        # What was made again is where it was sent last.
        assert [[one.batch_of(name) for name in "abcd"] for one in (first, second)] == [[1, 0, 1, None]] * 2
        assert (second[0].id, second[1].made) == ("batch_0", first[1].made)
        second.mark_read(0)
        assert [second.batch_of(name) for name in "abc"] == [1, None, 1]
        await journal.keep_note(BATCHES, b"3")
        with pytest.raises(StorageError, match="damaged"):
            Batches().open(journal)
