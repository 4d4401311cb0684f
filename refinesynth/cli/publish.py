"""`refinesynth publish`: a run as a dataset on the Hugging Face Hub."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from refinesynth.cli.export import facts_of_run
from refinesynth.cli.fetch import run_here
from refinesynth.cli.field_options import option
from refinesynth.cli.terminal import output as standard_output
from refinesynth.export import check_languages, check_licence
from refinesynth.export.publishing import check_key, check_repo, files_of, upload, write_dataset
from refinesynth.text.number_format import counted, in_bytes


def publish(
    run: Annotated[Path, typer.Argument(metavar="RUN", parser=run_here, help="Folder or URL of a run.")],
    repo: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Dataset on the Hub; it is created if missing.")],
    *,
    license_id: Annotated[str, option("--license", "Licence of your data, as the Hub writes it.", metavar="ID")],
    format_name: Annotated[
        str,
        option(
            "--format", "Format of the records, as for export; or traces, for the Hub's trace viewer.", metavar="NAME"
        ),
    ] = "openai",
    masking: Annotated[str | None, option("--masking", "As for export.", metavar="HOW")] = None,
    held_out: Annotated[
        float | None, option("--held-out", "Share of the scripts for the split test.", metavar="SHARE")
    ] = None,
    title: Annotated[str | None, option("--title", "Title of the card; by default the name.")] = None,
    language: Annotated[list[str] | None, option("--language", "Language of the data.", metavar="CODE")] = None,
    public: Annotated[bool, option("--public", "Create a public dataset; by default it is private.")] = False,
    dry_run: Annotated[bool, option("--dry-run", "Write the files and list them; send nothing.")] = False,
    output: Annotated[
        Path | None, option("-o", "Folder for the files; by default a temporary one.", metavar="FOLDER")
    ] = None,
) -> None:
    """Publish the accepted trajectories as a dataset: Parquet files with splits, and a card. Needs a key of the Hub
    (`hf auth login`, or HF_TOKEN).
    """
    check_repo(repo)
    licence, languages = check_licence(license_id), check_languages(language or ())
    if not dry_run:
        check_key()
    console = standard_output()
    with TemporaryDirectory() as scratch:
        folder = output or Path(scratch) / "dataset"
        reports = write_dataset(
            run,
            folder,
            repo,
            licence=licence,
            format=format_name,
            masking=masking,
            held_out=held_out,
            title=title or "",
            language=languages,
            facts=facts_of_run(run),
        )
        for split, report in reports.items():
            sizes = (
                f"{counted(report.records, 'record')} of {counted(report.trajectories, 'trajectory', 'trajectories')}"
            )
            console.print(f"{split}: {sizes}", soft_wrap=True)
        for name, size in files_of(folder):
            console.print(f"  {name}  {in_bytes(size)}", soft_wrap=True)
        if dry_run:
            console.print("nothing was sent", soft_wrap=True)
            return
        console.print(f"published: {upload(folder, repo, public=public)}", soft_wrap=True)
