"""The options of `refinesynth run`, as its help shows them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Contaminated(StrEnum):
    """What becomes of a trajectory that an evaluation set holds a part of."""

    report = "report"
    refuse = "refuse"


class LevelName(StrEnum):
    """How urgent an event must be to be written."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class Preset(StrEnum):
    """A set of settings by name."""

    paper = "paper"


Personas = Annotated[
    Path | None,
    typer.Argument(
        metavar="PERSONAS",
        help="JSONL with `persona` or `text`, JSON, CSV, TSV, Parquet or plain text, .gz and .zst too; - for standard input. Without it, the personas "
        "that come with refinesynth.",
    ),
]
Column = Annotated[
    str | None,
    typer.Option("--column", metavar="NAME", help="Where the persona stands in a row, if not in `persona` or `text`."),
]
Scripts = Annotated[
    Path | None,
    typer.Option(
        "--scripts",
        metavar="RUN",
        help="Play the scripts of this run again, each once, instead of writing new ones: with another player, or "
        "under other rules.",
    ),
]
Number = Annotated[
    int | None,
    typer.Option("-n", "--number", min=1, help="How many accepted trajectories to make."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings by name in YAML or JSON; options override them. See --show-config."
    ),
]
ShowConfig = Annotated[
    bool,
    typer.Option(
        "--show-config", help="Print every setting, what it decides and where it comes from, as a file. Runs nothing."
    ),
]
BackendOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        metavar="[ROLE=]NAME",
        help="A preset, any litellm model string, or `rehearsal` (the default: built in, offline, free). Repeat it with "
        "ROLE= for other models in some roles: script_writer, dungeon_master, player, narrator, judge. Models that are given to one role "
        "take turns.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="[ROLE.]SETTING=VALUE",
        help="A setting of the backends: base_url, api_key_env, temperature, max_tokens, timeout, requests_per_minute, "
        "tokens_per_minute, output_mode, retries, ...; see docs/backends.md. Repeat it for more.",
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FOLDER",
        help="Where the run is written, also s3://, gs:// or az://; by default the next free runs/NNN. A run that is there is continued.",
    ),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Start over; a run that is in FOLDER is kept beside it, as FOLDER.old-1."),
]
RetryFailed = Annotated[
    bool,
    typer.Option(
        "--retry-failed",
        help="Go on with the run in FOLDER, and first play those personas again that gave nothing; max_tokens, output_mode "
        "and extra may be others now.",
    ),
]
Terse = Annotated[
    bool | None,
    typer.Option("--terse", help="Grounded: the world answers in the rulebook's own words, without any model."),
]
DifficultyOption = Annotated[
    str | None,
    typer.Option(
        "--difficulty",
        metavar="BAND",
        help="Grounded: keep scripts whose shortest solution has so many actions: 4..12.",
    ),
]
Transient = Annotated[
    float | None,
    typer.Option(
        "--transient",
        metavar="RATE",
        min=0,
        max=0.99,
        help="Grounded: share of the right actions that fail for a moment.",
    ),
]
MixOption = Annotated[
    str | None,
    typer.Option(
        "--mix",
        metavar="SHARES",
        help="Grounded: which share of the scripts is asked for a feature: distractors=0.8,irreversible=0.2,hidden=0.5,preconditions=0.7.",
    ),
]
Branches = Annotated[
    int | None,
    typer.Option("--branches", min=1, help="Trajectories of each accepted play, which share a verified part of it."),
]
EpisodesPerScript = Annotated[
    int | None, typer.Option("--episodes-per-script", min=1, help="Plays of each accepted script.")
]
NearDuplicates = Annotated[
    float | None,
    typer.Option(
        "--near-duplicates",
        metavar="SIMILARITY",
        min=0,
        max=1,
        help="Refuse scripts that are so similar to one that is there, 0 to 1.",
    ),
]
Contamination = Annotated[
    list[Path] | None,
    typer.Option("--contamination", metavar="FILE", help="An evaluation set to compare with; repeat it for more."),
]
ContaminatedOption = Annotated[
    Contaminated | None,
    typer.Option("--contaminated", help="With --contamination: what becomes of a trajectory that it holds a part of."),
]
PresetOption = Annotated[
    Preset | None, typer.Option("--preset", help="The paper's procedure; other options override parts of it.")
]
Rules = Annotated[
    str | None,
    typer.Option(
        "--rules",
        metavar="CHAIN",
        help="What a draft must satisfy, by default strict(); `refinesynth rules` lists what there is.",
    ),
]
ScriptRules = Annotated[
    str | None, typer.Option("--script-rules", metavar="CHAIN", help="What a script must satisfy, by default script().")
]
MistakesOption = Annotated[
    str | None,
    typer.Option(
        "--mistakes",
        metavar="POLICY",
        help="spread, spread=2, natural, prompted, prompted=1,4 (player turns from 0) or at_least=2.",
    ),
]


