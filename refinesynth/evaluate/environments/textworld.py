"""Games of TextWorld's, made by `tw-make`: fresh worlds without anybody's licence. `textworld:FOLDER` plays a folder of them.

The library knows the state of the game only as long as the player uses its own commands: after `get spoon`, which the
game takes as well, it loses track. And `save` or `script` would write files. So its own commands alone are passed on.
"""

import re
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from refinesynth.evaluate.environments.environment import (
    CHECK,
    Action,
    BadInstance,
    Benchmark,
    Compat,
    Instance,
    Source,
    Start,
    Step,
)

_HOLDS = "a folder of games with their .json files: tw-make custom --output games/first.z8"
_MOST_BYTES = 20_000_000
"""Of a game or its description; usual ones have 0.5 MB."""

_HEADER = 64
"""Bytes in a story's header (the Z-Machine Standards, section 11): its version first, its length in eights at 26."""

_PLACEHOLDERS = {
    "c": "container",
    "d": "door",
    "f": "food",
    "k": "key",
    "o": "object",
    "s": "supporter",
    "t": "thing",
}
_INTRODUCTION = (
    "You are in a text adventure. Its world takes one command at a time, in the words of its list of commands alone."
)
_REFUSED = "Nothing happens: this is no command of the game, or nothing here and now that it can be said of."


class TextWorldGame:
    """One game after another; see `TextEnvironment`.

    Progress is the share of the shortest way to the end that is behind the player, the farthest so far; the game's own
    points, as a share of the most, are the measure `score`.
    """

    def __init__(self, *, compat: Compat) -> None:
        """`compat` makes no difference: these games are no part of AgentBoard."""
        del compat
        self._textworld: Any = import_module("textworld")
        self._game: Any = None
        self._state: Any = None
        self._length = 0
        self._progress = 0.0

    def reset(self, instance: Instance, /) -> Start:
        """See `TextEnvironment.reset`."""
        self.close()
        path = Path(instance.data["game"])
        _check(path)
        wanted = self._textworld.EnvInfos(
            **dict.fromkeys(("won", "lost", "score", "max_score", "objective", "command_templates"), True),
            admissible_commands=True,
            policy_commands=True,
            extras=["walkthrough"],
        )
        try:
            # Jericho warns of every game that is not in its table, as none of these is.
            with warnings.catch_warnings(action="ignore"):
                self._game = self._textworld.start(str(path), wanted)
                self._state = self._game.reset()
            self._length, self._progress = len(self._state.policy_commands) or 1, 0.0
            names = dict.fromkeys(map(_readable, self._state.command_templates))
            goal, text = str(self._state.objective), str(self._state.feedback)
        except Exception as error:  # Whatever the library raises of files that are none of its own.
            raise BadInstance(f"the game {str(path)!r} cannot be played: {type(error).__name__}: {error}") from error
        # Before the first room stand a banner and the goal.
        return Start(
            _plain(text[max(0, text.find("-= ")) :]), goal, (*map(Action, names), Action(CHECK)), _INTRODUCTION
        )

    def step(self, action: str, /) -> Step:
        """See `TextEnvironment.step`."""
        action = action.strip().removesuffix(".")
        if action == CHECK:
            return self._came(f"Choose an action from these valid actions: {', '.join((*self.valid_actions(), CHECK))}")
        if action not in self.valid_actions():
            return self._came(_REFUSED, refused=True)
        self._state, _, _ = self._game.step(action)
        # Of a command that the library thought possible, the game's own trace says whether it was.
        return self._came(_plain(self._state.feedback), refused=" - succeeded]" not in self._state.raw)

    def _came(self, observation: str, *, refused: bool = False) -> Step:
        won, left = bool(self._state.won), len(self._state.policy_commands)
        # No way is left at the end, and where the game cannot be won any more.
        if won or left:
            self._progress = max(self._progress, 1.0 if won else 1 - left / self._length)
        score = self._state.score / self._state.max_score if self._state.max_score else 0.0
        done = won or bool(self._state.lost)
        return Step(observation, self._progress, done, won, refused and not done, {"score": score})

    def valid_actions(self) -> Sequence[str]:
        """The library's own commands that the game takes now, sorted; without `check valid actions`."""
        return list(self._state.admissible_commands)

    def solution(self) -> Sequence[str] | None:
        """The walkthrough that the game was made with; else the way to the end that the library finds."""
        return self._state.get("extra.walkthrough") or self._state.policy_commands or None

    def close(self) -> None:
        """See `TextEnvironment.close`."""
        if self._game is not None:
            self._game.close()
        self._game = None


def _plain(text: str) -> str:
    """What the game says, without its status line and without what it asks at the end."""
    text = re.sub(r"\n>\s+-= .*$", "", text.partition("Would you like to RESTART")[0])
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", text).strip()


def _readable(template: str) -> str:
    return re.sub(r"{(\w+)}", lambda found: f"{{{_PLACEHOLDERS.get(found[1], found[1])}}}", template)


def _check(path: Path) -> None:
    for file in (path, path.with_suffix(".json")):
        if not file.is_file():
            raise BadInstance(f"there is no file {str(file)!r}; expected {_HOLDS}")
        if (size := file.stat().st_size) > _MOST_BYTES:
            raise BadInstance(f"{str(file)!r} has {size:,} bytes; expected {_MOST_BYTES:,} at most")
    with path.open("rb") as story:
        head = story.read(_HEADER)
    # The interpreter ends the process over a story of another version, or one that is cut off.
    if len(head) < _HEADER or head[0] != 8 or int.from_bytes(head[26:28]) * 8 > path.stat().st_size:  # noqa: PLR2004
        raise BadInstance(f"{str(path)!r} is no whole story file of version 8; expected {_HOLDS}")


def _instances(source: Source) -> list[Instance]:
    folder = Path(source.argument).absolute()
    if not source.argument or not folder.is_dir():
        raise BadInstance(
            f"textworld needs {_HOLDS}; there is none in {source.argument!r}: name it as textworld:FOLDER"
        )
    old = [path for path in folder.glob("*.ulx") if not path.with_suffix(".z8").exists()]
    if old:
        raise BadInstance(f"TextWorld plays no .ulx games since 1.7, as {str(min(old))!r}; make them again as .z8")
    games = sorted(folder.glob("*.z8"))
    if not games:
        raise BadInstance(f"there are no .z8 games in {str(folder)!r}; expected {_HOLDS}")
    for path in games:
        _check(path)
    return [Instance(path.stem, {"game": str(path)}) for path in games]


BENCHMARK = Benchmark(
    name="textworld",
    environment=f"{__name__}:TextWorldGame",
    instances=_instances,
    extra="refinesynth[textworld]",
    steps=50,
    memory_mb=400,
)
