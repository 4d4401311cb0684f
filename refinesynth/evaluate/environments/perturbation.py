"""The paper's perturbations P1 to P5 of ALFWorld (section 6): the same task in other words.

A perturbation swaps two wordings wherever text quotes an action and is its own inverse. Observations are swapped for
the player and its actions are swapped back for the environment; the original wording is refused.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from refinesynth.evaluate.environments.environment import Action, BadInstance, Instance, Start, Step, TextEnvironment

Swap = Callable[[str], str]

BENCHMARK = "alfworld"
"""Benchmark of the perturbations."""

_CLAUSE = re.compile(r"[^,.:\n]+")
"""A text that can be an action, alone or in a list."""

_NAME = r"((?:(?!\b(?:take|from)\b).)+)"
_NUMBERED = re.compile(r"(?<=[A-Za-z])( ?)(?=[0-9])")


def _rewrite_clauses(*rules: tuple[str, str]) -> Swap:
    """Rewrite each clause by the first pattern that matches the whole clause."""
    compiled = [(re.compile(pattern), wording) for pattern, wording in rules]

    def swap(clause: re.Match[str]) -> str:
        matches = ((pattern.fullmatch(clause[0]), wording) for pattern, wording in compiled)
        return next((match.expand(wording) for match, wording in matches if match), clause[0])

    return lambda text: _CLAUSE.sub(swap, text)


PERTURBATIONS: Mapping[str, Swap] = {
    "P1": _rewrite_clauses(
        (r"(\s*clean .+? )with( .+)", r"\1using\2"),
        (r"(\s*clean .+? )using( .+)", r"\1with\2"),
    ),
    "P2": _rewrite_clauses((r"(\s*)go( to\b.*)", r"\1move\2"), (r"(\s*)move( to\b.*)", r"\1go\2")),
    "P3": _rewrite_clauses(
        (rf"(\s*)take {_NAME} from {_NAME}", r"\1from \3 take \2"),
        (rf"(\s*)from {_NAME} take {_NAME}", r"\1take \3 from \2"),
    ),
    "P4": lambda text: _NUMBERED.sub(lambda space: "" if space[1] else " ", text),  # sofa 1, sofa1
    "P5": lambda text: text,
}
"""Swaps of two wordings in any text, by the paper's names. P5 keeps the wording: the model must be trained without the
benchmark's own data."""


class Perturbed:
    """An environment in other words."""

    def __init__(self, environment: TextEnvironment, swap: Swap) -> None:
        self._environment = environment
        self._swap = swap

    def reset(self, instance: Instance, /) -> Start:
        start = self._environment.reset(instance)
        return Start(
            observation=self._swap(start.observation),
            goal=self._swap(start.goal),
            actions=tuple(map(self._swap_action, start.actions)),
            introduction=self._swap(start.introduction),
        )

    def _swap_action(self, action: Action) -> Action:
        parameters = {name: tuple(map(self._swap, values)) for name, values in action.parameters.items()}
        return Action(self._swap(action.name), self._swap(action.description), parameters, action.types)

    def step(self, action: str, /) -> Step:
        """Take an action; the original wording of perturbed actions is refused."""
        step = self._environment.step(self._swap(action))
        return replace(step, observation=self._swap(step.observation))

    def valid_actions(self) -> Sequence[str]:
        return [self._swap(action) for action in self._environment.valid_actions()]

    def close(self) -> None:
        self._environment.close()


def perturbed(environment: TextEnvironment, name: str) -> TextEnvironment:
    """The environment under the perturbation of that name; raises BadInstance for an unknown name."""
    if name not in PERTURBATIONS:
        raise BadInstance(f"there is no perturbation {name!r}; expected one of {', '.join(PERTURBATIONS)}")
    return Perturbed(environment, PERTURBATIONS[name])
