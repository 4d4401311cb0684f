"""ALFWorld: a household in text, 134 unseen games, played and scored as by AgentBoard.

Current game files have two other wordings than AgentBoard's (`move X to Y`, `You arrive at Y.`), which are rewritten.
"""

import json
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from refinesynth.evaluate.environments.environment import (
    CHECK,
    Action,
    BadInstance,
    Benchmark,
    Instance,
    Source,
    Start,
    Step,
)

_SPLIT = "json_2.1.1/valid_unseen"
_FILES = f"ALFWorld's games ({_SPLIT}/*/trial_*/game.tw-pddl), which `alfworld-download` fetches"
_KINDS = {
    "pick_and_place_simple": "put",
    "look_at_obj_in_light": "examine",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "puttwo",
}
_FOLDER = re.compile(r"(\w+)-(\w+)-(\w+)-(\w+)-(\d+)")

_WORDING = (
    ('"move {o} to {r}"', '"put {o} in/on {r}"'),
    ("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}."),
    ("move (object) to (receptacle):", "put (object) in/on (receptacle):"),
)
"""Wordings of the current grammar of games, each with that of AgentBoard's games."""

_REFUSED = "Nothing happens."
_INTRODUCTION = (
    "You are in a household, which you perceive and act on through text. Every object and every receptacle has a name and "
    "a number. You perceive what is in or on a receptacle when you go to it, and open it if it is closed; you can carry "
    "one object at a time."
)
_ACTIONS = (
    Action("take {obj} from {recep}", "pick an object up; your hands must be empty"),
    Action("put {obj} in/on {recep}", "put down what you carry"),
    Action("open {recep}"),
    Action("close {recep}"),
    Action("toggle {obj}"),
    Action("use {obj}", "switch on or off, such as a lamp"),
    Action("clean {obj} with {recep}"),
    Action("cool {obj} with {recep}"),
    Action("heat {obj} with {recep}"),
    Action("go to {recep}"),
    Action("examine {name}", "look closely at an object or a receptacle"),
    Action("inventory", "what you carry"),
    Action("look", "what you see where you are"),
    Action(CHECK, "list what can be done now"),
)


class AlfWorld:
    """Environment of household games.

    Progress is AgentBoard's: the share of its subgoals met by observations, with success as one more. These quirks of
    AgentBoard are kept: `toggle` is offered although no game accepts it; `look` repeats the observation of the last `go to`
    or `open`; an object taken from a place that the player did not go to does not meet the subgoal of seeing it.
    """

    def __init__(self) -> None:
        textworld: Any = import_module("textworld")
        games: Any = import_module("textworld.envs.pddl")
        alfworld: Any = import_module("alfworld.agents.environment.alfred_tw_env")
        self._translator: Any = import_module("fast_downward")
        # One environment for all games: each environment loads a copy of the planner's library, which stays in memory.
        self._game: Any = alfworld.AlfredDemangler(
            games.PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
        )
        self._state: Any = None
        self._last_view = ""
        self.subgoals: dict[str, bool] = {}
        """Pattern of each subgoal; True if an observation of this episode has met it."""

    def reset(self, instance: Instance, /) -> Start:
        data = instance.data
        game = _read(Path(data["game"]))
        try:
            with _translated_once(self._translator):
                self._game.load(game)
                self._state = self._game.reset()
            _, self._last_view, goal = str(self._state.feedback).strip().split("\n\n")
        except (Exception, SystemExit) as error:  # The parsers and the planner may raise anything.
            raise BadInstance(f"the game {data['game']!r} cannot be played: {type(error).__name__}: {error}") from error
        self.subgoals = dict.fromkeys(subgoals(instance.level, data["object"], data["place"]), False)
        return Start(self._last_view, goal.partition("Your task is to: ")[2].strip(), _ACTIONS, _INTRODUCTION)

    def step(self, action: str, /) -> Step:
        """Take one action. A final full stop is ignored; `put X in Y` and `put X on Y` are read as `put X in/on Y`."""
        action = re.sub(r"^(put .*?) (?:in|on) ", r"\1 in/on ", action.strip().removesuffix(".").strip())
        if action == CHECK:
            observation = f"Choose an action from these valid actions: {', '.join((*self.valid_actions(), CHECK))}"
            return self._result(observation)
        self._state, _, _ = self._game.step(action)
        # AgentBoard's games do not name the place of arrival in a sentence of its own.
        observation = re.sub(r"^You arrive at [^.]*\. ", "", self._state.feedback)
        if action.startswith(("go to ", "open ")) and observation != _REFUSED:
            self._last_view = observation
        return self._result(self._last_view if action == "look" else observation)

    def _result(self, observation: str) -> Step:
        for pattern in self.subgoals:
            self.subgoals[pattern] |= re.search(pattern, observation) is not None
        won = bool(self._state.won)
        progress = 1.0 if won else sum(self.subgoals.values()) / (len(self.subgoals) + 1)
        return Step(observation, progress, won, won, refused=observation == _REFUSED)

    def valid_actions(self) -> Sequence[str]:
        return list(self._state.admissible_commands)

    def close(self) -> None:
        self._game.close()


