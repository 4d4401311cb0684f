"""`refinesynth serve` and `serve-world`: the rehearsal as an HTTP server, a grounded world over MCP."""

from typing import Annotated, Literal

import anyio

from refinesynth.cli.field_options import option
from refinesynth.cli.run_records import RunOrFile
from refinesynth.cli.terminal import say
from refinesynth.errors import InputError, RulebookError


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
    from refinesynth.backends import resolve
    from refinesynth.backends.names import rehearsal_faults
    from refinesynth.rehearsal import Rehearsal
    from refinesynth.serve import create_app
    from refinesynth.serve import serve as serve_app

    chosen = resolve(backend)
    if not chosen.is_rehearsal:
        raise InputError(f"only the rehearsal is served, not {chosen.label}; ask that model where it is")
    rehearsal = Rehearsal(faults=rehearsal_faults(chosen.model))
    app = create_app(rehearsal, latency=latency)

    def ready(address: str) -> None:
        say(f"serving {chosen.model} at {address}/v1")
        say(f"counts are at {address}/stats; Ctrl-C ends it", "dim")

    serve_app(app, port=port, on_ready=ready)


def serve_world(
    source: RunOrFile,
    *,
    world_id: Annotated[str | None, option("--id", metavar="ID")] = None,
    steps: Annotated[int, option(min=1)] = 30,
    slips: Annotated[float, option(min=0, max=0.99)] = 0.0,
    start: Literal["clean", "mistakes"] = "clean",
    seed: int = 0,
) -> None:
    """Serve a world of grounded play over MCP, on standard input and output; one session is one play.

    docs/environments.md describes the setup of Claude Code and other clients. Needs the extra `mcp`.

    Options:
        world_id: Of a trajectory that was played in it; by default the first world.
        steps: Actions until the play is over.
        slips: Share of right actions that fail for a moment.
        start: mistakes: begin behind the first mistake of the trajectory.
        seed: Decides which ones.
    """
    from refinesynth.environments import GroundedEnvironment
    from refinesynth.environments.grounded import find_world
    from refinesynth.environments.mcp import serve

    try:
        named_world = find_world(source, world_id, start)
        world = GroundedEnvironment(named_world.script, steps=steps, slips=slips)
        world.reset(seed, before=named_world.before)
    except (RulebookError, ValueError) as error:
        raise InputError(f"the world cannot be executed: {error}") from error
    anyio.run(serve, world)
