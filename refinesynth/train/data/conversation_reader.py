"""Reader of conversations from files and datasets, with source weights and the held-out split."""

import hashlib
import math
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from refinesynth.errors import InputError
from refinesynth.files.compressed import bounded_lines, open_compressed
from refinesynth.text.formatting import DistinctNames
from refinesynth.text.json_reader import load_json
from refinesynth.train.config import TrainConfig
from refinesynth.train.data.record_forms import ChatForm, read_record
from refinesynth.train.labelled_conversation import Conversation, task_digest, without_mistakes

TRAJECTORIES = "trajectories.jsonl"

_Row = tuple[object, str]
"""Record and its place."""
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Longest record of a JSON Lines file, in bytes."""


def read_file_records(path: Path) -> Generator[_Row]:
    """Yield every record of a file with its place, `file:line`; blank lines are skipped. Raises `InputError`."""
    with open_compressed(path) as file:
        # A few compressed kilobytes can expand to one line of gigabytes: the line length is bounded.
        for number, line in bounded_lines(file, MAX_LINE_BYTES):
            location = f"{path}:{number}"
            if len(line) > MAX_LINE_BYTES:
                raise InputError(
                    f"{location}: this line is longer than {MAX_LINE_BYTES:,} bytes; expected one record a line. Split or remove it"
                )
            if not line.strip():
                continue
            try:
                yield load_json(line), location
            except ValueError as error:
                raise InputError(
                    f"{location}: this line is not JSON ({error}); expected one object a line (JSONL), as `jq -c '.[]'` makes of a list. "
                    "Fix or remove the line; a run that was killed in it mends it when it is continued"
                ) from error


def is_dataset(source: object) -> bool:
    """Return True for an object of the `datasets` package, without importing the package."""
    return type(source).__module__.partition(".")[0] == "datasets"


class Split(NamedTuple):
    """Training and held-out conversations, which share no persona, script, environment or task."""

    train: list[Conversation]
    held_out: list[Conversation]


def split(conversations: Iterable[Conversation], held_out: float, seed: int = 0) -> Split:
    """Hold out some groups of conversations.

    `held_out` below 1 is a share of the groups, otherwise a number; above 0, at least one group is held out. Shared
    persona (`group`), script, environment or task text links conversations to a group. The choice depends only on the
    content of the groups and `seed`. Both sides keep the order. Raises `InputError` if no group would be left to train.
    """
    all_conversations = list(conversations)
    if not held_out or not all_conversations:
        return Split(all_conversations, [])
    names = _components(all_conversations)
    groups = sorted(set(names), key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    count = max(1, round(held_out * len(groups) if held_out < 1 else held_out))
    if count >= len(groups):
        raise InputError(
            f"held_out={held_out:g} asks for {count} of {len(groups)} groups, which leaves none to train on: the {len(all_conversations)} "
            "conversations are linked by persona, environment or task. Hold out less (0: none), or give more varied data"
        )
    chosen = set(groups[:count])
    sides: tuple[list[Conversation], list[Conversation]] = ([], [])
    for conversation, name in zip(all_conversations, names, strict=True):
        sides[name in chosen].append(conversation)
    return Split(*sides)


def _components(conversations: Sequence[Conversation]) -> list[str]:
    """The name of each conversation's component: its smallest key, which does not depend on the order."""
    parents: dict[str, str] = {}

    def find_root(key: str) -> str:
        while parents[key] != key:
            parents[key] = parents[parents[key]]
            key = parents[key]
        return key

    first_keys: list[str] = []
    for conversation in conversations:
        keys = [f"group:{conversation.group}", f"task:{task_digest(conversation.turns)}"]
        keys += [f"script:{conversation.script}"] if conversation.script else []
        keys += [f"environment:{conversation.environment}"] if conversation.environment else []
        for key in keys:
            parents.setdefault(key, key)
        roots = sorted({find_root(key) for key in keys})
        for root in roots[1:]:
            parents[root] = roots[0]
        first_keys.append(keys[0])
    return [find_root(key) for key in first_keys]


