"""Commands `merge`, `filter`, `fetch` and `import`, which write a run folder from other runs and files."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Annotated

import anyio
import typer

from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import option
from refinesynth.cli.rules import read_chain
from refinesynth.cli.run_records import Run, local_path
from refinesynth.cli.terminal import note, progress_line, say
from refinesynth.errors import RunFolderError
from refinesynth.files.output_folder import LOCK_FILE, is_url
from refinesynth.imports import import_trajectories
from refinesynth.rules import verify
from refinesynth.run.merging import Keep, merge_runs
from refinesynth.run.run_folder import waiting_note
from refinesynth.text.formatting import counted

Output = Annotated[Path, option("-o", "--output", metavar="FOLDER", help="The new run.")]
Fresh = Annotated[bool, option(help="Begin anew; what is in the folder is kept beside it.")]
_MAX_SHARDS = 8


def merge(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", parser=local_path, help="Folders or URLs of runs, in their order.")
    ],
    *,
    output: Output,
    fresh: Fresh = False,
) -> None:
    """Merge runs, such as those of other seeds, personas or models. Duplicates are written once."""
    _write(runs, output, fresh=fresh)


def filter_(
    run: Run,
    *,
    output: Output,
    rules: Annotated[str, option(metavar="CHAIN", help="Keep what these accept.")],
    fresh: Fresh = False,
) -> None:
    """Keep the trajectories of a run that a chain of rules accepts."""
    chain = read_chain("--rules", rules)
    _write([run], output, fresh=fresh, keep=lambda record: verify(record.draft(), chain).accepted, rules=repr(chain))


def fetch(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of a run in an object store: s3://, gs://, az://.")],
    *,
    output: Annotated[Path, option("-o", "--output", metavar="FOLDER", help="The new folder.")],
) -> None:
    """Copy a run, finished or not, from an object store into a folder. Commands that read runs take URLs too."""
    if not is_url(url):
        raise typer.BadParameter(f"{url!r} is no URL, such as s3://bucket/runs/first", param_hint="URL")
    if output.exists():
        raise RunFolderError(f"{str(output)!r} is there already; give a new folder")
    copytree(local_path(url), output, ignore=lambda _folder, _names: [LOCK_FILE])
    note(f"{url} is in {output}")


def _write(
    runs: Sequence[Path], output: Path, *, fresh: bool, keep: Keep | None = None, rules: str | None = None
) -> None:
    merged = anyio.run(partial(merge_runs, runs, output, keep=keep, rules=rules, fresh=fresh))
    summary = f"{merged.path}: {counted(merged.trajectories, 'trajectory', 'trajectories')}"
    if merged.duplicates:
        summary += f"; {merged.duplicates:,} that were there already are not written again"
    if merged.renamed:
        summary += f"; {counted(merged.renamed, 'episode')} had the id of another one, and got a number behind it"
    if merged.missing:
        summary += f"; not among them: shard {', '.join(merged.missing[:_MAX_SHARDS])}{'...' if merged.missing[_MAX_SHARDS:] else ''}"
    note(summary)
    if merged.waiting:
        note(waiting_note(merged.waiting))


def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE")],
    *,
    format_name: Annotated[str, option("--format", metavar="NAME")],
    output: Annotated[Path | None, option("-o", "--output", metavar="FOLDER")] = None,
    fresh: bool = False,
) -> None:
    """Read trajectories of other projects, or an export, into a run folder, which all commands accept.

    docs/import.md lists what is read from each format. Exits with 1 when a record cannot be read.

    Options:
        source: JSON lines, also .gz.
        format_name: agentinstruct (the authors' released form), openai (messages, with and without tools), atif, or
            paper.
        output: The run folder; by default the next free runs/NNN.
        fresh: Begin anew; what is in the folder is kept beside it.
    """
    try:
        with progress_line("records") as show_count:
            work = partial(
                import_trajectories, source, format=format_name, output=output, fresh=fresh, on_progress=show_count
            )
            result = anyio.run(work)
    except (KeyboardInterrupt, SystemExit):
        note("interrupted: the same command with --fresh begins anew")
        raise
    summary = f"{counted(len(result), 'trajectory', 'trajectories')} of {counted(result.episodes, 'record')}"
    say(f"{result.path}: {summary}, {counted(result.figures.mistakes.total(), 'mistake')}")
    if first := next(iter(result.rejected), None):
        note(
            f"{counted(len(result.rejected), 'record')} left out: {first.text}\n"
            f"`refinesynth show {result.path} --refused` lists them; rejected.jsonl holds them as they were"
        )
        raise typer.Exit(ExitCode.INCOMPLETE)
