"""`refinesynth show`: records of a run as text, a list or JSON."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from refinesynth.cli import trajectory_text
from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import option
from refinesynth.cli.run_records import RunOrFile, by_id, file_of, lines, random_line, records
from refinesynth.cli.terminal import note, output, say
from refinesynth.errors import InputError
from refinesynth.lazy_imports import check_installed
from refinesynth.outcome import Refused
from refinesynth.text.formatting import printable
from refinesynth.trajectory import Trajectory


def show(
    source: RunOrFile,
    wanted: Annotated[
        str | None, typer.Argument(metavar="ID", help="Id, the beginning of one, or the episode's number.")
    ] = None,
    *,
    at_random: Annotated[bool, option("--random", help="Any one.")] = False,
    refused: Annotated[bool, option(help="What was refused and why: a list, or with ID or --random in full.")] = False,
    listing: Annotated[bool, option("--list", help="One line for each.")] = False,
    json: Annotated[bool, option(help="The record as JSON; with --list one a line.")] = False,
    mask: Annotated[
        str | None,
        option(metavar="MODEL", help="As tokens of this model (hub name, folder or GGUF file): which carry loss."),
    ] = None,
) -> None:
    """Read one trajectory, its mistakes and refinements marked: the first, a random one, or the one with the ID."""
    if (wanted is not None) + at_random + listing > 1:
        raise InputError("give one of ID, --random and --list")
    if mask is not None and (json or listing or refused):
        raise InputError("--mask shows accepted trajectories in full; leave out --json, --list and --refused")

    path = file_of(source, refused=refused)
    if listing or (refused and wanted is None and not at_random):
        _print_list(path, json=json)
        return
    console = output()
    for index, record in enumerate(_chosen_records(path, wanted, at_random=at_random)):
        if json:
            say(printable(trajectory_text.indented(record.model_dump(mode="json"))))
            continue
        if index:
            console.print()
        console.print(trajectory_text.layout(record) if mask is None else _masked(record, mask))


def _print_list(path: Path, *, json: bool) -> None:
    console, unreadable = output(), list[str]()
    for record in records(path, lambda error: unreadable.append(str(error))):
        line = printable(record.to_json().decode()) if json else trajectory_text.summary_line(record)
        console.print(line, soft_wrap=True)
    for message in unreadable:
        note(message)
    if unreadable:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _masked(record: Trajectory | Refused, model: str) -> RenderableType:
    if not isinstance(record, Trajectory):
        raise InputError("--mask shows accepted trajectories; this record was refused")
    check_installed("train", "torch", "transformers")
    from refinesynth.cli.train_display import LEGEND, preview_layout
    from refinesynth.train import layered
    from refinesynth.train.trainer import preview_data

    form = "tools" if record.provenance.parallel_calls else "react"
    config = layered(
        given={"data": ["given"], "model": model, "output": "unused", "form": form}, given_by="--mask"
    ).config
    examples = preview_data(config, len(record.turns), sources=[[record]])
    return Group(LEGEND, *map(preview_layout, examples))


def _chosen_records(path: Path, query: str | None, *, at_random: bool) -> list[Trajectory | Refused]:
    if query is not None:
        return by_id(lines(path), query)
    line = random_line(lines(path)) if at_random else next(lines(path), None)
    if line is None:
        raise InputError(f"there is nothing in {str(path)!r}")
    return [line.read()]
