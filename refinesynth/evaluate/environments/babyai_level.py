"""One level of BabyAI being played in words, see `babyai`; it can be pickled, so that a search can go on from anywhere."""

from collections.abc import Iterable, Sequence
from typing import Any

from refinesynth.evaluate.environments.babyai_text import NO_CHANGE, UNKNOWN, view
from refinesynth.evaluate.environments.environment import CHECK, Step

_CHECK = "check available actions"
"""What AgentBoard lists and takes beside `CHECK`, which its prompt names."""
_COMPLETED = "\n The task is completed."


class Level:
    """One level being played; it can be pickled, so that a search can go on from anywhere."""

    def __init__(self, level: Any, seen: Any, subgoals: Sequence[Sequence[str]], *, repaired: bool) -> None:
        """`level` is minigrid's, just reset, and `seen` what it showed; each way of `subgoals` is as long."""
        self.level, self._repaired = level, repaired
        self.subgoals = [list(way) for way in subgoals]
        """Those that are left, in each alternative way."""
        self._of = len(self.subgoals[0])
        self.progress, self.done, self.won = 0.0, False, False
        self._look(seen["image"])

    @property
    def goal(self) -> str:
        """What the player is told to do."""
        goal = str(self.level.mission)
        return goal if self._repaired else goal.replace("then", "and").replace("after you", "and")

    def _look(self, image: Any) -> None:
        self._image = image
        carrying = self.level.carrying
        held = "" if carrying is None else f"{carrying.color} {carrying.type}"
        self.view = view(image.tolist(), int(self.level.agent_dir), held, repaired=self._repaired)

    def step(self, action: str) -> Step:
        """See `TextEnvironment.step`."""
        text = action.lower().strip()
        if self._repaired and text.startswith("pickup "):
            text = f"pick up {text.removeprefix('pickup ')}"
        if text in {CHECK, _CHECK} or ("check" in text and not self._repaired):
            listed = ", ".join((*self.view.actions, _CHECK))
            return self._said(f"You can take the following actions: {listed}")
        if moves := self.view.actions.get(text):
            return self._said(self._moved(moves))
        known = not text or text in self.view.actions
        return self._said(NO_CHANGE if known else self.view.refusals.get(text, UNKNOWN), refused=True)

    def _said(self, text: str, *, refused: bool = False) -> Step:
        return Step(text, self.progress, self.done, self.won, refused=refused)

    def _moved(self, moves: Iterable[int]) -> str:
        ended, solved = False, False
        for move in moves:
            before, image = self._state(), self._image
            seen, reward, ended, _, _ = self.level.step(move)
            self._image = seen["image"]
            solved = ended and reward != 0
            unchanged = before == self._state() if self._repaired else bool((image == self._image).all())
            if unchanged or (ended and self._repaired):
                break
        self._look(self._image)
        observation = self.view.description + (_COMPLETED if ended else "")
        self._count(observation)
        if self._repaired:
            self.done, self.won = ended, solved
            self.progress = 1.0 if solved else self.progress
            return observation
        self.done = ended and self.progress > 0.5  # noqa: PLR2004 - AgentBoard's own bound
        if self.progress == 1 and not self.done:
            self.done = True
            observation += _COMPLETED
        self.won = self.done
        return observation

    def _state(self) -> tuple[Any, ...]:
        """All that one move can change."""
        level = self.level
        front = level.grid.get(*level.front_pos)
        return (*map(int, level.agent_pos), int(level.agent_dir), level.carrying, front, front and front.encode())

    def _count(self, observation: str) -> None:
        """Take the subgoals off that the observation shows; the ways of one level are alternatives, place by place."""
        sentences = observation.split(".")
        at = 0
        while at < len(self.subgoals[0]):
            if not any(_shows(sentences, way[at]) for way in self.subgoals):
                at += 1
                continue
            for way in self.subgoals:
                way.pop(at)
            if not self._repaired:
                break
        self.progress = max(self.progress, (self._of - len(self.subgoals[0])) / self._of)


def _shows(sentences: Iterable[str], pattern: str) -> bool:
    """Whether all parts of a pattern, between its stars, are in one sentence."""
    pattern = pattern.strip()
    parts = [part.strip(".") for part in pattern.split("**" if "**" in pattern else "*")]
    return any(all(part in sentence for part in parts) for sentence in sentences)
