"""The same task in other words: the paper's perturbations P1 to P5 of ALFWorld (section 6), around any environment.

A perturbation swaps two wordings wherever text quotes an action, so that it is its own inverse: what the player reads
says the new wording, what it does is swapped back for the environment, and the original wording is no longer taken.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from refinesynth.evaluate.environments.environment import Action, BadInstance, Instance, Start, Step, TextEnvironment

Swap = Callable[[str], str]


@dataclass(frozen=True)
class Perturbation:
    """One way to word the same actions differently."""

    wording: str
    """The original wording, and what takes its place."""
    swap: Swap
    """Of any text; twice gives the text again."""
    benchmarks: tuple[str, ...] = ("alfworld",)
    """What it is meant for: the paper perturbs ALFWorld alone."""


_CLAUSE = re.compile(r"[^,.:\n]+")
"""What can be an action in a list of actions, or a whole one; narration in between does not begin like an action."""

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


def _same(text: str) -> str:
    return text


PERTURBATIONS: Mapping[str, Perturbation] = {
    "P1": Perturbation("clean {obj} with {recep} -> clean {obj} using {recep}", _of_clauses(_clean)),
    "P2": Perturbation("go to {recep} -> move to {recep}", _of_clauses(_go)),
    "P3": Perturbation("take {obj} from {recep} -> from {recep} take {obj}", _of_clauses(_take)),
    "P4": Perturbation("sofa 1 -> sofa1", _number),
    "P5": Perturbation("none: of a model whose training data holds nothing of this benchmark", _same),
}
"""By the paper's names. P5 is about the model: the wording stays, and the caller names a model that was trained without
the benchmark's own data."""


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
        return Action(self._swap(action.name), self._swap(action.description), parameters)

    def step(self, action: str, /) -> Step:
        """See `TextEnvironment.step`; the original wording of what is perturbed is refused."""
        step = self._environment.step(self._swap(action))
        return replace(step, observation=self._swap(step.observation))

    def valid_actions(self) -> Sequence[str]:
        return [self._swap(action) for action in self._environment.valid_actions()]

    def close(self) -> None:
        self._environment.close()


def perturbed(environment: TextEnvironment, name: str) -> TextEnvironment:
    """The environment under the perturbation of that name.

    Raises:
        BadInstance: There is no such perturbation.
    """
    if name not in PERTURBATIONS:
        raise BadInstance(f"there is no perturbation {name!r}; expected one of {', '.join(PERTURBATIONS)}")
    return Perturbed(environment, PERTURBATIONS[name])
