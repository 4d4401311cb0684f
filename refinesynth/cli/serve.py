"""`refinesynth serve`: the rehearsal as an HTTP server."""

from typing import Annotated

from refinesynth.backends import resolve
from refinesynth.backends.names import rehearsal_faults
from refinesynth.cli.field_options import option
from refinesynth.cli.terminal import say
from refinesynth.errors import InputError
from refinesynth.rehearsal import Rehearsal
from refinesynth.serve import create_app
from refinesynth.serve import serve as serve_app


def serve(
    *,
    backend: Annotated[
        str, option(metavar="NAME", help="rehearsal, or rehearsal:FAULT=RATE,... with an LLM's faults.")
    ] = "rehearsal",
    port: Annotated[int, option(min=0, max=65_535, help="On 127.0.0.1; 0 takes any free port.")] = 8400,
    latency: Annotated[float, option(metavar="SECONDS", min=0, max=3_600, help="Until an answer begins.")] = 0.0,
) -> None:
    """Serve the rehearsal as an OpenAI-compatible API on this machine, for load tests.

    Ends with Ctrl-C.
    """
    chosen = resolve(backend)
    if not chosen.is_rehearsal:
        raise InputError(f"only the rehearsal is served, not {chosen.label}; ask that model where it is")
    rehearsal = Rehearsal(faults=rehearsal_faults(chosen.model))
    app = create_app(rehearsal, latency=latency)

    def ready(address: str) -> None:
        say(f"serving {chosen.model} at {address}/v1")
        say(f"counts are at {address}/stats; Ctrl-C ends it", "dim")

    serve_app(app, port=port, on_ready=ready)
