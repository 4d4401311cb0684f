"""The paper's perturbations P1 to P5 of ALFWorld (section 6): the same task in other words.

A perturbation swaps two wordings wherever text quotes an action, so it is its own inverse. Observations are swapped for
the player and its actions are swapped back for the environment; the original wording is refused.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from refinesynth.evaluate.environments.environment import Action, BadInstance, Instance, Start, Step, TextEnvironment

Swap = Callable[[str], str]


@dataclass(frozen=True)
class Perturbation:
    """One other wording of the same actions."""

    wording: str
    """The original wording and its replacement."""
    swap: Swap
    """Swaps the two wordings in any text."""
    benchmarks: tuple[str, ...] = ("alfworld",)
    """Benchmarks that it is meant for."""


_CLAUSE = re.compile(r"[^,.:\n]+")
"""A text that can be an action, alone or in a list."""

_CLEAN = re.compile(r"(\s*clean .+? )(with|using)( .+)")
_GO = re.compile(r"(\s*)(go|move)( to\b.*)")
_NAME = r"((?:(?!\b(?:take|from)\b).)+)"
_TAKE = re.compile(rf"(\s*)take {_NAME} from {_NAME}")
_FROM = re.compile(rf"(\s*)from {_NAME} take {_NAME}")
_NUMBERED = re.compile(r"(?<=[A-Za-z])( ?)(?=[0-9])")


def _of_clauses(swap: Swap) -> Swap:
    return lambda text: _CLAUSE.sub(lambda clause: swap(clause[0]), text)


def _clean(clause: str) -> str:
    found = _CLEAN.fullmatch(clause)
    return f"{found[1]}{'using' if found[2] == 'with' else 'with'}{found[3]}" if found else clause


def _go(clause: str) -> str:
    found = _GO.fullmatch(clause)
    return f"{found[1]}{'move' if found[2] == 'go' else 'go'}{found[3]}" if found else clause


def _take(clause: str) -> str:
    if found := _TAKE.fullmatch(clause):
        return f"{found[1]}from {found[3]} take {found[2]}"
    found = _FROM.fullmatch(clause)
    return f"{found[1]}take {found[3]} from {found[2]}" if found else clause


def _number(text: str) -> str:
    return _NUMBERED.sub(lambda space: "" if space[1] else " ", text)


PERTURBATIONS: Mapping[str, Perturbation] = {
    "P1": Perturbation("clean {obj} with {recep} -> clean {obj} using {recep}", _of_clauses(_clean)),
    "P2": Perturbation("go to {recep} -> move to {recep}", _of_clauses(_go)),
    "P3": Perturbation("take {obj} from {recep} -> from {recep} take {obj}", _of_clauses(_take)),
    "P4": Perturbation("sofa 1 -> sofa1", _number),
    "P5": Perturbation("none: of a model whose training data holds nothing of this benchmark", lambda text: text),
}
"""By the paper's names. P5 keeps the wording: the model must be trained without the benchmark's own data."""


class Perturbed:
    """An environment in other words; see `TextEnvironment`."""

    def __init__(self, environment: TextEnvironment, perturbation: Perturbation) -> None:
        self._environment = environment
        self._swap = perturbation.swap

    def reset(self, instance: Instance, /) -> Start:
        start = self._environment.reset(instance)
        return Start(
            observation=self._swap(start.observation),
            goal=self._swap(start.goal),
            actions=tuple(map(self._worded, start.actions)),
            introduction=self._swap(start.introduction),
        )

    def _worded(self, action: Action) -> Action:
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
