"""`refinesynth serve`: the rehearsal as an HTTP server."""

import re
from typing import Annotated

from refinesynth.backends import resolve
from refinesynth.backends.names import rehearsal_faults
from refinesynth.cli.field_options import option
from refinesynth.cli.terminal import say
from refinesynth.errors import InputError
from refinesynth.rehearsal import Rehearsal
from refinesynth.serve import create_app
from refinesynth.serve import serve as serve_app

_DURATION = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{0,9})?)[ ]?(?P<unit>ms|s|m)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_MAX_SECONDS = 3_600.0


def serve(
    *,
    backend: Annotated[
        str, option(metavar="NAME", help="rehearsal, or rehearsal:FAULT=RATE,... with an LLM's faults.")
    ] = "rehearsal",
    port: Annotated[int, option(min=0, max=65_535, help="On 127.0.0.1; 0 takes any free port.")] = 8400,
    latency: Annotated[str, option(metavar="TIME", help="Until an answer begins, on average: 200ms, 1.5s.")] = "0",
    jitter: Annotated[float, option(min=0, max=1, help="Share by which the latency varies.")] = 0.0,
    seed: Annotated[int, option(help="Decides how long each request takes.")] = 0,
) -> None:
    """Serve the rehearsal as an OpenAI-compatible API on this machine, for load tests.

    Ends with Ctrl-C.
    """
    chosen = resolve(backend)
    if not chosen.is_rehearsal:
        raise InputError(f"only the rehearsal is served, not {chosen.label}; ask that model where it is")
    rehearsal = Rehearsal(faults=rehearsal_faults(chosen.model))
    app = create_app(rehearsal, latency=parse_duration(latency), jitter=jitter, seed=seed)

    def ready(address: str) -> None:
        say(f"serving {chosen.model} at {address}/v1")
        say(f"counts are at {address}/stats; Ctrl-C ends it", "dim")

    serve_app(app, port=port, on_ready=ready)


def parse_duration(text: str) -> float:
    """Seconds of `200ms`, `1.5s`, `2m` or `0`, at most an hour; raises InputError for other text."""
    normalized = text.strip().casefold()
    if normalized in {"0", "0.0"}:
        return 0.0
    if not (match := _DURATION.fullmatch(normalized)):
        raise InputError(f"{text!r} is no duration; write a number and a unit, as in 200ms, 1.5s or 2m")
    seconds = float(match["number"]) * _SECONDS[match["unit"]]
    if seconds > _MAX_SECONDS:
        raise InputError(f"{text!r} is too long; an hour (60m) is the most")
    return seconds
