"""All settings of a run, each with its unit, its default and what it decides. What is passed on, recorded and read from
files is this.
"""

import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from reprlib import repr as shortened
from typing import Annotated, Any, Final, Literal, Self, cast

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from refinesynth.errors import ConfigurationError
from refinesynth.files.urls import is_url
from refinesynth.settings.attempts import Attempts
from refinesynth.settings.curation import Curation
from refinesynth.settings.grounding import Grounding
from refinesynth.settings.mistakes import Mistakes
from refinesynth.settings.shard import WHOLE, Shard

DEADLINE: Final = 7_200.0
"""Seconds that an episode may take, unless a run says otherwise: far beyond what any but a stuck one needs."""
EARLY_STOP: Final = 32
"""Finished episodes without one accepted after which a run stops, unless it says otherwise."""

FORMER: Final[Mapping[str, str | None]] = {"patience": "early_stop", "retry_failed": None}
"""Former names of arguments, which are accepted for one release, to the present ones; None where there is none and nothing
is done."""

_MOST: Final = 100_000
"""Episodes in flight that may be asked for: each is a task with a few kilobytes of its own, before it does anything."""

Whole = Annotated[int, Field(strict=True)]

_READ = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, arbitrary_types_allowed=True)


def _a_path(value: str | PathLike[str] | None) -> Path | None:
    if value is None or isinstance(cast("object", value), str | PathLike):
        return None if value is None else Path(value)
    raise ValueError("expected a path")


def _a_place(value: str | PathLike[str] | None) -> Path | str | None:
    return value if isinstance(value, str) and is_url(value) else _a_path(value)


def _in_flight(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST):
        return value
    raise ValueError(f"expected 'auto', or a whole number from 1 to {_MOST:,}")


def _a_folder_there(value: str | PathLike[str] | None) -> str | None:
    """As text: what it means is found out on the machine where it is."""
    path = _a_path(value)
    return None if path is None else str(path)


class PlaySettings(BaseModel):
    """How every episode of a run is played and judged. All of it changes the data, but the deadline."""

    model_config = _READ

    play: str = "live"
    """Name in the table of plays: `live` (DungeonMaster and Player converse), `narrated` (one call writes both voices,
    as the paper does), `grounded` (as live, and the world is executed by the rulebook that the script comes with), or a
    play of your own."""
    player_form: Literal["react", "tools"] = "react"
    """How the Player is asked and answers: `Thought: ... Action: ...` as text, or with native tool calls, an action a
    function; in text where its model takes no tools. What it said is recorded alike; every export can be had in either
    form."""
    mistakes: Mistakes = Field(default_factory=Mistakes)
    """Where mistakes come from."""
    attempts: Attempts = Field(default_factory=Attempts)
    """How often an episode may try again."""
    grounding: Grounding = Field(default_factory=Grounding)
    """How worlds are executed, and what is asked of their scripts; for plays with executed worlds alone."""
    branches: Annotated[Whole, Field(ge=1, le=1_000)] = 1
    """Trajectories of each accepted play: itself, and others that go on differently from a verified part of it."""
    episodes_per_script: Annotated[Whole, Field(ge=1, le=1_000)] = 1
    """Plays of each accepted script."""
    seed: Annotated[Whole, Field(ge=-(2**63), le=2**64 - 1)] = 0
    """Of the run, a number of 64 bits; each episode's own seed is derived from it."""
    shard: Shard | None = None
    """Which part of a run this is, as `I/N`, counted from 0. `3/8` plays every 8th persona, beginning with the fourth,
    for an 8th of `n`. Each shard is a run of its own, maybe on another machine; `refinesynth merge` puts them together."""
    max_turns: Annotated[Whole, Field(ge=1)] = 60
    """Turns of both voices at which an attempt at a live play is broken off: the world may have no way to its goal.
    From half of them on the DungeonMaster is reminded of how the play ends. Evaluations allow 30 actions."""
    judge: bool = False
    """Whether an LLM judge must agree to what the rules accept."""
    deadline: Annotated[float, Field(gt=0)] | None = Field(default=DEADLINE, exclude=True)
    """Seconds that an episode may take before it is given up, what it had refused so far being kept; the time in which
    its backend is down does not count. None: as long as it takes. By default two hours, far beyond what any but a stuck
    one needs."""

    def place(self, index: int) -> int:
        """Where the persona number `index` of this run stands in the whole, of which it may be a shard: what chance
        decides about its episode follows from that.
        """
        return (self.shard or WHOLE).place(index)


