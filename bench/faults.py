"""Faults that do not depend on the load: answers a second under each kind of them, beside a run without faults, ours
and with a fixed limit.

python -m bench.faults [--quick]
"""

import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from urllib.request import urlopen

import anyio
import orjson
from anyio import to_thread
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest

from bench.figures import Figure, Section
from bench.measuring import ask, calm, pin, process, program
from bench.recording import MODEL
from bench.server import completion
from refinesynth.backends import Backend
from refinesynth.client import open_model
from refinesynth.client.limiter import rate_limiter
from refinesynth.client.limiter.limits import ConcurrencyLimit
from refinesynth.errors import EpisodeAbandoned

LATENCY = 0.5
"""Of the server, in seconds."""
TIMEOUT = 20.0
"""After which a request that hangs is given up, in seconds."""
IN_FLIGHT = 64
CALLS = 1_300
LONGEST = 45.0
"""Seconds after which a run is ended, wherever it is."""

_STATUSES = (408, 409, 425, 429, 500, 501, 502, 503, 504, 520, 522, 524, 529)
Faults = dict[int | str, float]
MIX: Faults = {**dict.fromkeys((*_STATUSES, "busy", "before", "middle", "garbage"), 0.0105), "hang": 0.0015}
"""18 kinds, 18 % of all requests."""
KINDS: dict[str, Faults] = {
    "HTTP 500 at 3 %": {500: 0.03},
    "HTTP 529, overloaded, at 3 %": {529: 0.03},
    "connection reset at 3 %": {"before": 0.03},
    "429 without Retry-After at 3 %": {"busy": 0.03},
    "429 with Retry-After: 1 at 3 %": {429: 0.03},
    "hang at 0.5 %": {"hang": 0.005},
    "18 kinds at 18 %": MIX,
}
_QUICK = ("HTTP 500 at 3 %", "429 with Retry-After: 1 at 3 %")


class _Fixed(ConcurrencyLimit):
    """Never changes, whatever happens."""

    @property
    def current(self) -> int:
        return IN_FLIGHT


@dataclass(frozen=True)
class Ran:
    """A run."""

    answers: int
    """The others were given up after their retries."""
    seconds: float
    sent: int
    """Requests that the server saw."""

    def rate(self, *, after: float = 0.0) -> float:
        """Answers a second, had it taken so many seconds more."""
        return self.answers / (self.seconds + after)


def measure(*, quick: bool) -> Section:
    """Each kind of fault with our limit and with the fixed one, after runs without faults."""
    kinds: dict[str, Faults] = {"none": {}, **{name: KINDS[name] for name in (_QUICK if quick else KINDS)}}
    figures: list[Figure] = []
    with process(_serve, tuple(kinds.values())) as server, process(_run) as client:
        addresses = ask(server)
        for (name, faults), address in zip(kinds.items(), addresses, strict=True):
            free, ours, fixed = (
                ask(client, question) for question in ((addresses[0], False), (address, False), (address, True))
            )
            figures.append(_figure(name, faults, ours, fixed, free))
            print(figures[-1], file=sys.stderr, flush=True)
    return Section(
        title="Faults at random",
        how=f"{CALLS:,} calls, {IN_FLIGHT} in flight, against the mock server of the tests at {LATENCY * 1000:.0f} ms, "
        f"which breaks requests at random, whatever the load. Ratios are to a run without faults in the same minute, and where requests "
        f"hang, to that and one timeout ({TIMEOUT:.0f} s). The fixed limit is {IN_FLIGHT}.",
        figures=tuple(figures),
    )


def _figure(name: str, faults: Faults, ours: Ran, fixed: Ran, free: Ran) -> Figure:
    return Figure(
        what=name,
        value=ours.rate(),
        unit="/s",
        reference=free.rate(after=TIMEOUT if "hang" in faults else 0.0),
        goal=0.4 if faults == MIX else 0.6 if faults else None,
        aim="at least",
        of_ratio=True,
        note=f"{ours.seconds:.1f} s, {ours.sent:,} requests for {ours.answers:,} answers; "
        f"without faults {free.rate():,.0f}/s; fixed limit {fixed.rate():,.0f}/s, {fixed.seconds:.1f} s",
    )


def _serve(parent: Connection, kinds: tuple[Faults, ...]) -> None:
    """A server for each kind of faults."""
    pin("server")
    from refinesynth.serve import running
    from tests.faulty_server import faulty_app

    said = orjson.loads(completion("It is done."))

    async def answer(**_request: object) -> object:
        return said

    with ExitStack() as stack:
        apps = [faulty_app(answer, faults, latency=LATENCY) for faults in kinds]
        parent.send([stack.enter_context(running(app)) for app in apps])
        parent.recv()


def _run(parent: Connection) -> None:
    pin("client")
    calm()
    ours = rate_limiter.ConcurrencyLimit
    while True:
        address, fixed = parent.recv()
        rate_limiter.ConcurrencyLimit = _Fixed if fixed else ours
        parent.send(anyio.run(_calls, address))


async def _calls(address: str) -> Ran:
    """So many callers, each with one call after the other, over one model."""
    model = open_model(Backend(model=MODEL, base_url=f"{address}/v1", timeout=TIMEOUT))
    left, answers, before = iter(range(CALLS)), 0, await to_thread.run_sync(_sent, address)

    async def caller() -> None:
        nonlocal answers
        for number in left:
            with suppress(EpisodeAbandoned):
                await model_request(model, [ModelRequest.user_text_prompt(f"Call {number}")])
                answers += 1

    start = time.perf_counter()
    with anyio.move_on_after(LONGEST):
        async with anyio.create_task_group() as group:
            for _ in range(IN_FLIGHT):
                group.start_soon(caller)
    seconds = time.perf_counter() - start
    return Ran(answers=answers, seconds=seconds, sent=await to_thread.run_sync(_sent, address) - before)


def _sent(address: str) -> int:
    with urlopen(f"{address}/stats") as told:
        return orjson.loads(told.read())["requests"]


if __name__ == "__main__":
    program(measure)
