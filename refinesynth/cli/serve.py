"""`refinesynth serve`: the rehearsal as an HTTP server."""

from pathlib import Path
from typing import Annotated

import typer

from refinesynth.errors import InputError

BackendOption = Annotated[
    str, typer.Option("--backend", metavar="NAME", help="rehearsal, or rehearsal:FAULT=RATE,... with an LLM's faults.")
]
Port = Annotated[int, typer.Option("--port", min=0, max=65_535, help="On 127.0.0.1; 0 takes any free port.")]
Latency = Annotated[
    str, typer.Option("--latency", metavar="TIME", help="Until an answer begins, on average: 200ms, 1.5s.")
]
Jitter = Annotated[float, typer.Option("--jitter", min=0, max=1, help="Share by which the latency varies.")]
Fail = Annotated[
    str,
    typer.Option(
        "--fail",
        metavar="KIND=SHARE,...",
        help="Shares of requests that fail, such as 429=0.05,hang=0.001: an HTTP status, or busy (429 without Retry-After), hang, "
        "before, middle, after (reset before, in or after the body), drip, garbage (no JSON).",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Decides which request fails, and how long each takes.")]
Log = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="Append a line of JSON for each request: whose, what, paid for or not."),
]


def serve(
    *,
    backend: BackendOption = "rehearsal",
    port: Port = 8400,
    latency: Latency = "0",
    jitter: Jitter = 0.0,
    fail: Fail = "",
    seed: Seed = 0,
    log: Log = None,
) -> None:
    """Serve the rehearsal as an OpenAI-compatible API on this machine, for load and fault tests.

    Ends with Ctrl-C.
    """
    from refinesynth.backends import resolve
    from refinesynth.backends.names import rehearsal_faults
    from refinesynth.cli.terminal import output
    from refinesynth.rehearsal import Faults, Rehearsal
    from refinesynth.serve import create_app, parse_duration, parse_faults
    from refinesynth.serve import serve as serve_app

    chosen = resolve(backend)
    if not chosen.rehearses:
        raise InputError(f"only the rehearsal is served, not {chosen.label}; ask that model where it is")
    app = create_app(
        Rehearsal(faults=Faults.model_validate(rehearsal_faults(chosen.model))),
        latency=parse_duration(latency),
        jitter=jitter,
        faults=parse_faults(fail),
        seed=seed,
        log=log,
    )
    console = output()

    def ready(address: str) -> None:
        console.print(f"serving {chosen.model} at {address}/v1", soft_wrap=True)
        console.print(f"counts are at {address}/stats; Ctrl-C ends it", style="dim", soft_wrap=True)

    serve_app(app, port=port, on_ready=ready)