class RunSettings(PlaySettings):
    """A run, whole, but for where its progress goes and what stands in for its backends."""

    personas: Any = None
    """A path (.jsonl, .json, .csv, .tsv, .parquet, .txt, also .gz and .zst; `-` for standard input), an iterable or async iterable, a Hugging Face dataset;
    None for those that come with the package."""
    column: str | None = None
    """Where in the rows of a file of personas they stand; None for `persona` or `text`."""
    scripts: Any = None
    """A run folder, or a file of its trajectories, whose scripts are played again instead of writing new ones: by
    another player, under other rules. In the place of personas; what is read from it is each script once, with its
    persona."""
    n: Annotated[Whole, Field(ge=1, le=10**12)] = 100
    """Accepted trajectories to make; a run ends when so many are accepted at least."""
    backend: Any = "rehearsal"
    """A preset's name, a litellm model string, a `Backend`, or a mapping from role to these with `default`."""
    rules: Any = None
    """What a draft must satisfy, as a rule or as text for `rules.parse`; None for the play's own."""
    script_rules: Any = None
    """What a script must satisfy; None for the play's own."""
    curation: Curation | None = None
    """Near-duplicates and contamination that are looked for in what the rules accepted; None for neither."""
    prompts: Annotated[Any, AfterValidator(_a_path)] = None
    """Folder with prompt templates that replace shipped ones of the same name."""
    output: Annotated[Any, AfterValidator(_a_place)] = None
    """The run folder, or the URL of one in an object store, such as `s3://bucket/runs/first`; None for the next free
    `runs/NNN` under the current folder."""
    concurrency: Annotated[int | Literal["auto"], BeforeValidator(_in_flight)] = "auto"
    """Most episodes in flight. `auto` begins with 16 and goes on as the servers have room, up to 1,024 or what a quarter
    of the memory bears."""
    workers: Annotated[Whole, Field(ge=1, le=10_000)] = 1
    """How many processes play, each on a core; one budget and one rate limit hold for all. One plays in the process of
    the run itself; more are workers on Ray, which comes with the extra `cluster`."""
    cluster: str | None = None
    """The Ray cluster on which the workers are: `auto`, `HOST:6379` or `ray://HOST:10001`; None for this machine."""
    journals: Annotated[Any, AfterValidator(_a_folder_there)] = None
    """A folder on a disk of each worker's machine for what it has paid for, as `/nvme/refinesynth` or
    `$TMPDIR/refinesynth`; None for the run folder, where all workers are on one machine."""
    budget: Any = None
    """What may be spent in all, such as `50usd` or `20Mtok`: a hard stop."""
    early_stop: Annotated[Whole, Field(ge=0)] = EARLY_STOP
    """Finished episodes without one accepted after which the run stops early; 0 goes on to the end."""
    fallback: Any = None
    """A second backend, asked while the first is down or cannot be asked any more."""
    batch: bool = False
    """Ask the ScriptWriter and the Narrator in the provider's batches: at half the price, each within a day. Many episodes
    in flight make large batches."""
    log_level: str = "info"
    """How much events.jsonl holds: `debug` (every completion), `info`, `warning` or `error`."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From arguments by name; None stands for the default where a setting has no None of its own.

        Raises:
            ConfigurationError: A value that its setting does not take: what was given, and what is expected.
        """
        values = {name: value for name, value in given.items() if value is not None or name == "deadline"}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ConfigurationError(_problem(first, given, cls.model_fields)) from None

    def wanted(self) -> int:
        """Trajectories to make here: `n`, or a shard's share of it.

        Raises:
            ConfigurationError: There are more shards than trajectories to make, and nothing is left for this one.
        """
        if not (share := (self.shard or WHOLE).share(self.n)):
            raise ConfigurationError(
                f"n is {self.n:,} for all shards together, and nothing of it is left for shard {self.shard}; ask for fewer shards"
            )
        return share

    def played(self) -> dict[str, Any]:
        """The fields of `PlaySettings`, by name."""
        return {name: getattr(self, name) for name in PlaySettings.model_fields}


def with_present_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their present names; for each former one that is given, a `DeprecationWarning`."""
    found = {name: value for name, value in given.items() if name not in FORMER}
    for name in given.keys() & FORMER.keys():
        present = FORMER[name]
        instead = "is gone and does nothing" if present is None else f"is now called {present}; give that instead"
        warnings.warn(f"{name} {instead}", DeprecationWarning, stacklevel=2)
        if present is not None and found.get(present) is None:
            found[present] = given[name]
    return found


def _problem(error: ErrorDetails, given: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> str:
    name, *inner = map(str, error["loc"])
    if name not in fields:
        return f"there is no setting {shortened(name)}"
    if inner and isinstance(given.get(name), Mapping):
        return f"{'.'.join((name, *inner))} is {shortened(error['input'])}; {_lowered(error['msg'])}"
    about = " ".join((fields[name].description or "").split()).partition(". ")[0].rstrip(".;:")
    return f"{name} is {shortened(given[name])}; {_expected(fields[name], error)}: {about[:1].lower()}{about[1:]}"


def _expected(field: FieldInfo, error: ErrorDetails) -> str:
    kind = field.annotation
    if isinstance(kind, type) and issubclass(kind, int) and kind is not bool:
        least = next((bound.ge for bound in field.metadata if isinstance(bound, Ge)), None)
        most = next((bound.le for bound in field.metadata if isinstance(bound, Le)), None)
        if most is not None:
            return f"expected a whole number, from {least} to {most:,}"
        return "expected a whole number" if least is None else f"expected a whole number, {least} or more"
    for each in (Mistakes, Attempts, Grounding, Curation):
        if kind in {each, each | None}:
            return f"expected {each.__name__}(...) or None"
    return _lowered(error["msg"])


def _lowered(message: str) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Input ")
    return f"{message[:1].lower()}{message[1:]}"
