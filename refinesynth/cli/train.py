"""`refinesynth train`: refinement tuning."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from refinesynth.errors import InputError


class Precision(StrEnum):
    """What weights are held and computed in."""

    auto = "auto"
    bf16 = "bf16"
    fp32 = "fp32"
    fp64 = "fp64"
    bf16_pure = "bf16-pure"


class SaveDtype(StrEnum):
    """What the finished model's weights are written in."""

    auto = "auto"
    bf16 = "bf16"
    fp16 = "fp16"
    fp32 = "fp32"
    fp64 = "fp64"


class LossOn(StrEnum):
    """Which assistant turns give loss."""

    refinement = "refinement"
    all_turns = "all_turns"
    no_refinement_turns = "no_refinement_turns"


class OverLength(StrEnum):
    """What becomes of a conversation that is too long."""

    truncate = "truncate"
    drop = "drop"


class ThoughtAs(StrEnum):
    """How chat templates are given what an assistant thinks."""

    content = "content"
    reasoning = "reasoning"


Data = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DATA...",
        help="Run folders, exported files or Hugging Face datasets; NAME:0.3 takes that share of one.",
    ),
]
MoreData = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="NAME[:WEIGHT]", help="The same, for each DATA. Repeat it for more."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="Hub name or folder of a causal language model; scratch: a tiny random one, to see a training run.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FOLDER",
        help="Where the model is written. A training that is there and was interrupted goes on.",
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option("--recipe", metavar="NAME", help="paper-8b, paper-70b, lora or smoke; other options override it."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="YAML with any settings; options override it, it overrides the recipe."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Any setting, such as weight_decay=0.1 or lora.rank=64; --show-config lists them all. Repeat it for more.",
    ),
]
Lora = Annotated[bool | None, typer.Option("--lora/--no-lora", help="Train low-rank adapters instead of all weights.")]
MaxLength = Annotated[
    int | None, typer.Option("--max-length", help="Tokens of the longest conversation, by default 8192.")
]
OverLengthOption = Annotated[
    OverLength | None,
    typer.Option(
        "--over-length",
        metavar="HOW",
        help="truncate (the default): cut a longer one behind a trained turn; drop: leave it out.",
    ),
]
Epochs = Annotated[float | None, typer.Option("--epochs", help="Passes over the data, by default 10.")]
MaxSteps = Annotated[int | None, typer.Option("--max-steps", help="Optimizer steps, whatever --epochs says.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="Conversations per optimizer step, over all devices; by default 64.")
]
LearningRate = Annotated[
    float | None, typer.Option("--learning-rate", "--lr", help="Its peak; by default 5e-6, with --recipe lora 2e-4.")
]
LossOption = Annotated[
    LossOn | None,
    typer.Option(
        "--loss-on",
        metavar="TURNS",
        help="Turns to learn: refinement (all but mistakes, the default), or the paper's ablations all_turns and no_refinement_turns.",
    ),
]
WithoutRefinement = Annotated[
    bool | None,
    typer.Option("--without-refinement", help="Take mistakes and the answers to them out of the data."),
]
HeldOut = Annotated[
    float | None,
    typer.Option(
        "--held-out", help="Share (below 1) or number of the personas kept out to evaluate on; by default 0.02."
    ),
]
TokensPerPack = Annotated[
    int | None,
    typer.Option(
        "--tokens-per-pack", help="Tokens of one forward pass on a device, by default --max-length; for memory."
    ),
]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        "--precision",
        metavar="TYPE",
        help="bf16 (over fp32 weights; the default on a GPU), fp32 (the default on a CPU), fp64 or bf16-pure.",
    ),
]
SaveDtypeOption = Annotated[
    SaveDtype | None,
    typer.Option(
        "--save-dtype",
        metavar="TYPE",
        help="Of the finished model's weights: auto (the base's, the default), bf16, fp16, fp32 or fp64.",
    ),
]
Deepspeed = Annotated[
    str | None,
    typer.Option(
        "--deepspeed", metavar="STAGE", help="Split the work by DeepSpeed: zero2, zero3, or a JSON file of your own."
    ),
]
Processes = Annotated[
    int | None, typer.Option("--processes", help="Processes on this machine, one for each GPU; by default 1.")
]
Tokenizer = Annotated[
    str | None, typer.Option("--tokenizer", metavar="NAME", help="Hub name or folder; by default the model's.")
]
ChatTemplate = Annotated[
    Path | None,
    typer.Option(
        "--chat-template",
        metavar="NAME-OR-FILE",
        help="llama-3, chatml, react or Jinja in a file; by default the tokenizer's own.",
    ),
]
ThoughtAsOption = Annotated[
    ThoughtAs | None,
    typer.Option(
        "--thought-as",
        metavar="HOW",
        help="content (the default): thoughts are part of the message; reasoning: a thinking model's template gets them as its thinking.",
    ),
]
TrustRemoteCode = Annotated[
    bool | None,
    typer.Option("--trust-remote-code", help="Run code that comes with the model. By default never."),
]
Seed = Annotated[int | None, typer.Option("--seed", help="The same seed gives the same training. By default 0.")]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="HOW",
        help="auto (the default): go on from the newest checkpoint; never: begin anew, and keep what is there beside; or a checkpoint's folder.",
    ),
]
Tensorboard = Annotated[bool | None, typer.Option("--tensorboard", help="Write TensorBoard files too.")]
ShowConfig = Annotated[
    bool,
    typer.Option("--show-config", help="Print every setting, what it means and where it comes from. Trains nothing."),
]
Preview = Annotated[
    bool,
    typer.Option("--preview", help="Show what the model will see: trained, context, masked mistakes. Trains nothing."),
]
Sample = Annotated[
    int | None,
    typer.Option("--sample", metavar="N", min=1, help="With --preview: how many conversations, by default 1."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count, estimate memory and steps, and check. Trains nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="The plan of --dry-run, or the result, as one JSON object.")]
