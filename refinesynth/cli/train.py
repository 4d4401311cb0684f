"""`refinesynth train`: refinement tuning."""

from pathlib import Path
from typing import Annotated, Any

import typer

from refinesynth.errors import InputError
from refinesynth.option import ADVANCED, INPUT, LEARNING, MACHINES

Data = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DATA...",
        help="Run folders, exported files or Hugging Face datasets; NAME:0.3 takes that share of one.",
    ),
]
MoreData = Annotated[
    list[str] | None,
    typer.Option(
        "--data", metavar="NAME[:WEIGHT]", help="The same, for each DATA. Repeat it for more.", rich_help_panel=INPUT
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="NAME",
        help="paper-8b, paper-70b, lora or smoke; other options override it.",
        rich_help_panel=INPUT,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="YAML with any settings; options override it, it overrides the recipe.",
        rich_help_panel=INPUT,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Any setting, such as weight_decay=0.1 or lora.rank=64; --show-config lists them all. Repeat it for more.",
        rich_help_panel=ADVANCED,
    ),
]
Lora = Annotated[
    bool | None,
    typer.Option("--lora/--no-lora", help="Train low-rank adapters instead of all weights.", rich_help_panel=LEARNING),
]
Deepspeed = Annotated[
    str | None,
    typer.Option(
        "--deepspeed",
        metavar="STAGE",
        help="Split the work by DeepSpeed: zero2, zero3, or a JSON file of your own.",
        rich_help_panel=MACHINES,
    ),
]
ShowConfig = Annotated[
    bool,
    typer.Option(
        "--show-config",
        help="Print every setting, its meaning and its origin. Trains nothing.",
        rich_help_panel=ADVANCED,
    ),
]
Preview = Annotated[
    bool,
    typer.Option(
        "--preview",
        help="Show what the model will see: trained, context, masked mistakes. Trains nothing.",
        rich_help_panel=ADVANCED,
    ),
]
Sample = Annotated[
    int | None,
    typer.Option(
        "--sample",
        metavar="N",
        min=1,
        help="With --preview: how many conversations, by default 1.",
        rich_help_panel=ADVANCED,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Count, estimate memory and steps, and check. Trains nothing.", rich_help_panel=ADVANCED
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="The plan of --dry-run, or the result, as one JSON object.", rich_help_panel=ADVANCED),
]
LocalRank = Annotated[
    int | None,
    typer.Option("--local_rank", "--local-rank", hidden=True, help="From launchers; the environment says the same."),
]


def train(
    data: Data = None,
    *,
    more_data: MoreData = None,
    recipe: Recipe = None,
    config: Config = None,
    lora: Lora = None,
    deepspeed: Deepspeed = None,
    set_: Set = None,
    preview: Preview = False,
    sample: Sample = None,
    dry_run: DryRun = False,
    show_config: ShowConfig = False,
    json: AsJson = False,
    local_rank: LocalRank = None,  # noqa: ARG001 - the environment says the same
    **settings: Any,
) -> None:
    """Tune a model on trajectories: it learns from the repair, never from the mistake.

    The same command again continues a training that was interrupted.

    Exits with 0 when it is done, 1 when it could not go on, 2 when it was asked
    wrongly, 3 when the folder cannot be written, 130 after Ctrl-C, 143 after SIGTERM.
    """
    if data and data[0] == "merge":
        raise InputError(
            "refinesynth train merge is removed. Merge an adapter with peft: AutoPeftModelForCausalLM.from_pretrained(ADAPTER)"
            ".merge_and_unload().save_pretrained(FOLDER). A data folder of this name is ./merge"
        )
    if show_config + preview + dry_run > 1:
        raise InputError("give one of --show-config, --preview and --dry-run")
    if sample is not None and not preview:
        raise InputError("--sample is for --preview alone; give that too, or leave it out")
    from refinesynth.cli.train_asking import Asked, act
    from refinesynth.cli.train_settings import given

    options = {**settings, "lora": lora, "data": [*(data or ()), *(more_data or ())] or None}
    wanted = Asked.CONFIG if show_config else Asked.PREVIEW if preview else Asked.PLAN if dry_run else Asked.TRAINING
    settings = given(options, deepspeed=deepspeed, assignments=set_ or [])
    raise typer.Exit(act(wanted, recipe, config, settings, sample=sample or 1, json=json))
