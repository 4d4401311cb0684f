"""Integrity of grounded worlds as environments: the reward is earned by the solution, and by nothing else.

Policies in the sense of OpenEnv's RFC 008: an oracle that gets the maximum, players that must stay at the floor, and
players that try to cheat the environment by what they write.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from refinesynth.environments.grounded import STEPS, GroundedEnvironment, NamedWorld
from refinesynth.rules.ending import SUCCESS
from refinesynth.world import check_solvability
from refinesynth.world.ground_actions import some_ground_actions

_LISTED = 2_000
"""Most ground actions among which the players choose; above, every action has its share of them."""

_OVERSIZED = 200_000

LUCKY = 0.5
"""Share of won plays above which a world is called easy for a player that knows nothing."""


class Baseline(NamedTuple):
    """Plays of one policy in one world."""

    policy: str
    reward: float
    """Mean reward, 1 for a play that reached the goal."""
    expected: float | None
    """Reward that the policy must have; None if any is possible."""

    @property
    def fails(self) -> bool:
        """True if the policy has another reward than it must have."""
        return self.expected is not None and self.reward != self.expected

    @property
    def lucky(self) -> bool:
        """True if a player that knows nothing reaches the goal in more than half of its plays."""
        return self.expected is None and self.reward > LUCKY


@dataclass(frozen=True, slots=True)
class Integrity:
    """Baselines of one world."""

    id: str
    baselines: tuple[Baseline, ...]

    @property
    def sound(self) -> bool:
        """True if the oracle gets the maximum, and neither idle nor cheating players get anything."""
        return not any(one.fails for one in self.baselines)


Next = Callable[[GroundedEnvironment, str], str]
"""The next message of a player, given the environment and the last observation."""


def check_integrity(world: NamedWorld, *, steps: int = STEPS, seeds: Sequence[int] = range(5)) -> Integrity:
    """Play every policy in a world, from its start, with each seed; same arguments, same result.

    - `oracle` takes the best known solution: reward 1.
    - `null` says nothing, `echo` repeats what it was told last, and the cheats `imitate` (an action with an observation
      of success), `many` (the whole solution in one message), `forge` (words of success) and `oversized`, each once and
      then nothing: reward 0.
    - `random` takes any action, `search` all in turn: any reward, which says how easy the world is.

    Raises:
        RulebookError: The world cannot be executed.
        ValueError: `steps` are fewer than the oracle needs.
    """
    environment = GroundedEnvironment(world.script, steps=steps)
    environment.reset(before=world.before)
    if (needed := len(_solution(environment))) > steps:
        raise ValueError(f"the best known solution has {needed} actions, and steps is {steps}; give steps={needed}")

    def mean(policy: Callable[[int], Next]) -> float:
        total = 0.0
        for seed in seeds:
            observation = environment.reset(seed, before=world.before)
            following = policy(seed)
            while not environment.done:
                observation = environment.reply(following(environment, observation))
            total += environment.reward()
        return total / len(seeds)

    played = [Baseline(name, mean(policy), expected) for name, policy, expected in _policies(world)]
    return Integrity(world.id, tuple(played))


def _policies(world: NamedWorld) -> Iterator[tuple[str, Callable[[int], Next], float | None]]:
    actions, _ = some_ground_actions(GroundedEnvironment(world.script).world, _LISTED)
    yield "oracle", lambda _seed: _oracle(), 1.0
    yield "null", lambda _seed: lambda _environment, _observation: "", 0.0
    yield "echo", lambda _seed: lambda _environment, observation: observation, 0.0
    cheats: dict[str, Callable[[Sequence[str]], str]] = {
        "imitate": lambda way: f"Thought: Done.\nAction: {way[-1]}\nObservation: {SUCCESS}\n\nThought: {SUCCESS}",
        "many": lambda way: "\n".join(f"Thought: Next.\nAction: {action}" for action in way),
        "forge": lambda _way: f"Action: {SUCCESS}",
        "oversized": lambda way: f"Action: {way[-1]}{' x' * _OVERSIZED}",
    }
    for name, message in cheats.items():
        yield name, lambda _seed, message=message: _cheating(message), 0.0
    yield "random", lambda seed: _choosing(actions, Random(seed)), None
    yield "search", lambda _seed: _choosing(actions, None), None


def _solution(environment: GroundedEnvironment) -> Sequence[str]:
    rulebook = environment.script.rulebook
    bare = rulebook and rulebook.model_copy(update={"solution": ()})
    now = environment.script.model_copy(update={"environment": environment.state, "rulebook": bare})
    script = environment.script if environment.state is environment.script.environment else now
    return check_solvability(script).shortest or ()


def _oracle() -> Next:
    left: list[str] = []

    def following(environment: GroundedEnvironment, _observation: str) -> str:
        if not environment.taken:
            left[:] = _solution(environment)
        return f"Action: {left.pop(0)}" if left else ""

    return following


def _cheating(message: Callable[[Sequence[str]], str]) -> Next:
    """A message made of a solution from the start, and then nothing; nothing where one action is the solution."""

    def following(environment: GroundedEnvironment, _observation: str) -> str:
        solution = () if environment.taken else _solution(environment)
        return message(solution) if len(solution) > 1 else ""

    return following


def _choosing(actions: Sequence[str], random: Random | None) -> Next:
    """Any action with a generator, else all of them in turn."""

    def following(environment: GroundedEnvironment, _observation: str) -> str:
        if not actions:
            return ""
        return f"Action: {actions[environment.taken % len(actions)] if random is None else random.choice(actions)}"

    return following
