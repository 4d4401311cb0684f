"""`refinesynth train merge`: an adapter becomes a model of its own."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from refinesynth.cli.train import SaveDtypeOption, TrustRemoteCode


def merge(
    adapter: Annotated[
        str, typer.Argument(metavar="ADAPTER", help="Folder of LoRA adapters, or their name on the hub.")
    ],
    *,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="New or empty folder that gets the whole model.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="Hub name or folder of the base; by default the one that the adapter names.",
        ),
    ] = None,
    save_dtype: SaveDtypeOption = None,
    device: Annotated[
        Literal["cpu", "auto"],
        typer.Option("--device", metavar="WHERE", help="cpu (the default), or auto: a GPU if there is one."),
    ] = "cpu",
    trust_remote_code: TrustRemoteCode = None,
) -> None:
    """Merge low-rank adapters into their base: a whole model, which needs no peft.

    A data folder that is called merge is trained on as ./merge.

    Exits with 0 when it is done, 1 when it could not be written whole, 2 when it was asked
    wrongly, 3 when the folder cannot be written.
    """
    from refinesynth.cli.terminal import output as said
    from refinesynth.cli.terminal import styled
    from refinesynth.text.printable import one_line
    from refinesynth.train.merging import merge

    merged = merge(
        adapter,
        output,
        model=model,
        save_dtype=save_dtype or "auto",
        device=device,
        trust_remote_code=bool(trust_remote_code),
    )
    where = one_line(str(merged.output))
    said().print(
        styled(f"The model is in {where}, in {merged.dtype}: {one_line(merged.base)} with the adapter merged in."),
        soft_wrap=True,
    )
