"""Jericho: interactive fiction, AgentBoard's 20 games, worded and scored as by AgentBoard. Users bring the games."""

import re
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from refinesynth.evaluate.environments.environment import (
    AGENTBOARD,
    CHECK,
    Action,
    BadInstance,
    Benchmark,
    Instance,
    Source,
    Start,
    Step,
    labels,
)

_FILES = f"jericho/test.jsonl of {AGENTBOARD} and the games (NAME.z5, NAME.z8, ...) below jericho/"
_MAX_BYTES = 4_000_000
"""Largest game; the Z-machine's limit is 512 kB."""
_MAX_WORDS, _MAX_LETTERS = 20, 150
"""Most words and letters of an action; the interpreter's buffer holds 198 bytes."""

_INTERPRETER_COMMAND = re.compile(
    r"[#$][a-z].*|(?:quit|q|restart|restore|save|script|unscript|transcript|record(?:ing)?|replay|verify|undo)"
    r"(?: (?:the|this|my|game|story|position|file|now|please|on|off|again))*",
    re.IGNORECASE,
)
"""Commands that would end or rewind the game, or write files; `save the bird` does not match."""

_INTRODUCTION = (
    "You are in a work of interactive fiction, which you perceive and act on through text. Actions are short commands: a "
    "verb, mostly with a thing that is here. A direction moves you."
)
_ACTIONS = (
    Action("{direction}", "north, south, east, west, northeast, ..., up, down, in or out"),
    Action("look", "what is here"),
    Action("inventory", "what you carry"),
    Action("examine {thing}"),
    Action("take {thing}"),
    Action("drop {thing}"),
    Action("open {thing}"),
    Action("close {thing}"),
    Action("put {thing} in {place}"),
    Action("{command}", "any other command of a few words that such games understand"),
    Action(CHECK, "list what can be done here"),
)


class Jericho:
    """Environment of interactive fiction.

    Progress is AgentBoard's: the share of its subgoals, which are sentences found in observations without punctuation, at
    most one per turn. An action ends at its first comma, semicolon, full stop, line feed or `then`. Commands to the
    interpreter (such as save, restart and quit) are refused.
    """

    def __init__(self) -> None:
        self._package: Any = import_module("jericho")
        self._utilities: Any = import_module("jericho.util")
        # jericho's own function needs a language model that no package index has; the game's dictionary has its nouns.
        self._utilities.extract_objs = self._nouns_in
        self._game: Any = None
        self._nouns: frozenset[str] = frozenset()
        self._max_word_length = 0
        self._remaining: list[str] = []
        self._subgoal_count = 0

    def reset(self, instance: Instance, /) -> Start:
        data = instance.data
        path = Path(data["game"])
        if not _is_story(path):
            raise BadInstance(f"{str(path)!r} is no whole story file of the Z-machine; expected {_FILES}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # jericho warns about games with unknown scores.
                self._game = self._package.FrotzEnv(str(path))
                if "seed" not in self._game.bindings:
                    self._game.seed(1)  # Without a seed, random events depend on the clock.
                opening, _ = self._game.reset()
            dictionary = [str(entry.word) for entry in self._game.get_dictionary()]
        except Exception as error:  # The emulator may raise anything for a file.
            raise BadInstance(f"the game {str(path)!r} cannot be played: {type(error).__name__}: {error}") from error
        self._max_word_length = max(map(len, dictionary), default=0)
        self._nouns = frozenset(word for word in dictionary if len(word) > 1)
        self._remaining = [_bare(subgoal) for subgoal in data["subgoals"]]
        self._subgoal_count = len(self._remaining)
        return Start(data["observation"] or _clean(str(opening)), data["goal"], _ACTIONS, _INTRODUCTION)

    def _nouns_in(self, text: str) -> list[tuple[str, str]]:
        words = dict.fromkeys(re.findall(r"[a-z][a-z'-]+", text.lower()))
        return [(word, "NOUN") for word in words if word[: self._max_word_length] in self._nouns]

    def step(self, action: str, /) -> Step:
        # The interpreter is written in C and gets printable ASCII only.
        words = re.sub(r"[^ -~]", " ", re.split(r"[,.;\n]|\bthen\b", action.strip(), maxsplit=1)[0]).split()
        command = " ".join(words[:_MAX_WORDS])[:_MAX_LETTERS]
        if "check" in command.lower() and "action" in command.lower():
            listed = ", ".join((*self.valid_actions(), CHECK))
            return self._result(f"You can take the following actions: {listed}", over=False)
        if not command or _INTERPRETER_COMMAND.fullmatch(command.rstrip(" !?")):
            return self._result("That is no command of this story.", over=False, refused=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            observation, _, over, _ = self._game.step(command)
        text = _clean(str(observation))
        bare = _bare(text)
        if met := next((subgoal for subgoal in self._remaining if subgoal in bare), None):
            self._remaining.remove(met)
        refused = text.startswith("You can't ") or not self._utilities.recognized(text)
        return self._result(text, over=bool(over), refused=refused)

    def _result(self, observation: str, *, over: bool, refused: bool = False) -> Step:
        won = not self._remaining
        progress = 1 - len(self._remaining) / self._subgoal_count
        return Step(observation, progress, done=won or over, success=won, refused=refused)

    def valid_actions(self) -> Sequence[str]:
        """Commands that change the state now, sorted; a few general commands if jericho finds none."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            commands = self._game.get_valid_actions(use_ctypes=True, use_parallel=False)
        return sorted(map(str, commands)) or ["look", "inventory", "north", "south", "east", "west"]

    def close(self) -> None:
        self._game = None


def _is_story(path: Path) -> bool:
    """True if a file has a story's header and length (Z-Machine Standards, section 11); other files crash the interpreter."""
    try:
        with path.open("rb") as file:
            header = file.read(64)
        size = path.stat().st_size
    except OSError:
        return False
    unit = {1: 2, 2: 2, 3: 2, 4: 4, 5: 4, 6: 8, 7: 8, 8: 8}.get(header[0] if header else 0)
    return unit is not None and len(header) == 64 and unit * int.from_bytes(header[26:28]) <= size <= _MAX_BYTES  # noqa: PLR2004


def _clean(text: str) -> str:
    return re.sub(r"\[Your score .*?\]", "", " ".join(text.split()))


def _bare(text: str) -> str:
    return re.sub(r"[^a-zA-Z0-9\s]", "", text)


def _instances(source: Source) -> list[Instance]:
    folder = source.folder("jericho", holds=_FILES)
    games = {path.stem: path for path in sorted(folder.rglob("*.z[1-8]"))}
    instances: list[Instance] = []
    for label in labels(folder):
        name = label.text("game_name")
        if name not in games:
            raise BadInstance(f"there is no game {name!r} below {str(folder)!r}; expected {_FILES}")
        data = {
            "game": str(games[name]),
            "goal": label.text("goal"),
            "subgoals": label.texts("subgoals"),
            "observation": label.text("init_obs") if "init_obs" in label else "",
        }
        instances.append(Instance(name, data, label.text("difficulty")))
    return instances


BENCHMARK = Benchmark(
    name="jericho", environment=f"{__name__}:Jericho", instances=_instances, extra="refinesynth[jericho]", memory_mb=256
)
