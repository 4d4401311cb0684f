"""`refinesynth train`: refinement tuning."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from refinesynth.errors import InputError

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
    Literal["truncate", "drop"] | None,
    typer.Option(
        "--over-length",
        metavar="HOW",
        help="truncate (the default): cut a longer one behind a trained turn; drop: leave it out.",
    ),
]
Epochs = Annotated[float | None, typer.Option("--epochs", help="Passes over the data, by default 10.")]
MaxSteps = Annotated[int | None, typer.Option("--max-steps", help="Optimizer steps; overrides --epochs.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="Conversations per optimizer step, over all devices; by default 64.")
]
LearningRate = Annotated[
    float | None, typer.Option("--learning-rate", "--lr", help="Its peak; by default 5e-6, with --recipe lora 2e-4.")
]
LossOption = Annotated[
    Literal["refinement", "all_turns", "no_refinement_turns"] | None,
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
    Literal["auto", "bf16", "fp32", "fp64", "bf16-pure"] | None,
    typer.Option(
        "--precision",
        metavar="TYPE",
        help="bf16 (over fp32 weights; the default on a GPU), fp32 (the default on a CPU), fp64 or bf16-pure.",
    ),
]
SaveDtypeOption = Annotated[
    Literal["auto", "bf16", "fp16", "fp32", "fp64"] | None,
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
FormOption = Annotated[
    Literal["react", "tools"] | None,
    typer.Option(
        "--form",
        metavar="FORM",
        help="Trajectories as ReAct text (react, the default) or with each action as a native tool call (tools).",
    ),
]
ThoughtAsOption = Annotated[
    Literal["content", "reasoning", "omit"] | None,
    typer.Option(
        "--thought-as",
        metavar="HOW",
        help="content (the default): thoughts are part of the message; reasoning: a thinking model's template gets them as its thinking; omit: they are left out.",
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
        help="auto (the default): go on from the newest checkpoint; never: start over, and keep what is there beside; or a checkpoint's folder.",
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

_NO_SETTINGS: Final = frozenset(
    {
        "more_data",
        "recipe",
        "config",
        "deepspeed",
        "set_",
        "show_config",
        "preview",
        "dry_run",
        "sample",
        "json",
        "local_rank",
    }
)
"""Parameters of `train` that are no fields of `TrainConfig`; all others are called as these."""


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
    form: FormOption = None,
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

    Exits with 0 when it is done, 1 when it could not go on, 2 when it was asked
    wrongly, 3 when the folder cannot be written, 130 after Ctrl-C, 143 after SIGTERM.
    """
    options = {name: value for name, value in locals().items() if name not in _NO_SETTINGS}
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

    options["data"] = [*(data or ()), *(more_data or ())] or None
    wanted = Asked.CONFIG if show_config else Asked.PREVIEW if preview else Asked.PLAN if dry_run else Asked.TRAINING
    settings = given(options, deepspeed=deepspeed, assignments=set_ or [])
    raise typer.Exit(act(wanted, recipe, config, settings, sample=sample or 1, json=json))
