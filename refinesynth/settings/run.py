"""All settings of a run, each with its unit, default and effect; the one source of options, files and records."""

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from reprlib import repr as shortened
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from refinesynth.errors import ConfigurationError
from refinesynth.files.output_folder import is_url
from refinesynth.option import INPUT, LIMITS, MACHINES, MISTAKES, MODEL, OUTPUT, PLAY, RULES, Option
from refinesynth.settings.grounding import Grounding
from refinesynth.settings.mistakes import Mistakes
from refinesynth.trajectory.value import is_empty

DEADLINE: Final = 7_200.0
"""Default time limit of an episode in seconds, far above the duration of normal episodes."""
EARLY_STOP: Final = 32
"""Default number of finished episodes after which a run stops if none was accepted."""

_MAX_PLAYS: Final = 100_000
"""Largest `concurrency`, in episodes in flight."""

StrictInt = Annotated[int, Field(strict=True)]

_MODEL_CONFIG = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, arbitrary_types_allowed=True)


class Attempts(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Limits on the attempts and completions of one episode."""

    scripts: int = Field(default=3, ge=1)
    """Maximum number of written scripts until one passes the script rules."""
    drafts: int = Field(default=4, ge=1)
    """Maximum number of drafts of each play: in turn-by-turn play, plays that end or are cut back at a violation; in
    narrated play, answers of the Narrator."""
    calls: int | None = Field(default=None, ge=1)
    """Maximum number of completions for the script and its first play, including retried answers, without the judge's;
    None for no limit. Each further play of the script may have the same number. The paper allows four."""
    answers: int = Field(default=2, ge=0)
    """Maximum number of times that an answer of invalid form goes back to the model with its errors, before its attempt
    is refused."""

    @model_validator(mode="before")
    @classmethod
    def _parse_text(cls, value: Any) -> Any:
        """Parse `drafts=4,scripts=3,calls=8,answers=2`, any of them; a bare number at the beginning is `drafts`."""
        if not isinstance(value, str):
            return value
        text = value if "=" in value.partition(",")[0] else f"drafts={value}"
        parts = [(name.strip(), number) for name, _, number in (part.partition("=") for part in text.split(","))]
        names = [name for name, _ in parts]
        if invalid := set(names) - cls.model_fields.keys() or {
            name for name, number in parts if names.count(name) > 1 or not number.strip().isdecimal()
        }:
            raise ValueError(
                f"{', '.join(sorted(invalid))}: expected numbers by name, each once, such as "
                f"scripts=3,drafts=4,calls=8,answers=2"
            )
        return dict(parts)


class Curation(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Settings of curation. It looks at episodes in the order of their personas, so the result does not depend on
    concurrency.
    """

    near_duplicates: Annotated[
        Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None, Option(RULES, "SIMILARITY")
    ] = None
    """Similarity to an earlier script, above 0 and up to 1, from which on a script's trajectories are refused; by
    default none are."""
    contamination: Annotated[tuple[str, ...], Option(RULES, "FILE")] = ()
    """Files of evaluation sets; a trajectory that shares a run of words with one is refused. A continued run needs files
    with the same content."""
    words: int = Field(default=13, ge=3, le=100)
    """Length of such a run of words."""

    @property
    def idle(self) -> bool:
        """True if nothing is checked."""
        return self.near_duplicates is None and not self.contamination


_SHARD = re.compile(r"\s*([0-9]{1,7})\s*/\s*([0-9]{1,7})\s*")


class Shard(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """`3/8` is the fourth of eight: every eighth persona, beginning with the fourth, and an eighth of `n`.

    Shards of the same personas are disjoint and complete. They are counted from 0, like the indices of Kubernetes'
    jobs, and of Slurm's with `--array=0-7`.
    """

    index: int = Field(ge=0)
    """Number of this shard, from 0."""
    of: int = Field(ge=1, le=1_000_000)
    """Number of shards."""

    @model_validator(mode="before")
    @classmethod
    def _parse_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if (match := _SHARD.fullmatch(value)) is None:
            raise ValueError("expected I/N, such as 3/8: the fourth of eight, since they are counted from 0")
        return {"index": int(match[1]), "of": int(match[2])}

    @model_validator(mode="after")
    def _check_index(self) -> "Shard":
        if self.index >= self.of:
            raise ValueError(
                f"shards are counted from 0, so of {self.of} the last is {self.of - 1}/{self.of} "
                f"(in Slurm: --array=0-{self.of - 1})"
            )
        return self

    @model_serializer
    def _as_text(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    def share(self, count: int) -> int:
        """Return how many of `count` personas in a row, or trajectories to make, are this shard's."""
        return max(0, -(-(count - self.index) // self.of))

    def place(self, index: int) -> int:
        """Return the place in the whole of the shard's persona number `index`; both from 0."""
        return self.index + index * self.of


WHOLE_RUN = Shard(index=0, of=1)


def _to_path(value: str | PathLike[str] | None) -> Path | None:
    if value is None or isinstance(cast("object", value), str | PathLike):
        return None if value is None else Path(value)
    raise ValueError("expected a path")


def _to_path_or_url(value: str | PathLike[str] | None) -> Path | str | None:
    return value if isinstance(value, str) and is_url(value) else _to_path(value)


def _number_or(word: str, high: int | None = None) -> BeforeValidator:
    """Reader of a whole number from 1 to `high`, also as text, or of the word."""

    def read(value: object) -> object:
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if number == word or (type(number) is int and 1 <= number <= (high or number)):
            return number
        raise ValueError(f"expected {word!r}, or a whole number{f' from 1 to {high:,}' if high else ', 1 or more'}")

    return BeforeValidator(read)


class PlaySettings(BaseModel):
    """Settings of every episode's play and verification. All but the deadline change the data."""

    model_config = _MODEL_CONFIG

    play: Annotated[str, Option(PLAY)] = "live"
    """Kind of play: `live` (DungeonMaster and Player converse), `narrated` (one call writes both voices, as in the
    paper), `grounded` (as live, but the script's rulebook executes the world), or a registered play of another package.
    """
    player_form: Annotated[Literal["react", "tools"], Option(MODEL)] = "react"
    """Form of the Player's requests and answers: `react` (Thought and Action as text) or `tools` (native tool calls,
    one function per action; text if its model supports no tools). Records have the same form."""
    parallel_calls: Annotated[bool, Option(MODEL)] = Field(default=False, exclude_if=is_empty)
    """Allow several tool calls in a message of the Player, with `player_form` `tools`. They are executed in order, even
    after a mistake among them."""
    match: Annotated[Literal["strict", "lenient"], Option(MODEL)] = "strict"
    """Matching of the Player's actions in turn-by-turn play: `strict` takes them literally; `lenient` ignores a final
    full stop, quotes, articles and the case of the first letter if exactly one action fits, accepts a call in Python's
    syntax, and records that action."""
    mistakes: Annotated[Mistakes, Option(MISTAKES, "POLICY")] = Field(default_factory=Mistakes)
    """Policy for mistakes: spread (the default), spread=2 (mean number in a play, 1 to 4; 2 by default), natural,
    prompted, prompted=1,4 (player turns from 0) or at_least=2."""
    repairer: Literal["model", "planner"] | None = None
    """Actor right after a mistake of the Player: `model` (the backend of the role `repairer`), `planner` (in grounded
    play: a plan to the goal, without a model), or None for the Player itself. A backend for the role, such as
    `{"repairer": "planner"}`, implies it."""
    repair_turns: Annotated[int | Literal["until"], _number_or("until"), Option(MISTAKES, "N|until")] = 1
    """Number of turns of the repairer after each mistake; `until`: until the mistake is answered."""
    attempts: Annotated[Attempts, Option(LIMITS, "BOUNDS")] = Field(default_factory=Attempts)
    """Attempts per persona, any of drafts=4, scripts=3, calls=8, answers=2, separated by commas."""
    grounding: Grounding = Field(default_factory=Grounding)
    """Settings of plays with executed worlds."""
    branches: Annotated[StrictInt, Field(ge=1, le=1_000), Option(PLAY, "N")] = 1
    """Number of trajectories of each accepted play: the play itself, and others that branch off from a verified prefix;
    with a model as repairer, from one of its mistakes."""
    episodes_per_script: Annotated[StrictInt, Field(ge=1, le=1_000), Option(PLAY, "N")] = 1
    """Number of plays of each accepted script."""
    seed: Annotated[StrictInt, Field(ge=-(2**63), le=2**64 - 1), Option(PLAY, "N")] = 0
    """Seed of the run, 64 bits; each episode's seed is derived from it. The same seed, personas and settings give the
    same files if the backend is deterministic."""
    shard: Annotated[Shard | None, Option(MACHINES, "I/N")] = None
    """Part of a run that several machines share. `3/8` plays every 8th persona, beginning with the fourth (counted from
    0), for an 8th of `n`. `refinesynth merge` joins the shards. Budget and rate limits apply to each shard."""
    max_turns: Annotated[StrictInt, Field(ge=2), Option(PLAY, "N")] = 60
    """Maximum number of turns of both voices in turn-by-turn play. Most evaluations allow 30 actions."""
    judge: Annotated[bool, Option(RULES)] = False
    """Let an LLM judge every finished draft that the rules accept; both must accept it."""
    deadline: Annotated[Annotated[float, Field(gt=0)] | None, Option(LIMITS, "SECONDS")] = Field(
        default=DEADLINE, exclude=True
    )
    """Time limit of an episode in seconds; waits for a backend that is down, for rate limits and for the budget do not
    count. The default is far above the duration of normal episodes."""

    def place(self, index: int) -> int:
        """Return the place of the run's persona `index` in the whole, of which the run may be a shard; random draws
        depend on it.
        """
        return (self.shard or WHOLE_RUN).place(index)


class RunSettings(PlaySettings):
    """All settings of a run, except those of one call, see `synthesis.request.Request`."""

    personas: Any = None
    """A path (.jsonl, .csv, .tsv, .txt, also .gz; `-` for standard input), an iterable or
    async iterable, or a Hugging Face dataset; None for the personas of the package."""
    column: Annotated[str | None, Option(INPUT, "NAME")] = None
    """Column or field of the persona in a file's rows; by default `persona` or `text`."""
    scripts: Annotated[Any, Option(INPUT, "RUN")] = None
    """Run folder, or file of its trajectories, whose scripts are each played again once, instead of new ones: with
    another player or other rules. Replaces the personas."""
    tools: Annotated[Any, Option(INPUT, "FILE")] = None
    """Functions as the actions of all worlds: a JSON file, or a list, in the form of OpenAI or MCP. From more than 40,
    each episode draws 40."""
    mcp: Annotated[Annotated[str, Field(min_length=1)] | None, Option(INPUT, "COMMAND")] = None
    """Command of an MCP server, or its URL (http:// or https://), whose tools are the actions of all worlds. They are
    listed once, at the start; they are called only with `real`."""
    allow_tool: Annotated[tuple[str, ...], Option(INPUT, "NAME")] = ()
    """Names of the tools to use; by default all."""
    real: Annotated[bool, Option(INPUT)] = False
    """Execute the calls of live play on the MCP server of `mcp` and use its results as observations; each play starts
    its own server process. Models choose the arguments, so use a sandbox. Requires `allow_tool`."""
    real_state: Annotated[str | None, Option(INPUT, "TEXT")] = None
    """Description of the server's data at the start of a play, for the ScriptWriter; with `real`."""
    n: Annotated[StrictInt, Field(ge=1, le=10**12), Option(INPUT, "N", ("-n", "--number"), shows_default=False)] = 100
    """Number of accepted trajectories to make. The run ends when it is reached; an episode with several trajectories is
    kept whole."""
    backend: Any = "rehearsal"
    """A preset's name, a litellm model string, a `Backend`, or a mapping from role to these with `default`; in a
    mapping, a list for a role whose models take turns."""
    rules: Annotated[Any, Option(RULES, "CHAIN")] = None
    """Rules for drafts, by default strict(), in grounded play grounded(), with `real` strict(imagined=False);
    `refinesynth rules` lists all rules."""
    script_rules: Annotated[Any, Option(RULES, "CHAIN")] = None
    """Rules for scripts, by default script(), in grounded play grounded_script()."""
    curation: Curation | None = None
    """Checks of accepted trajectories for near-duplicate scripts and overlaps with evaluation sets; None for neither.
    """
    prompts: Annotated[Any, AfterValidator(_to_path), Option(MODEL, "FOLDER")] = None
    """Folder with your own prompt templates; each replaces the shipped one of the same name. `@small`: the shipped
    short ones, for models below about 8 billion parameters."""
    output: Annotated[Any, AfterValidator(_to_path_or_url), Option(OUTPUT, "FOLDER", ("-o", "--output"))] = None
    """The run folder, or a URL: s3://, gs:// or az://; by default the next free `runs/NNN`. An existing run is
    continued with the same personas in the same order; further ones may follow."""
    concurrency: Annotated[int | Literal["auto"], _number_or("auto", _MAX_PLAYS), Option(LIMITS, "auto|N")] = "auto"
    """Maximum number of episodes in flight. `auto` starts with 16, or fewer for a small `n`, and grows while the
    servers keep up, to at most 1,024 per worker or a quarter of the memory."""
    workers: Annotated[StrictInt, Field(ge=1, le=10_000), Option(MACHINES, "N")] = 1
    """Number of processes that play, each on one core; budget and rate limits apply to all together. More than one
    requires Ray (extra `cluster`), and rules and completion functions that can be pickled."""
    cluster: Annotated[str | None, Option(MACHINES, "ADDRESS")] = None
    """Ray cluster of the workers: `auto`, `HOST:6379` or `ray://HOST:10001`; by default this machine."""
    budget: Annotated[Any, Option(LIMITS, "LIMIT")] = None
    """Hard limit on spending: 50usd, 20Mtok, or 50usd,20Mtok. The total exceeds it by less than one request per worker.
    The same run with a higher limit continues."""
    early_stop: Annotated[StrictInt, Field(ge=0), Option(LIMITS, "N")] = EARLY_STOP
    """Number of finished episodes, from the first on, after which the run stops early if none was accepted; 0 never
    stops early. Episodes lost to a backend or the deadline count only after four times this number."""
    fallback: Any = None
    """Second backend, used while the first is down or has become unusable. Each trajectory's provenance names the one
    that answered."""
    batch: Annotated[bool, Option(MODEL)] = False
    """Send the requests of ScriptWriter and Narrator in batches of OpenAI or Anthropic: half the price, answers within
    a day. Use it with a large `concurrency`."""
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Option(OUTPUT)] = "info"
    """Minimum level of the events in events.jsonl; debug lists every completion."""

    @model_validator(mode="before")
    @classmethod
    def _with_repairer(cls, fields: dict[str, Any]) -> dict[str, Any]:
        backend: object = fields.get("backend")
        repairer = cast("Mapping[str, object]", backend).get("repairer") if isinstance(backend, Mapping) else None
        if repairer is None:
            return fields
        is_planner = str(getattr(repairer, "model", repairer)).strip().casefold() == "planner"
        return {**fields, "repairer": "planner" if is_planner else "model"}

    @classmethod
    def make(cls, arguments: Mapping[str, Any], *, names: Mapping[str, str] | None = None) -> Self:
        """Make it from arguments by name; None stands for the default where a setting has no None of its own.

        `names` are the settings' names in messages, such as `--transient` for `grounding.transient`.

        Raises:
            ConfigurationError: A wrong value; the message has the value and what is expected.
        """
        values = {name: value for name, value in arguments.items() if value is not None or name == "deadline"}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ConfigurationError(_problem(first, arguments, cls.model_fields, names or {})) from None

    @property
    def on_ray(self) -> bool:
        """True if tasks on Ray play, not this process."""
        return self.workers > 1 or self.cluster is not None

    def wanted(self) -> int:
        """Return the number of trajectories to make: `n`, or a shard's share of it.

        Raises:
            ConfigurationError: There are more shards than trajectories.
        """
        if not (share := (self.shard or WHOLE_RUN).share(self.n)):
            raise ConfigurationError(
                f"n is {self.n:,} for all shards together, and nothing of it is left for shard {self.shard}; ask for fewer shards"
            )
        return share


def _problem(
    error: ErrorDetails, arguments: Mapping[str, Any], fields: Mapping[str, FieldInfo], names: Mapping[str, str]
) -> str:
    name, *inner = map(str, error["loc"])
    if name not in fields:
        return f"there is no setting {shortened(name)}"
    if inner and isinstance(arguments.get(name), Mapping):
        dotted = ".".join((name, *inner))
        option = next((option for field, option in names.items() if dotted.startswith(field)), dotted)
        return f"{option} is {shortened(error['input'])}; {_lower_first(error['msg'])}"
    path = f"{'.'.join(inner)}: " if inner else ""
    message = f"{names.get(name, name)} is {shortened(arguments[name])}; {path}{_lower_first(error['msg'])}"
    if error["type"] == "value_error" and isinstance(error["input"], str):
        return message  # it names what is expected
    description = " ".join((fields[name].description or "").split()).partition(". ")[0].rstrip(".;:")
    return f"{message}: {description[:1].lower()}{description[1:]}"


def _lower_first(message: str) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Input ")
    return f"{message[:1].lower()}{message[1:]}"