DataSource = str | Path | Iterable[object]
_MAX_WEIGHT: Final = 1000


@dataclass(slots=True)
class SourceSizes:
    """Counts of one source, complete after reading and rendering."""

    name: str
    """Last part of the source's path, numbered if an earlier source has it."""
    weight: float
    """Share of the source's conversations to take (below 1), or number of passes over them."""
    conversations: int = 0
    """Conversations in the source."""
    unmarked: int = 0
    """Conversations that are not `marked`; all of their assistant turns are trained."""
    taken: int = 0
    """Conversations taken according to the weight; repetitions count."""
    held_out: int = 0
    """Taken conversations that are held out."""
    tokens: int = 0
    """Tokens in the source's training data."""
    trained_tokens: int = 0
    """Tokens that give loss."""


def split_weight(source: Any) -> tuple[DataSource, float]:
    """Split `SOURCE:WEIGHT` or a pair `(source, weight)` into source and weight; the default weight is 1.

    A path that exists under the whole name has no weight. Raises `InputError` for a weight outside (0, 1000].
    """
    if isinstance(source, tuple):
        pair = cast("tuple[Any, ...]", source)
        if len(pair) != 2 or not isinstance(pair[1], int | float):  # noqa: PLR2004 - a source and its weight
            return pair, 1.0
        name, weight = pair[0], float(pair[1])
    else:
        name, _, text = source.rpartition(":") if isinstance(source, str) else ("", "", "")
        if not name or "/" in text or "\\" in text or Path(source).exists():
            return source, 1.0
        try:
            weight = float(text)
        except ValueError:
            raise InputError(
                f"there is no file or folder {source!r}, and {text!r} is no weight for {name!r}; write a number above 0, as in "
                "runs/b:0.3 for 30 % of its conversations"
            ) from None
    if not (math.isfinite(weight) and 0 < weight <= _MAX_WEIGHT):
        raise InputError(
            f"{repr(name) if isinstance(name, str | Path) else 'a source'} has the weight {weight:g}; expected a share of its "
            f"conversations (0.3: 30 %) or a number of passes over them (2), above 0 and up to {_MAX_WEIGHT:,}. Leave a source out instead of giving it 0"
        )
    return name, weight


def source_names(sources: Sequence[Any]) -> list[str]:
    """A distinct name for each source: the last part of its path, numbered if an earlier source has it."""
    distinct = DistinctNames()
    return [
        distinct(Path(source).name or str(source)) if isinstance(source, str | Path) else f"source {number}"
        for number, source in enumerate(sources, start=1)
    ]


def take_share(conversations: Sequence[Conversation], weight: float, seed: int) -> list[Conversation]:
    """Take the share `weight` of a source, pass by pass and in order; at least one conversation if there are any."""
    if not conversations:
        return []
    passes, rest = divmod(max(1, round(weight * len(conversations))), len(conversations))
    copies = Counter[bytes]()
    keys: list[bytes] = []  # sort keys of the draw, from seed and text; equal texts are numbered
    for conversation in conversations:
        # Empty trailing fields are omitted: the draw stays the same as before these fields existed.
        content = [tuple(turn)[: 7 if turn.mistakes else 6 if turn.thinking else 5] for turn in conversation.turns]
        text = hashlib.sha256(repr(content).encode()).digest()
        keys.append(hashlib.sha256(b"%d:%d:%b" % (seed, copies[text], text)).digest())
        copies[text] += 1
    drawn = sorted(sorted(range(len(keys)), key=keys.__getitem__)[:rest])
    return [*conversations] * passes + [conversations[index] for index in drawn]


