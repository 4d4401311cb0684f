"""Environments: plain values, a protocol of four verbs, and the description of a benchmark.

Imports only the standard library: an environment may run in an interpreter that has only its own package.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol, cast

CHECK = "check valid actions"
"""Action that lists the valid actions in any state; it costs a step (AgentBoard)."""


class BadInstance(Exception):
    """An instance or a file that an environment cannot use; the message says what to do."""


@dataclass(frozen=True)
class Action:
    """One available action, as the player reads it."""

    name: str
    """Template with placeholders in braces: `take {item} from {place}`."""
    description: str = ""
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Placeholder to its allowed values; other placeholders take any value."""
    types: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Placeholder to the type of its values, in the JSON form of `ActionSpec.types`; text by default."""
    pattern: str = ""
    """Regular expression (RE2) of the whole action; by default the template with any text in the placeholders."""
    function: Mapping[str, Any] | None = None
    """Definition of the function, in the form of `ActionSpec.function`; by default it is made from the other fields."""


@dataclass(frozen=True)
class Instance:
    id: str
    """Unique in its benchmark, the same in every run: results are paired by it."""
    data: Mapping[str, Any]
    """JSON: all that `reset` needs; paths are absolute."""
    level: str = ""
    """Kind or difficulty, by which results can be grouped."""


@dataclass(frozen=True)
class Exchange:
    """A turn of the given history, with its observation."""

    thought: str
    action: str
    observation: str
    refused: bool


@dataclass(frozen=True)
class Start:
    """The start of an episode, as the player reads it."""

    observation: str
    goal: str
    actions: tuple[Action, ...]
    introduction: str = ""
    """Description of the place, without goal and actions."""
    history: tuple[Exchange, ...] = ()
    """Turns that the chat shows as the player's own."""


@dataclass(frozen=True)
class Step:
    observation: str
    progress: float
    """0 to 1, usually the highest so far."""
    done: bool
    """True if the episode is over, won or not."""
    success: bool
    refused: bool = False
    """True if the environment rejected the action as unknown, impossible or without effect."""
    measures: Mapping[str, float] = field(default_factory=dict[str, float])
    """Further scores of the episode so far (exact match and F1 of an answer)."""
    slipped: bool = False
    """True if a correct action failed transiently; it may be repeated."""


def digest_of(data: Mapping[str, Any]) -> str:
    """Digest of an instance's data, independent of the order of its keys."""
    return blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=8).hexdigest()


class TextEnvironment(Protocol):
    """One environment: `reset`, then `step` until done. Synchronous, deterministic per instance, single-threaded.

    An environment may also have `solution() -> Sequence[str] | None`: actions from the state after `reset` to success, or
    None if unknown. The model `oracle` calls it before the first step; it may take seconds.
    """

    def reset(self, instance: Instance, /) -> Start:
        """Begin an episode; raises BadInstance if the instance or a file that it needs cannot be used."""
        ...

    def step(self, action: str, /) -> Step:
        """Take one action. Any text is allowed; the observation says that an unreadable action is refused."""
        ...

    def valid_actions(self) -> Sequence[str]:
        """Actions that the environment accepts now, in a fixed order."""
        ...

    def close(self) -> None:
        """Free all resources."""
        ...


@dataclass(frozen=True)
class Source:
    data: Path | None = None
    """Folder of benchmark data, with one folder per benchmark."""
    argument: str = ""
    """Text after the colon of the task: `worlds:runs/held-out`."""

    def folder(self, name: str, *, holds: str) -> Path:
        """The folder of that name below `data`; raises BadInstance, in which `holds` describes its contents."""
        if self.data is None:
            raise BadInstance(f"{name} needs data: {holds}; name the folder that holds {name}/ by --data")
        folder = self.data / name
        if not folder.is_dir():
            raise BadInstance(f"there is no folder {str(folder)!r}; expected {holds}")
        return folder.resolve()


@dataclass(frozen=True)
class Benchmark:
    """A set of instances and the environment that they are played in."""

    name: str
    environment: str
    """`module:Class`, imported in the environment's own process and called without arguments."""
    instances: Callable[[Source], Sequence[Instance]]
    """Reads the instances in a fixed order, in the main process without the environment's package; raises BadInstance."""
    extra: str = ""
    """Requirement to install: `refinesynth[babyai]`; empty for none."""
    steps: int = 30
    """Most actions of an episode."""
    step_seconds: float = 30
    """Time limit of one action."""
    reset_seconds: float = 120
    """Time limit of a start or a solution, including the first import."""
    episodes: int = 0
    """Episodes after which its process is replaced, for environments that leak; 0 means never."""
    memory_mb: int = 1_024
    """Resident memory above which its process is replaced between two episodes."""
    process_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables of its process."""
    in_process: bool = False
    """True to run it in the evaluation's own process; only for environments that neither crash nor hang."""


AGENTBOARD = "AgentBoard's data, huggingface.co/datasets/hkust-nlp/agentboard"


class Label(dict[str, Any]):
    """Fields of one row and of its additional_info; a field of another type raises BadInstance."""

    location: str

    def text(self, name: str) -> str:
        return self._checked(name, isinstance(self.get(name), str), "a text")

    def number(self, name: str) -> int:
        return self._checked(name, type(self.get(name)) is int, "a whole number")

    def texts(self, name: str) -> list[str]:
        values = cast("list[object]", value) if isinstance(value := self.get(name), list) else []
        return self._checked(name, bool(values) and all(isinstance(text, str) for text in values), "a list of texts")

    def patterns(self, name: str) -> list[str]:
        """A field with at least one regular expression."""
        for text in self.texts(name):
            try:
                re.compile(text)
            except re.error as error:
                raise BadInstance(f"{self.location} has {name} {text!r}, which is no pattern: {error}") from error
        return self.texts(name)

    def _checked(self, name: str, is_valid: bool, expected: str) -> Any:
        if not is_valid:
            raise BadInstance(f"{self.location} has {name} {self.get(name)!r}; expected {expected}, as in {AGENTBOARD}")
        return self[name]


def labels(folder: Path) -> Iterator[Label]:
    """Rows of the test.jsonl in a folder, in order; raises BadInstance if it cannot be read."""
    path = folder / "test.jsonl"
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BadInstance(f"{str(path)!r} cannot be read: {error}; expected the labels of {AGENTBOARD}") from error
    for number, line in enumerate(lines, start=1):
        location = f"line {number} of {str(path)!r}"
        try:
            row: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInstance(f"{location} is no JSON: {error}") from error
        if not isinstance(row, dict):
            raise BadInstance(f"{location} is no JSON object; expected a label of {AGENTBOARD}")
        fields = cast("dict[str, Any]", row)
        info: object = fields.get("additional_info")
        label = Label({**cast("dict[str, Any]", info if isinstance(info, dict) else {}), **fields})
        label.location = location
        yield label
