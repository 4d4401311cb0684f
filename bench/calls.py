"""One call: our model, over the direct client and through litellm, beside raw aiohttp and bare litellm.

python -m bench.calls [--quick]
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import aiohttp
import orjson

from bench.figures import Figure, Section
from bench.measuring import Used, ask, calm, pin, process, program
from bench.server import Canned, Served, completion, served

PROMPT = "What does the player do now? " * 280
"""As long as the average request of a live run: about 8,000 characters."""
ANSWER = "Thought: I should look around first.\nAction: look around. " * 12
MODEL = "hosted_vllm/bench"

Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Cell:
    """What a client does at a time."""

    latency: int
    """Of the server, in milliseconds."""
    in_flight: int
    seconds: float
    """How long it is measured, once as many calls as are in flight have been answered."""


@dataclass(frozen=True)
class Cost:
    """What came of it."""

    cpu_ms: float
    """Milliseconds of the client's CPU per call."""
    rate: float
    """Calls a second."""


def measure(*, quick: bool) -> Section:
    """All clients in turn, cell by cell and round by round; the medians."""
    cells = [
        Cell(latency, in_flight, seconds=0.5 if quick and not latency else max(1.0, 3 * latency / 1000))
        for latency in (0, 500)
        for in_flight in ((16, 1024) if quick else (16, 128, 1024))
    ]
    rounds = 1 if quick else 3
    found: dict[tuple[Cell, str], list[Cost]] = {}
    with ExitStack() as stack:
        server = stack.enter_context(served(Canned(completion(ANSWER))))
        clients = {name: stack.enter_context(process(client, name, server)) for name in CLIENTS}
        for _ in range(rounds):
            for cell in cells:
                for name, connection in clients.items():
                    found.setdefault((cell, name), []).append(ask(connection, cell))
    how = (
        f"One completion of a prompt of {len(PROMPT):,} characters: CPU of the client, which has a core to itself, in ms per call. Ratios are to raw "
        f"aiohttp with orjson. Median of {rounds} interleaved rounds."
    )
    figures = [figure for cell in cells for figure in _figures(cell, found)]
    return Section(title="One call", how=how, figures=tuple(figures))


def _figures(cell: Cell, found: Mapping[tuple[Cell, str], list[Cost]]) -> list[Figure]:
    reference, *_ = CLIENTS
    cpu = {name: median(cost.cpu_ms for cost in found[cell, name]) for name in CLIENTS}
    rate = {name: median(cost.rate for cost in found[cell, name]) for name in CLIENTS}
    return [
        Figure(
            what=f"{name}, {cell.in_flight:,} in flight, {cell.latency} ms",
            value=cpu[name],
            unit="ms",
            reference=cpu[reference],
            note=f"{rate[name]:,.0f} calls/s",
        )
        for name in CLIENTS
    ]


def client(parent: Connection, name: str, server: Served) -> None:
    """A process with one client, which stays for all cells: imports and connections are not what is measured."""
    pin("client")
    with asyncio.Runner() as runner:
        calls: dict[int, Call] = {}
        while True:
            cell: Cell = parent.recv()
            if cell.latency not in calls:
                calls[cell.latency] = runner.run(CLIENTS[name](server.base_url(cell.latency)))
                runner.run(_load(calls[cell.latency], replace(cell, in_flight=1, seconds=1.0)))
                calm()
            parent.send(runner.run(_load(calls[cell.latency], cell)))


async def _load(call: Call, cell: Cell) -> Cost:
    """Keep so many calls in flight; count from when the first wave is through, for `seconds`."""
    answered = 0
    warm = asyncio.Event()

    async def keep_calling(number: int) -> None:
        nonlocal answered
        # Spread over one latency: calls then end evenly, and not in waves.
        await asyncio.sleep(cell.latency / 1000 * number / cell.in_flight)
        while True:
            await call()
            answered += 1
            if answered == cell.in_flight:
                warm.set()

    async with asyncio.TaskGroup() as group:
        callers = [group.create_task(keep_calling(number)) for number in range(cell.in_flight)]
        await warm.wait()
        before, count = Used.now(), answered
        await asyncio.sleep(cell.seconds)
        used, count = Used.now() - before, answered - count
        for caller in callers:
            caller.cancel()
    return Cost(cpu_ms=used.cpu / count * 1000, rate=count / used.wall)


async def _aiohttp(base_url: str) -> Call:
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    request = {"model": "bench", "messages": [{"role": "user", "content": PROMPT}]}
    headers = {"content-type": "application/json"}

    async def call() -> object:
        async with session.post(f"{base_url}/chat/completions", data=orjson.dumps(request), headers=headers) as answer:
            return orjson.loads(await answer.read())["choices"][0]["message"]["content"]

    return call


async def _litellm(base_url: str) -> Call:
    from refinesynth.client.litellm_sdk import litellm

    request: dict[str, Any] = {"model": MODEL, "api_base": base_url, "api_key": "none", "max_retries": 0}
    messages = [{"role": "user", "content": PROMPT}]
    return lambda: litellm().acompletion(**request, messages=messages)


async def _ours(base_url: str, path: str) -> Call:
    from pydantic_ai.messages import ModelRequest, UserPromptPart
    from pydantic_ai.models import ModelRequestParameters

    from refinesynth.backends import Backend
    from refinesynth.client import open_model
    from refinesynth.client.limiter.limits import ConcurrencyLimit
    from refinesynth.client.limiter.rate_limiter import RateLimiter

    # The others ask as many at once as they are told to; so does this one here.
    limiter = RateLimiter("bench", limit=ConcurrencyLimit(start=None))
    backend = Backend.model_validate({"model": MODEL, "base_url": base_url, "path": path})
    model = open_model(backend, limiter=limiter)
    return lambda: model.request([ModelRequest([UserPromptPart(PROMPT)])], None, ModelRequestParameters())


CLIENTS: Mapping[str, Callable[[str], Coroutine[Any, Any, Call]]] = {
    "aiohttp + orjson": _aiohttp,
    "our model, direct client": lambda url: _ours(url, "direct"),
    "our model, through litellm": lambda url: _ours(url, "litellm"),
    "litellm.acompletion": _litellm,
}


if __name__ == "__main__":
    program(measure)