class Reader(Iterable[Conversation]):
    """Conversations, read on demand and once."""

    def __init__(self, sources: Sequence[Any], *, without_refinement: bool, seed: int, form: ChatForm) -> None:
        pairs = [split_weight(source) for source in sources]
        self._sources = [source for source, _ in pairs]
        self._seed = seed
        self._form: ChatForm = form
        self.sizes = [
            SourceSizes(name, weight) for name, (_, weight) in zip(source_names(self._sources), pairs, strict=True)
        ]
        """Counts of each source. Reading fills them, except tokens and held-out conversations."""
        self.emptied = 0
        """Conversations dropped because no correct turn was left without mistakes."""
        self._distinct_names = DistinctNames()
        self._without_refinement = without_refinement
        self._streams = [self._open_rows(source, number) for number, source in enumerate(self._sources, start=1)]

    def remarks(self) -> Iterator[str]:
        """Notes on conversations that are left out, complete after reading."""
        if self.emptied:
            yield f"{self.emptied} conversations are left out: without mistakes and the answers to them nothing is left of them"

    def __iter__(self) -> Generator[Conversation]:
        for rows, sizes in zip(self._streams, self.sizes, strict=True):
            with closing(rows):
                items = self._read_source(rows, sizes)
                for conversation in items if sizes.weight == 1 else take_share(list(items), sizes.weight, self._seed):
                    sizes.taken += 1
                    kept = without_mistakes(conversation) if self._without_refinement else conversation
                    if kept is None:
                        self.emptied += 1
                    else:
                        yield kept

    def _read_source(self, rows: Iterable[_Row], sizes: SourceSizes) -> Iterator[Conversation]:
        for record, location in rows:
            is_read = isinstance(record, Conversation)
            conversation = record if is_read else read_record(record, location, self._form)
            sizes.conversations += 1
            sizes.unmarked += not conversation.marked
            yield replace(conversation, id=self._distinct_names(conversation.id), source=sizes.name)

    def _open_rows(self, source: DataSource, number: int) -> Generator[_Row]:
        if isinstance(source, str | Path):
            return read_file_records(source_file(source))
        if isinstance(source, Mapping) or not isinstance(cast("Any", source), Iterable):
            raise InputError(
                f"source {number} is {type(cast('object', source)).__name__}; expected a path, one split of a dataset or trajectories"
            )
        return ((item, f"source {number}: item {index}") for index, item in enumerate(source, start=1))


def source_file(source: str | Path) -> Path:
    """The file with a source's records; no content is read. Raises `InputError` if it does not exist."""
    path = Path(source, TRAJECTORIES) if Path(source).is_dir() else Path(source)
    if not path.exists():
        raise InputError(
            f"there is no file or folder {str(path)!r}; give a run folder, or a file of JSON lines, as `to_json` of a dataset "
            "(`datasets.load_dataset`) writes it"
        )
    return path


def read_conversations(
    sources: Sequence[Any] | str | Path, *, without_refinement: bool = False, seed: int = 0, form: ChatForm = "react"
) -> Reader:
    """Iterate over the conversations of all sources, in order, read on demand (a source with a weight is read whole).

    A source is a run folder, a file (JSON Lines, also `.gz`), a `datasets` object, or an
    iterable of trajectories, records or conversations. Records may have any form of `record_forms.py`. A weight (`runs/b:0.3`, or
    a pair of source and number) takes that share of a source's conversations, drawn by `seed`. Equal ids are numbered.

    `without_refinement` removes mistakes and the observations that follow them. `form` is the message form of
    trajectories; exported records keep their own.

    Raises:
        InputError: A weight is outside (0, 1000], or a source does not exist. While reading: a record is invalid (with
            file and line).
    """
    inputs = [sources] if isinstance(sources, str | Path) else sources
    return Reader(inputs, without_refinement=without_refinement, seed=seed, form=form)


def read_configured(config: TrainConfig, sources: Sequence[Any] | None = None) -> Reader:
    """Iterate over the data of a training; `sources` replaces `config.data`."""
    inputs = config.data if sources is None else sources
    return read_conversations(inputs, without_refinement=config.without_refinement, seed=config.seed, form=config.form)
