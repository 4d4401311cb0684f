"""Publication of a dataset on the Hugging Face Hub: a folder with Parquet files and a card, and its upload.

Titles, model names, rules and personas are untrusted. The card escapes them: they cannot break the YAML header or add
headings, links, images or HTML to the body.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final, cast

import orjson

from refinesynth._version import __version__
from refinesynth.chat import to_tool_messages
from refinesynth.errors import ConfigurationError, InputError, StorageError
from refinesynth.export.chat_shapes import Masking
from refinesynth.export.export_files import ExportReport, Side, one_side, write_export
from refinesynth.files.atomic_write import write_json_file, write_text_file
from refinesynth.lazy_imports import check_installed, require
from refinesynth.outcome import Cost
from refinesynth.run.completed_episode import EpisodeStats
from refinesynth.run.run_folder import stored_trajectories
from refinesynth.run.stats import TrajectoryStats
from refinesynth.text.formatting import code, plain_text, render_markdown, scrub
from refinesynth.text.json_reader import without_nulls, write_json
from refinesynth.trajectory import PlayerTurn, Trajectory, Usage
from refinesynth.trajectory.turns import is_lopsided

SHARD: Final = 5_000
"""Maximum number of rows in a Parquet file."""

_PUBLISHED: Final = (
    "data/train-*-of-*.parquet",
    "data/test-*-of-*.parquet",
    "traces/train/*.jsonl",
    "traces/test/*.jsonl",
    "schema.json",
)
"""Patterns of the files that a publication writes, except README.md, which each one replaces."""

_REPO = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)


def check_repo(repo: str) -> str:
    """Return the name of a dataset. Raises InputError: the name has not the form OWNER/NAME."""
    if _REPO.fullmatch(repo) is None:
        raise InputError(f"{repo!r} is no name of a dataset on the Hub; expected OWNER/NAME")
    return repo


def write_splits(records: Mapping[str, Path], folder: Path) -> list[Path]:
    """Write the rows of each split's JSONL file as `data/SPLIT-00000-of-00001.parquet` and so on, and verify the files.

    All files have the same columns, also nested ones; otherwise `datasets` could not read them together. Memory holds the
    rows of one file, at most `SHARD`.

    Raises:
        InputError: Rows have different types in a column, or only empty objects, which a table cannot hold.
        StorageError: A written file holds other rows.
    """
    check_installed("publish", "pyarrow")
    arrow, parquet = require("pyarrow", "publish"), require("pyarrow.parquet", "publish")
    tables: list[Path] = []
    (folder / "data").mkdir(parents=True, exist_ok=True)
    try:
        # `Table.from_pylist` would infer the columns from the first row alone.
        schemas = {
            split: [arrow.schema(arrow.infer_type(rows)) for rows in _shards(path)] for split, path in records.items()
        }
        schema: Any = arrow.unify_schemas([*chain(*schemas.values())], promote_options="permissive")
        for split, path in records.items():
            for number, rows in enumerate(_shards(path)):
                table = folder / "data" / f"{split}-{number:05d}-of-{len(schemas[split]):05d}.parquet"
                parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), table)
                if without_nulls(parquet.read_table(table).to_pylist()) != without_nulls(rows):
                    raise StorageError(f"{str(table)!r} does not hold what was written to it; nothing was sent")
                tables.append(table)
    except (arrow.ArrowException, OverflowError) as error:
        raise InputError(
            f"the records have columns of several types or without a field, which no table can hold: {error}"
        ) from error
    return tables


def row_schema(tables: Iterable[Path]) -> dict[str, Any]:
    """Return the JSON Schema of a row that `datasets` reads from Parquet files: missing values are null."""
    arrow, parquet = require("pyarrow", "publish"), require("pyarrow.parquet", "publish")
    names = {arrow.types.is_boolean: "boolean", arrow.types.is_integer: "integer", arrow.types.is_floating: "number"}

    def schema_of(kind: Any) -> dict[str, Any]:
        if arrow.types.is_struct(kind):
            columns = {column.name: schema_of(column.type) for column in kind.fields}
            return {"type": ["object", "null"], "properties": columns, "additionalProperties": False}
        if arrow.types.is_list(kind):
            return {"type": ["array", "null"], "items": schema_of(kind.value_type)}
        if arrow.types.is_null(kind):
            return {"type": "null"}
        return {"type": [next((name for is_type, name in names.items() if is_type(kind)), "string"), "null"]}

    schema = arrow.unify_schemas([parquet.read_schema(path) for path in tables], promote_options="permissive")
    row = {**schema_of(arrow.struct(list(schema))), "type": "object"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **row}


def _shards(records: Path) -> Iterator[list[Any]]:
    with records.open("rb") as lines:
        while rows := [orjson.loads(line) for line in islice(lines, SHARD)]:
            yield rows


_TRACE_KEYS: Final = {"reasoning_content": "reasoningContent", "tool_calls": "toolCalls", "tool_call_id": "toolCallId"}


def write_traces(trajectories: Iterable[Trajectory], folder: Path, split: str) -> ExportReport:
    """Write `traces/SPLIT/000001.jsonl` and so on for the Hub's trace viewer (Session Trace Simple Format).

    Thoughts are reasoning, actions are tool calls. The header lists the `mistakes` by the index of their message.
    """
    target, count, assistant_turns, masked = folder / "traces" / split, 0, 0, 0
    target.mkdir(parents=True)
    for count, trajectory in enumerate(trajectories, start=1):
        messages = to_tool_messages(trajectory)
        mistakes = [index for index, message in enumerate(messages) if message.role == "assistant" and not message.loss]
        header = {"harness": "refinesynth", "id": trajectory.id, "name": trajectory.script.goal, "mistakes": mistakes}
        lines: list[dict[str, Any]] = [{"type": "session", **header}]
        for message in messages:
            entry = {_TRACE_KEYS.get(key, key): value for key, value in message.openai("reasoning_content").items()}
            lines.append({"type": "message", "message": entry})
        (target / f"{count:06}.jsonl").write_bytes(b"".join(write_json(line) + b"\n" for line in lines))
        assistant_turns += sum(message.role == "assistant" for message in messages)
        masked += len(mistakes)
    if not count:
        raise InputError(f"there are no trajectories for the split {split}")
    advice = "The header of each session has the indices of its `mistakes` among the messages."
    path = Path("traces") / split / "*.jsonl"
    return ExportReport(path, "traces", Masking.FLAG, count, 0, count, assistant_turns - masked, masked, advice)


def write_dataset(
    source: str | Path,
    folder: Path,
    repo: str,
    *,
    licence: str,
    format: str = "openai",  # noqa: A002 - the word that users type
    masking: str | None = None,
    held_out: float | None = None,
    title: str = "",
    language: Iterable[str] = (),
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, ExportReport]:
    """Write a dataset into a new folder: `data/train-*.parquet`, with `held_out` also `data/test-*.parquet`, the JSON
    Schema of a row (schema.json), and README.md. Return the report of each split.

    Args:
        source: Run folder, or JSONL file of trajectories.
        folder: Folder to write; it must be empty or missing.
        repo: Name on the Hub, OWNER/NAME, for the card.
        licence: Identifier as on the Hub, such as `apache-2.0`.
        format: Name of an export format with one JSON object per record; or `traces`, see `write_traces`.
        masking: As for `write_export`.
        held_out: Share of the scripts for the split `test`; None for no such split.
        title: Title of the card; the repository's name by default.
        language: Codes of the languages of the data.
        facts: Further fields of `CardFacts`.

    Raises:
        InputError: A value is invalid, the folder is not empty, or a split would be empty.
    """
    check_repo(repo)
    if format == "traces" and masking is not None:
        raise InputError(f"traces show whole trajectories; leave out the masking {masking!r}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{str(folder)!r} exists and is not an empty folder; give another one")
    counts = CardCounts()
    reports: dict[str, ExportReport] = {}
    records: dict[str, Path] = {}
    with TemporaryDirectory() as scratch:
        for split, side in (("train", "train"), *((("test", "held_out"),) if held_out is not None else ())):
            stored = stored_trajectories(source)
            chosen = stored if held_out is None else one_side(stored, cast("Side", side), held_out=held_out)
            chosen = counts.counting(chosen) if split == "train" else chosen
            if format == "traces":
                reports[split] = write_traces(chosen, folder, split)
                continue
            records[split] = Path(scratch) / f"{split}.jsonl"
            report = write_export(chosen, records[split], format, masking=masking)
            reports[split] = replace(report, path=Path("data") / f"{split}-*.parquet")
        if records:
            write_json_file(folder / "schema.json", row_schema(write_splits(records, folder)))
    card = CardFacts(
        repo,
        title or repo.partition("/")[2],
        licence,
        counts,
        language=tuple(language),
        held_out=reports.get("test"),
        tags=("agent-traces",) if format == "traces" else (),
        **facts,
    )
    write_text_file(folder / "README.md", render_card(card, reports["train"]))
    return reports


def files_of(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the files of a dataset's folder by name, with their sizes in bytes."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder)), path.stat().st_size


def check_key() -> None:
    """Raise ConfigurationError if there is no key for the Hub, in the environment or from `hf auth login`."""
    if require("huggingface_hub", "publish").get_token() is None:
        raise ConfigurationError("there is no key for the Hugging Face Hub; run `hf auth login`, or set HF_TOKEN")


def upload(folder: Path, repo: str, *, public: bool = False) -> str:
    """Upload a folder to a dataset on the Hub and return the dataset's URL.

    Files of an earlier publication (`_PUBLISHED`) that the folder lacks are deleted. huggingface_hub may split large
    uploads into several commits.

    Raises:
        InputError: The dataset is public, and `public` is False.
        ConfigurationError: huggingface_hub is missing, or there is no key.
        StorageError: The Hub cannot be reached, or refuses the upload.
    """
    hub = require("huggingface_hub", "publish")
    api: Any = hub.HfApi(library_name="refinesynth")
    check_key()
    try:
        api.create_repo(repo, repo_type="dataset", private=not public, exist_ok=True)
        is_exposed = not public and not api.repo_info(repo, repo_type="dataset").private
        if not is_exposed:
            api.upload_folder(
                repo_id=repo,
                folder_path=str(folder),
                repo_type="dataset",
                commit_message="Data made with refinesynth",
                delete_patterns=list(_PUBLISHED),
            )
    except Exception as error:  # the Hub's errors, and those of whichever HTTP client its library uses
        raise StorageError(f"the Hugging Face Hub did not take {repo!r}: {error}") from error
    if is_exposed:
        raise InputError(f"the dataset {repo!r} is public; give --public to publish there, or another name")
    return f"{api.endpoint}/datasets/{repo}"


_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")

_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


def size_category(records: int) -> str:
    """Return the category of a number of records on the Hugging Face Hub."""
    return next((name for limit, name in _SIZES if records < limit), "n>10M")


def check_licence(licence: str) -> str:
    """Return a licence identifier of the Hugging Face Hub in lower case; raises InputError for other text."""
    identifier = licence.strip().casefold()
    if not _LICENCE.fullmatch(identifier):
        raise InputError(
            f"{licence!r} is no licence identifier; write one as the Hugging Face Hub does: apache-2.0, mit, cc-by-4.0, "
            "cc-by-nc-sa-4.0, other"
        )
    return identifier


def check_languages(codes: Iterable[str]) -> tuple[str, ...]:
    """Return language codes of the Hugging Face Hub; raises InputError for other text."""
    codes = tuple(codes)
    if malformed := next((code for code in codes if not _LANGUAGE.fullmatch(code)), None):
        raise InputError(f"{malformed!r} is no language code; write one as the Hugging Face Hub does: en, de, zh")
    return codes


@dataclass
class CardCounts:
    """Counts over trajectories, in constant memory."""

    figures: TrajectoryStats = field(default_factory=TrajectoryStats)
    player_turns: int = 0
    generators: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """Number of trajectories by role and model."""
    plays: Counter[str] = field(default_factory=Counter[str])
    rules: Counter[str] = field(default_factory=Counter[str])
    versions: Counter[str] = field(default_factory=Counter[str])
    spent: Cost = field(default_factory=Cost)

    @classmethod
    def of(cls, trajectories: Iterable[Trajectory]) -> "CardCounts":
        tally = cls()
        for trajectory in trajectories:
            tally.add(trajectory)
        return tally

    def add(self, trajectory: Trajectory) -> None:
        self.figures.add(EpisodeStats.of_records([trajectory]))
        self.player_turns += sum(isinstance(turn, PlayerTurn) for turn in trajectory.turns)
        origin = trajectory.provenance
        self.generators.update(origin.models.items())
        self.plays[origin.play] += 1
        self.rules[origin.rules] += 1
        self.versions[origin.package_version] += 1
        self.spent += Cost(usage=origin.usage, cost_usd=origin.cost_usd)

    def counting(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """Yield the trajectories, each counted."""
        for trajectory in trajectories:
            self.add(trajectory)
            yield trajectory

    @property
    def usage(self) -> Usage:
        """Tokens and requests of the trajectories' episodes, refused attempts included."""
        return self.spent.usage

    @property
    def cost_usd(self) -> float | None:
        """US dollars; None if the cost of a trajectory is unknown."""
        return self.spent.cost_usd

    @property
    def uneven(self) -> bool:
        """True if mistakes cluster in some part of the plays."""
        return is_lopsided(self.figures.tenths)


@dataclass(frozen=True)
class CardFacts:
    repo: str
    """Name of the dataset on the Hub."""
    title: str
    licence: str
    """Identifier of the Hugging Face Hub, without a default."""
    tally: CardCounts
    funnel: Mapping[str, int] = field(default_factory=dict[str, int])
    """Counts in order, keyed by sentence parts such as `personas started`."""
    language: tuple[str, ...] = ()
    """Language codes such as `en`."""
    held_out: ExportReport | None = None
    """Report of the split with the held-out scripts."""
    tags: tuple[str, ...] = ()
    estimated: bool = False
    """True if token counts of the run are estimated."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "licence", check_licence(self.licence))
        object.__setattr__(self, "language", check_languages(self.language))


_TEMPLATE = Path(__file__).with_name("card.md.jinja")


def yaml_text(text: str) -> str:
    """Return a double-quoted YAML scalar."""
    escaped = (char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08X}" for char in scrub(text))
    return f'"{"".join(escaped)}"'


def render_card(facts: CardFacts, report: ExportReport) -> str:
    filters = {"yaml": yaml_text, "text": plain_text, "code": code, "size_category": size_category}
    return render_markdown(_TEMPLATE, filters, facts=facts, tally=facts.tally, report=report, version=__version__)
