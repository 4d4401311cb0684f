"""`refinesynth fetch`: a run in an object store as a folder here; and runs by their URL, where commands read them."""

from pathlib import Path
from shutil import copytree
from typing import Annotated

import anyio
import typer

from refinesynth.cli.terminal import notes
from refinesynth.errors import RunFolderError
from refinesynth.files.output_folder import LOCK_FILE
from refinesynth.files.urls import is_url
from refinesynth.stores import fetch as fetched

Url = Annotated[str, typer.Argument(metavar="URL", help="Of a run in an object store: s3://, gs://, az://.")]
Output = Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="The new folder.")]


def run_here(given: str) -> Path:
    """A path as it is; of a run in an object store a copy in the cache, brought up to date."""
    if not is_url(given):
        return Path(given)

    return anyio.run(fetched, given)


def fetch(url: Url, *, output: Output) -> None:
    """Copy a run from an object store into a folder, as far as it is there. Commands that read runs take URLs too."""
    if not is_url(url):
        raise typer.BadParameter(f"{url!r} is no URL, such as s3://bucket/runs/first", param_hint="URL")
    if output.exists():
        raise RunFolderError(f"{str(output)!r} is there already; give a new folder")
    copytree(run_here(url), output, ignore=lambda _folder, _names: [LOCK_FILE])
    notes().print(f"{url} is in {output}", soft_wrap=True)
