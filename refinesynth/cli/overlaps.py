"""What a finished run shares with evaluation sets, read again from its files."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refinesynth.text.figures import counted
from refinesynth.text.printable import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from refinesynth.diversity import Overlap
    from refinesynth.trajectory import Trajectory

_SHOWN = 10
"""Trajectories that are shown with what they share."""

_SHOWN_OVERLAPS = 3
"""Overlaps of each that are shown."""

_KEPT = 1_000
"""Overlaps that are given to programs; the others are counted."""

_WIDEST = 120


@dataclass
class Shared:
    """What trajectories share with evaluation sets. Its size does not depend on how many there are."""

    files: tuple[Path, ...]
    """What was read for it."""
    sequences: int
    """Different sequences of words that were looked for."""
    trajectories: int = 0
    contaminated: int = 0
    """Trajectories that share something."""
    words: int = 0
    """That they share."""
    where: Counter[str] = field(default_factory=Counter[str])
    """Kind of text (goal, observation, ...) to the overlaps in it."""
    examples: "list[tuple[str, Overlap]]" = field(default_factory=list["tuple[str, Overlap]"])
    """Ids and the first overlaps."""

    def add(self, identity: str, overlaps: "Sequence[Overlap]") -> None:
        """Count one more trajectory."""
        self.trajectories += 1
        self.contaminated += bool(overlaps)
        self.words += sum(found.words for found in overlaps)
        self.where.update(_kind(found.where) for found in overlaps)
        self.examples += [(identity, found) for found in overlaps[: max(0, _KEPT - len(self.examples))]]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "files": [str(path) for path in self.files],
            "sequences": self.sequences,
            "trajectories": self.trajectories,
            "contaminated": self.contaminated,
            "words": self.words,
            "where": dict(self.where),
            "overlaps": [{"id": identity, **asdict(found)} for identity, found in self.examples],
        }


def look(trajectories: "Iterable[Trajectory]", files: Sequence[Path]) -> Shared:
    """Compare trajectories with evaluation sets.

    Raises:
        InputError: A file cannot be read.
    """
    from refinesynth.diversity import Contamination

    contamination = Contamination(files)
    shared = Shared(files=contamination.files, sequences=len(contamination))
    for trajectory in trajectories:
        shared.add(trajectory.id, contamination.overlaps(trajectory))
    return shared


def table(shared: Shared) -> "RenderableType":
    """The counts, and examples of what is shared."""
    from refinesynth.cli.terminal import labelled, styled

    grid = labelled(width=10)
    of = f"{shared.contaminated:,} of {counted(shared.trajectories, 'trajectory', 'trajectories')}"
    among = f"{counted(shared.sequences, 'sequence')} of words in {counted(len(shared.files), 'file')}"
    grid.add_row("shared", f"{of} share words with evaluation sets ({among} were looked for)")
    if shared.where:
        where = sorted(shared.where.items(), key=lambda item: (-item[1], item[0]))
        grid.add_row(
            "", f"{counted(shared.words, 'word')}, in: " + ", ".join(f"{name} {count:,}" for name, count in where)
        )
    by_id: dict[str, list[Overlap]] = {}
    for identity, found in shared.examples:
        by_id.setdefault(identity, []).append(found)
    for identity, overlaps in list(by_id.items())[:_SHOWN]:
        for found in overlaps[:_SHOWN_OVERLAPS]:
            line = f"{identity}  {found.where}: {found.text!r} as in {found.source}"
            grid.add_row("", styled(one_line(line, most=_WIDEST * 2), "dim"))
    if shared.contaminated > _SHOWN:
        grid.add_row(
            "", styled(f"and {shared.contaminated - _SHOWN:,} more trajectories; --json shows more of them", "dim")
        )
    return grid


def _kind(where: str) -> str:
    """What sort of text it is: without the number of a turn, and without an action's name, which is untrusted."""
    if where.startswith("turn "):
        return where.rsplit(" ", maxsplit=1)[-1]
    return where.split(" ", maxsplit=1)[0] if where.startswith(("action ", "completion ")) else where
