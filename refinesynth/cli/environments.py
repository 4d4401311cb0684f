"""`refinesynth environments` and `serve-world`: grounded worlds as environments of reinforcement learning."""

from typing import Annotated, Literal

import anyio
import typer
from rich.table import Table

from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import option
from refinesynth.cli.run_records import RunOrFile
from refinesynth.cli.status import AsJson
from refinesynth.cli.terminal import output, print_json, say, styled
from refinesynth.environments import STEPS, GroundedEnvironment, read_worlds
from refinesynth.environments.grounded import find_world
from refinesynth.environments.integrity import EASY, Integrity, check_integrity
from refinesynth.errors import InputError
from refinesynth.text.number_format import counted
from refinesynth.world import RulebookError

environments = typer.Typer()


@environments.callback()
def _group() -> None:
    """Check grounded worlds as environments of reinforcement learning."""


_MAX_NAMED = 5
"""Most worlds that a sentence names."""


@environments.command()
def check(
    source: RunOrFile,
    *,
    steps: Annotated[int, option(min=1, help="Most actions of a play.")] = STEPS,
    seeds: Annotated[int, option(min=1, max=1000, help="Plays of each policy in each world.")] = 5,
    start: Annotated[str, option(metavar="WHERE", help="clean, mistakes or mixed:0.5, as for export.")] = "clean",
    json: AsJson = False,
) -> None:
    """Play each world of a run as an oracle, as players that know nothing, and as cheats; print the mean rewards.

    Exits with 1 where the oracle does not get the maximum, or an idle or cheating player gets anything.
    """
    results: list[Integrity] = []
    for world in read_worlds(source, start):
        try:
            results.append(check_integrity(world, steps=steps, seeds=range(seeds)))
        except (RulebookError, ValueError) as error:
            raise InputError(f"the world of {world.id} cannot be played: {error}") from error
    unsound = [result.id for result in results if not result.is_sound]
    if json:
        rewards = ({baseline.policy: baseline.reward for baseline in result.baselines} for result in results)
        facts = zip(results, rewards, strict=True)
        print_json([{"id": result.id, "sound": result.is_sound, "rewards": by_policy} for result, by_policy in facts])
        raise typer.Exit(ExitCode.INCOMPLETE if unsound else ExitCode.OK)
    table = Table("policy", "mean reward", "must be", f"worlds above {EASY:g}", box=None, padding=(0, 2))
    for row in zip(*(result.baselines for result in results), strict=True):
        name, _, expected = row[0]
        mean = sum(baseline.reward for baseline in row) / len(row)
        bound = "" if expected is None else f"{expected:g}"
        style = "red" if any(baseline.fails for baseline in row) else ""
        table.add_row(name, styled(f"{mean:.3f}", style), bound, str(sum(baseline.reward > EASY for baseline in row)))
    output().print(table)
    say(f"{counted(len(results), 'world')}, {counted(seeds, 'play')} of each policy, {steps} actions at most")
    if easy := [result.id for result in results if any(baseline.is_easy for baseline in result.baselines)]:
        say(f"won without knowledge in more than half of the plays: {_names(easy)}")
    if unsound:
        say(f"not sound: {_names(unsound)}; `--json` has the rewards of each policy")
        raise typer.Exit(ExitCode.INCOMPLETE)


def _names(ids: list[str]) -> str:
    return ", ".join([*ids[:_MAX_NAMED], *(["..."] if len(ids) > _MAX_NAMED else [])])


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
