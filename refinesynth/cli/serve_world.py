"""`refinesynth serve-world`: a run's world for any agent that speaks MCP."""

from typing import Annotated, Literal

import anyio
import typer

from refinesynth.cli.show import RunOrFile
from refinesynth.environments import GroundedEnvironment
from refinesynth.environments.grounded import find_world
from refinesynth.environments.mcp import serve
from refinesynth.errors import InputError
from refinesynth.world import RulebookError

WorldId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Of a trajectory that was played in it; by default the first world."),
]
Steps = Annotated[int, typer.Option("--steps", min=1, help="Actions until the play is over.")]
Slips = Annotated[
    float, typer.Option("--slips", min=0, max=0.99, help="Share of right actions that fail for a moment.")
]
Start = Annotated[
    Literal["clean", "mistakes"],
    typer.Option("--start", help="mistakes: begin behind the first mistake of the trajectory."),
]
WorldSeed = Annotated[int, typer.Option("--seed", help="Decides which ones.")]


def serve_world(
    source: RunOrFile,
    *,
    world_id: WorldId = None,
    steps: Steps = 30,
    slips: Slips = 0.0,
    start: Start = "clean",
    seed: WorldSeed = 0,
) -> None:
    """Serve a world of grounded play over MCP, on standard input and output; one session is one play.

    docs/environments.md says how to tell Claude Code and others of it. Needs the extra `mcp`.
    """
    try:
        found = find_world(source, world_id, start)
        world = GroundedEnvironment(found.script, steps=steps, slips=slips)
        world.reset(seed, before=found.before)
    except (RulebookError, ValueError) as error:
        raise InputError(f"the world cannot be executed: {error}") from error
    anyio.run(serve, world)