def subgoals(kind: str, item: str, place: str) -> tuple[str, ...]:
    """AgentBoard's subgoals for a task, as regular expressions over observations."""
    item, place = re.escape(item), re.escape(place)
    last: dict[str, tuple[str, ...]] = {
        "examine": (rf"^(?=.* you see)(?=.*a {place})",),
        "clean": (rf"You clean the {item}",),
        "heat": (rf"You heat the {item} \d+ using the",),
        "cool": (rf"You cool the {item} \d+ using the",),
        "puttwo": (rf"You put the {item} \d+ in/on the {place}",),
    }
    return (rf"^(?=.* you see)(?=.*a {item} \d+)", rf"You pick up the {item} \d+", *last.get(kind, ()))


@contextmanager
def _translated_once(translator: Any) -> Generator[None]:
    """Translate a game once instead of four times, without optimization; translations take most of a start."""
    translate: Callable[[str, str], Any] = translator.pddl2sas
    cached_translate = lru_cache(maxsize=1)(translate)

    def translate_once(domain: str, problem: str, **_: bool) -> Any:
        return cached_translate(domain, problem)

    translator.pddl2sas = translate_once
    try:
        yield
    finally:
        translator.pddl2sas = translate


def _read(path: Path) -> dict[str, Any]:
    try:
        game: dict[str, Any] = json.loads(path.read_bytes())
        for current, original in _WORDING:
            game["grammar"] = game["grammar"].replace(current, original)
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise BadInstance(f"the game {str(path)!r} cannot be read: {error!r}; expected {_FILES}") from error
    return game


def _instances(source: Source) -> list[Instance]:
    """Instances in the order of AgentBoard's paths: the 134 solvable games without slices and movable receptacles."""
    folder = source.folder("alfworld", holds=_FILES) / _SPLIT
    games = [path for path in folder.glob("*/trial_*/game.tw-pddl") if not re.search("movable|Sliced", path.parts[-3])]
    paths = [path for path in sorted(games) if re.search(rb'"solvable":\s*true', path.read_bytes())]
    if not paths:
        raise BadInstance(f"there are no games in {str(folder)!r}; expected {_FILES}")
    instances: list[Instance] = []
    for path in paths:
        task = path.parent.parent
        match = _FOLDER.fullmatch(task.name)
        if not match or match[1] not in _KINDS:
            raise BadInstance(
                f"{str(task)!r} names no task; expected a folder such as {next(iter(_KINDS))}-Mug-None-Desk-308"
            )
        kind, item, place = _KINDS[match[1]], match[2].lower(), match[4].lower()
        name = f"{kind}-{item}-{place}-{match[5]}-{path.parent.name[-6:]}"
        instances.append(Instance(name, {"game": str(path), "object": item, "place": place}, kind))
    return instances


BENCHMARK = Benchmark(
    name="alfworld",
    environment=f"{__name__}:AlfWorld",
    instances=_instances,
    extra="refinesynth[alfworld]",
    episodes=100,
    memory_mb=400,
    # The import of alfworld makes this folder, by default one in the user's home.
    process_variables={"ALFWORLD_DATA": gettempdir()},
)
