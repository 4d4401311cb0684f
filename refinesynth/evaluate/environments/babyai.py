"""BabyAI as AgentBoard plays it: 28 levels of minigrid with four seeds each, in words.

These quirks of AgentBoard are kept:

- The player is told of `pick up`, but only `pickup` is taken.
- The goal says `and` for `then` and `after you`, so that it no longer says what comes first.
- An action of several moves ends early when a move leaves the view as it was, even if the agent did move.
- An action that meets the goal on its way goes on, and what counts is its last move: `toggle and go through` never opens
  the door that was to be opened.
- A level that ended is over only with a progress above 0.5, and a progress of 1 is success even if the level is not
  solved; a level ended by a mistake (the wrong door first) is success if the progress is above 0.5.
- At most one subgoal counts a step.
- Any text with `check` in it lists the actions.
- Paths and numbers: see `babyai_text.view`.

Minigrid's own limit of moves is lifted: AgentBoard does not heed it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from refinesynth.evaluate.environments.babyai_text import NO_CHANGE, UNKNOWN, view
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
from refinesynth.evaluate.environments.labels import AGENTBOARD, labels

_CHECK = "check available actions"
_COMPLETED = "\n The task is completed."


class Level:
    """A level being played; it can be pickled, so a search can go on from anywhere."""

    def __init__(self, level: Any, seen: Any, subgoals: Sequence[Sequence[str]]) -> None:
        """`level` is minigrid's, just reset, and `seen` its observation; each way of `subgoals` has the same length."""
        self.level = level
        self.subgoals = [list(way) for way in subgoals]
        """Subgoals that are left, in each alternative way."""
        self._of = len(self.subgoals[0])
        self.progress, self.done, self.won = 0.0, False, False
        self._look(seen["image"])

    @property
    def goal(self) -> str:
        return str(self.level.mission).replace("then", "and").replace("after you", "and")

    def _look(self, image: Any) -> None:
        self._image = image
        carrying = self.level.carrying
        held = "" if carrying is None else f"{carrying.color} {carrying.type}"
        self.view = view(image.tolist(), int(self.level.agent_dir), held)

    def step(self, action: str) -> Step:
        text = action.lower().strip()
        if "check" in text:
            listed = ", ".join((*self.view.actions, _CHECK))
            return self._said(f"You can take the following actions: {listed}")
        if moves := self.view.actions.get(text):
            return self._said(self._moved(moves))
        known = not text or text in self.view.actions
        return self._said(NO_CHANGE if known else self.view.refusals.get(text, UNKNOWN), refused=True)

    def _said(self, text: str, *, refused: bool = False) -> Step:
        return Step(text, self.progress, self.done, self.won, refused=refused)

    def _moved(self, moves: Iterable[int]) -> str:
        ended = False
        for move in moves:
            image = self._image
            seen, _, ended, _, _ = self.level.step(move)
            self._image = seen["image"]
            if (image == self._image).all():
                break
        self._look(self._image)
        observation = self.view.description + (_COMPLETED if ended else "")
        self._count(observation)
        self.done = ended and self.progress > 0.5  # noqa: PLR2004 - AgentBoard's own bound
        if self.progress == 1 and not self.done:
            self.done = True
            observation += _COMPLETED
        self.won = self.done
        return observation

    def _count(self, observation: str) -> None:
        """Remove the first subgoal that the observation shows; the ways of one level are alternatives, place by place."""
        sentences = observation.split(".")
        places = range(len(self.subgoals[0]))
        shown = next((at for at in places if any(_shows(sentences, way[at]) for way in self.subgoals)), None)
        if shown is not None:
            for way in self.subgoals:
                way.pop(shown)
        self.progress = max(self.progress, (self._of - len(self.subgoals[0])) / self._of)


def _shows(sentences: Iterable[str], pattern: str) -> bool:
    """True if all parts of a pattern, between its stars, are in one sentence."""
    pattern = pattern.strip()
    parts = [part.strip(".") for part in pattern.split("**" if "**" in pattern else "*")]
    return any(all(part in sentence for part in parts) for sentence in sentences)