class PlayerForm(StrEnum):
    """How the player is asked and answers."""

    react = "react"
    tools = "tools"


PlayerFormOption = Annotated[
    PlayerForm | None,
    typer.Option("--player-form", help="Ask the player for text, or with native tool calls, an action a function."),
]
AttemptsOption = Annotated[
    str | None,
    typer.Option(
        "--attempts",
        metavar="BOUNDS",
        help="Tries per persona, any of drafts=4, scripts=3, calls=8, answers=2; commas between them, no spaces.",
    ),
]
Concurrency = Annotated[
    str | None,
    typer.Option(
        "--concurrency",
        metavar="auto|N",
        help="Most episodes in flight; by default auto, as many as the servers have room for, from 16 up to 1,024.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="The same seed, personas and settings give the same files, if the backend is deterministic. By default 0.",
    ),
]
ShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Play every N-th persona alone, from number I on (from 0), for an N-th of -n: for job arrays; see docs/scaling.md.",
    ),
]
MaxTurns = Annotated[int | None, typer.Option("--max-turns", min=2, help="Turns at which a live play is broken off.")]
Prompts = Annotated[
    Path | None, typer.Option("--prompts", metavar="FOLDER", help="Your own prompt templates; see docs/prompts.md.")
]
Judge = Annotated[bool | None, typer.Option("--judge", help="Let a model judge what the rules accepted.")]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="LIMIT",
        help="A hard stop: 50usd, 20Mtok, or 50usd,20Mtok. The same command with a higher one goes on.",
    ),
]
PatienceOption = Annotated[
    int | None,
    typer.Option(
        "--patience",
        metavar="N",
        min=0,
        help="Stop after N finished episodes without one accepted, or with too few for -n; by default 32. 0 goes on to the end.",
    ),
]
Fallback = Annotated[
    str | None,
    typer.Option(
        "--fallback",
        metavar="NAME",
        help="A second backend, asked while the first is down or cannot be asked any more. --set fallback.SETTING=VALUE "
        "sets it alone.",
    ),
]
Deadline = Annotated[
    float | None,
    typer.Option("--deadline", metavar="SECONDS", help="When an episode is given up; by default after two hours."),
]
Batch = Annotated[
    bool,
    typer.Option(
        "--batch",
        help="Ask the script writer and the narrator in batches of OpenAI or Anthropic: half the price, each answer within a "
        "day. With a large --concurrency.",
    ),
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes to play in, each on a core; by default 1.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="ADDRESS", help="Ray cluster of the workers: auto, HOST:6379 or ray://HOST:10001."
    ),
]
Journals = Annotated[
    str | None,
    typer.Option("--journals", metavar="DIR", help="Folder on a disk of each worker's machine for its journal."),
]
LogLevel = Annotated[
    LevelName | None, typer.Option("--log-level", help="How much events.jsonl holds; debug lists every completion.")
]
Otel = Annotated[
    bool, typer.Option("--otel", help="Make OpenTelemetry spans; run it under opentelemetry-instrument to send them.")
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Play a handful of personas for real, which costs money, and say what N will take. Writes nothing to -o.",
    ),
]
Sample = Annotated[
    int | None, typer.Option("--sample", min=1, help="With --dry-run: how many personas to play, by default 8.")
]
AsJson = Annotated[bool, typer.Option("--json", help="The report as one JSON object.")]
