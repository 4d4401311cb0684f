"""`refinesynth serve-world`: a grounded world as an environment over MCP."""

from typing import Annotated, Literal

import anyio

from refinesynth.cli.field_options import option
from refinesynth.cli.run_records import RunOrFile
from refinesynth.environments import GroundedEnvironment
from refinesynth.environments.grounded import find_world
from refinesynth.errors import InputError
from refinesynth.world import RulebookError


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
    from refinesynth.environments.mcp import serve

    try:
        named_world = find_world(source, world_id, start)
        world = GroundedEnvironment(named_world.script, steps=steps, slips=slips)
        world.reset(seed, before=named_world.before)
    except (RulebookError, ValueError) as error:
        raise InputError(f"the world cannot be executed: {error}") from error
    anyio.run(serve, world)