FIRST_SEED = 1234
_LEVEL = re.compile(r"BabyAI-[A-Za-z0-9]+-v0")
_RENAMED = {"BabyAI-GoToObjS6-v0": "BabyAI-GoToObjS4-v0"}
"""Levels that the minigrid of AgentBoard's time named differently."""

_INTRODUCTION = (
    "You are in a building of one or more rooms, which you see from where you stand: up to six steps ahead and three to "
    "each side, not through walls and closed doors. Objects are numbered, the nearest of its kind and colour first; the "
    "numbers change as you move."
)


_ACTIONS = (
    Action("turn left"),
    Action("turn right"),
    Action("move forward"),
    Action("go to {obj} {id}", "Walk to an object or door in view and face it."),
    Action("pick up {obj} {id}", "Walk to an object in view and take it; you carry one at most."),
    Action("drop", "Put what you carry on the free place before you."),
    Action("go through {door} {id}", "Walk into an open door."),
    Action("toggle and go through {door} {id}", "Walk to a closed or locked door, open it and walk into it."),
    Action("toggle", "Open the door right before you; a locked one needs the key of its colour."),
    Action(CHECK, "List what you can do now."),
)


class BabyAI:
    """One level after another; see `TextEnvironment`."""

    def __init__(self) -> None:
        import gymnasium
        import minigrid

        del minigrid  # Imported for the levels that it registers.
        self._make: Any = gymnasium.make
        self._playing: Level | None = None

    @property
    def _level(self) -> Level:
        if self._playing is None:
            raise RuntimeError("reset comes first")
        return self._playing

    def reset(self, instance: Instance, /) -> Start:
        try:
            self._playing = self._begin(instance)
        except Exception as error:  # Whatever minigrid raises of a level or seed that it does not know.
            raise BadInstance(
                f"the BabyAI level {instance.id!r} cannot be made: {error!r}; expected a level of minigrid 3.2, a seed and "
                "ways of as many subgoals"
            ) from error
        seen, label = self._level.view.description, instance.data.get("observation")
        if label is not None and label != seen:
            raise BadInstance(
                f"the BabyAI level {instance.id!r} begins with {seen!r}, but its label says {label!r}; expected the levels "
                "that minigrid 3.2 makes"
            )
        return Start(seen, self._level.goal, _ACTIONS, _INTRODUCTION)

    def _begin(self, instance: Instance) -> Level:
        name, seed = str(instance.data["level"]), int(instance.data["seed"])
        ways = [list(map(str, way)) for way in instance.data["subgoals"]]
        if not _LEVEL.fullmatch(name) or not ways[0] or any(len(way) != len(ways[0]) for way in ways):
            raise ValueError(f"{name!r} with the subgoals {ways!r}")
        with redirect_stdout(StringIO()):  # It prints every layout that it rejects.
            level = self._make(_RENAMED.get(name, name), disable_env_checker=True).unwrapped
            seen, _ = level.reset(seed=seed)
        level.max_steps = 10**9
        return Level(level, seen, ways)

    def step(self, action: str, /) -> Step:
        return self._level.step(action)

    def valid_actions(self) -> Sequence[str]:
        """All actions that move; listing the actions changes nothing."""
        return [text for text, moves in self._level.view.actions.items() if moves]

    def close(self) -> None:
        """Nothing is held."""


def _instances(source: Source) -> list[Instance]:
    """One per row; the n-th row of a level has the n-th seed."""
    seen: Counter[str] = Counter()
    found: list[Instance] = []
    for label in labels(source.folder("babyai", holds=f"babyai/test.jsonl of {AGENTBOARD}")):
        level = label.text("subtask")
        seed = FIRST_SEED + seen[level]
        seen[level] += 1
        data = {
            "level": level,
            "seed": seed,
            "subgoals": [label.texts(name) for name in label.names() if name.startswith("subgoals")],
            "observation": label.text("init_obs"),
        }
        name = f"{level.removeprefix('BabyAI-').removesuffix('-v0')}-{seed}"
        found.append(Instance(name, data, label.text("difficulty")))
    return found


BENCHMARK = Benchmark(
    name="babyai",
    environment=f"{__name__}:BabyAI",
    instances=_instances,
    extra="refinesynth[babyai]",
    memory_mb=512,
    process_variables={"PYGAME_HIDE_SUPPORT_PROMPT": "1"},
)
