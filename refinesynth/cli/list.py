"""`refinesynth list`: the runs in a folder, a line each."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.status import AsJson, as_json
from refinesynth.cli.terminal import notes, output, print_json, styled
from refinesynth.errors import InputError, RefinesynthError
from refinesynth.journal.journal_values import model_of
from refinesynth.run import RunFolder
from refinesynth.run.run_folder import holds_run
from refinesynth.run.status import RunStatus
from refinesynth.text.number_format import dollars
from refinesynth.text.printable import one_line

Parent = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the runs are.")]


def list_runs(parent: Parent = Path("runs"), *, json: AsJson = False) -> None:
    """Say of each run in a folder how far it is, what it cost and which models made it. Changes nothing.

    With --json one object a line, as `status --json` has it. Exits with 1 when a run cannot be read.
    """
    if not parent.is_dir():
        raise InputError(f"there is no folder {str(parent)!r}; give the one that your runs are in")
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("run", "state", "accepted", "cost", "play", "models"):
        table.add_column(name, justify="right" if name in {"accepted", "cost"} else "left", overflow="fold")
    failed = False
    for path in sorted(filter(holds_run, parent.iterdir())):
        try:
            folder = RunFolder.open(path)
            found = RunStatus.of(folder)
        except RefinesynthError as error:
            failed = True
            notes().print(f"refinesynth: {error}", soft_wrap=True)
            continue
        if json:
            print_json(as_json(found))
        else:
            _add(table, folder, found)
    if table.row_count:
        output().print(table)
    elif not json and not failed:
        output().print(f"there are no runs in {str(parent)!r}", soft_wrap=True)
    if failed:
        raise typer.Exit(ExitCode.FELL_SHORT)


def _add(table: Table, folder: RunFolder, found: RunStatus) -> None:
    accepted = f"{found.accepted:,} of {found.n:,}"
    cost = "unknown" if found.cost_usd is None else dollars(found.cost_usd)
    models = ", ".join(dict.fromkeys(model_of(one.model) for one in found.spent))
    texts = (found.folder.name, found.state, accepted, cost, folder.config.play, models)
    table.add_row(*(styled(one_line(text)) for text in texts))
