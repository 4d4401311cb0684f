"""Environments: plain values, a protocol of four verbs, and how a benchmark of them is described.

Only the standard library is imported here, and by the environments only their own packages besides: an environment runs
in a process of its own, in an interpreter that need not have anything else installed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Compat = Literal["agentboard", "repaired"]
"""Whether AgentBoard's quirks are kept, so that scores compare with published ones, or repaired."""

CHECK = "check valid actions"
"""The action, open in every state, that lists what can be done; it costs a step (AgentBoard)."""


class BadInstance(Exception):
    """An instance, or a file beside it, that an environment cannot use; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class Action:
    """One available action, as the player reads it."""

    name: str
    """Template with placeholders in braces: `take {item} from {place}`."""
    description: str = ""
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Placeholder to the values that it may take; one that is not named takes any."""


@dataclass(frozen=True)
class Instance:
    """One task of a benchmark."""

    id: str
    """Unique in its benchmark, the same in every run: results are paired by it."""
    data: Mapping[str, Any]
    """JSON: all that `reset` needs; paths are absolute."""
    level: str = ""
    """Its kind or difficulty, by which results can be grouped."""


@dataclass(frozen=True)
class Exchange:
    """A turn of a play that was begun by somebody else, and what came of it."""

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
    """What the place is and how it works, beside the goal and the actions."""
    history: tuple[Exchange, ...] = ()
    """Turns that stand in the chat as if the player had taken them; it goes on from there."""


@dataclass(frozen=True)
class Step:
    """Outcome of one action."""

    observation: str
    progress: float
    """0 to 1; the highest so far, where the environment counts so."""
    done: bool
    """Whether the episode is over, won or not."""
    success: bool
    refused: bool = False
    """Whether the environment did not take the action: unknown words, impossible here, or without any effect where the
    environment says so. The player has failed, and may notice and repair it."""
    measures: Mapping[str, float] = field(default_factory=dict[str, float])
    """Further scores of this environment, of the episode so far (exact match and F1 of an answer)."""
    slipped: bool = False
    """Whether a right action failed for a moment: nothing has changed, and the same action may succeed next."""


class TextEnvironment(Protocol):
    """One environment, one episode after another: `reset`, then `step` until done. Synchronous, deterministic per
    instance; not shared between threads.

    An environment may also have `solution() -> Sequence[str] | None`: actions, in the words of `step`, that lead from the
    state after `reset` to success, or None where none is known. The model `oracle` and worked examples need it. It is
    called after `reset` and before the first step, and may take seconds.
    """

    def reset(self, instance: Instance, /) -> Start:
        """Begin an episode.

        Raises:
            BadInstance: The instance or a file that it needs cannot be used.
        """
        ...

    def step(self, action: str, /) -> Step:
        """Take one action. Any text is an action: what the environment cannot read is refused in words."""
        ...

    def valid_actions(self) -> Sequence[str]:
        """Return what the environment would take now, in a fixed order; what the random and the first-valid player choose
        from.
        """
        ...

    def close(self) -> None:
        """Free what it holds; nothing is called after it."""
        ...


@dataclass(frozen=True)
class Source:
    """Source of a benchmark's instances."""

    data: Path | None = None
    """The user's folder of benchmark data, with one folder per benchmark in it."""
    argument: str = ""
    """What stood behind the colon of the task: `worlds:runs/held-out`."""
    compat: Compat = "agentboard"

    def folder(self, name: str, *, holds: str) -> Path:
        """The folder of that name below `data`.

        Raises:
            BadInstance: No data folder was named, or it holds no such folder; `holds` says what belongs there and where it
                comes from.
        """
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
    """`module:Class`, imported in the environment's own process; called with `compat=...`."""
    instances: Callable[[Source], Sequence[Instance]]
    """Reads the instances, in a fixed order; raises BadInstance. Runs in the main process, without the environment's
    package."""
    extra: str = ""
    """What to install for it: `refinesynth[babyai]`; empty if nothing."""
    steps: int = 30
    """Actions in an episode at most."""
    step_seconds: float = 30
    """How long one action may take before the process is ended."""
    reset_seconds: float = 120
    """How long starting an episode, or solving it, may take, the first import included."""
    episodes: int = 0
    """After how many episodes its process is replaced, for one that leaks; 0 means never."""
    memory_mb: int = 1_024
    """Resident memory above which its process is replaced between two episodes."""
    process_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables of its process."""
    in_process: bool = False
    """True if it runs in the evaluation's own process: neither its package nor an action can end that or hang."""