LocalRank = Annotated[
    int | None,
    typer.Option("--local_rank", "--local-rank", hidden=True, help="From launchers; the environment says the same."),
]


def train(
    data: Data = None,
    *,
    more_data: MoreData = None,
    model: Model = None,
    output: Output = None,
    recipe: Recipe = None,
    config: Config = None,
    lora: Lora = None,
    max_length: MaxLength = None,
    over_length: OverLengthOption = None,
    epochs: Epochs = None,
    max_steps: MaxSteps = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    loss_on: LossOption = None,
    without_refinement: WithoutRefinement = None,
    held_out: HeldOut = None,
    tokens_per_pack: TokensPerPack = None,
    precision: PrecisionOption = None,
    save_dtype: SaveDtypeOption = None,
    deepspeed: Deepspeed = None,
    processes: Processes = None,
    tokenizer: Tokenizer = None,
    chat_template: ChatTemplate = None,
    thought_as: ThoughtAsOption = None,
    trust_remote_code: TrustRemoteCode = None,
    seed: Seed = None,
    resume: Resume = None,
    tensorboard: Tensorboard = None,
    set_: Set = None,
    show_config: ShowConfig = False,
    preview: Preview = False,
    dry_run: DryRun = False,
    sample: Sample = None,
    json: AsJson = False,
    local_rank: LocalRank = None,
) -> None:
    """Tune a model on trajectories: it learns from the repair, never from the mistake.

    The same command again continues a training that was interrupted.
    `train merge ADAPTER` makes a whole model of adapters.

    Exits with 0 when it is done, 1 when it could not go on, 2 when it was asked
    wrongly, 3 when the folder cannot be written, 130 after Ctrl-C, 143 after SIGTERM.
    """
    del local_rank
    if show_config + preview + dry_run > 1:
        raise InputError("give one of --show-config, --preview and --dry-run")
    if sample is not None and not preview:
        raise InputError("--sample is for --preview alone; give that too, or leave it out")
    from refinesynth.cli.train_asking import Asked, act
    from refinesynth.cli.train_settings import given

    options: dict[str, Any] = {
        "data": [*(data or ()), *(more_data or ())] or None,
        "model": model,
        "output": output,
        "lora": lora,
        "max_length": max_length,
        "over_length": over_length,
        "epochs": epochs,
        "max_steps": max_steps,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "loss_on": loss_on,
        "without_refinement": without_refinement,
        "held_out": held_out,
        "tokens_per_pack": tokens_per_pack,
        "precision": precision,
        "save_dtype": save_dtype,
        "processes": processes,
        "tokenizer": tokenizer,
        "chat_template": chat_template,
        "thought_as": thought_as,
        "trust_remote_code": trust_remote_code,
        "seed": seed,
        "resume": resume,
        "tensorboard": tensorboard,
    }
    wanted = Asked.CONFIG if show_config else Asked.PREVIEW if preview else Asked.PLAN if dry_run else Asked.TRAINING
    settings = given(options, deepspeed=deepspeed, assignments=set_ or [])
    raise typer.Exit(act(wanted, recipe, config, settings, sample=sample or 1, json=json))
