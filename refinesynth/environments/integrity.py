"""Integrity of grounded worlds as environments: the reward is earned by the solution, and by nothing else.

Policies in the sense of OpenEnv's RFC 008: an oracle that gets the maximum, players that must stay at the floor, and
players that try to cheat the environment by what they write.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from refinesynth.environments.grounded import STEPS, GroundedEnvironment, NamedWorld
from refinesynth.rules.ending import SUCCESS
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


def check_integrity(world: NamedWorld, *, steps: int = STEPS, seeds: Sequence[int] = range(5)) -> Integrity:
    """Play every policy in a world, from its start, with each seed; same arguments, same result.

    - `oracle` takes the best known solution: reward 1.
    - `null` says nothing, `echo` repeats what it was told last, and the cheats `imitate` (an action with an observation
      of success), `many` (the whole solution in one message), `forge` (words of success) and `oversized`, each once and
      then nothing: reward 0. They say nothing where one action is the solution.
    - `random` takes any action, `search` all in turn: any reward, which says how easy the world is.

    Raises:
        RulebookError: The world cannot be executed.
        ValueError: `steps` are fewer than the oracle needs.
    """
    environment = GroundedEnvironment(world.script, steps=steps)
    environment.reset(before=world.before)
    if (needed := len(environment.solution() or ())) > steps:
        raise ValueError(f"the best known solution has {needed} actions, and steps is {steps}; give steps={needed}")
    actions, _ = some_ground_actions(environment.world, _LISTED)
    rewards: dict[str, float] = {}
    for seed in seeds:
        environment.reset(seed, before=world.before)
        for policy, following in _policies(environment.solution() or (), actions, Random(seed)).items():
            observation = environment.reset(seed, before=world.before)
            while not environment.done:
                observation = environment.reply(following(environment.taken, observation))
            rewards[policy] = rewards.get(policy, 0.0) + environment.reward()
    expected = {"oracle": 1.0, "random": None, "search": None}
    return Integrity(
        world.id, tuple(Baseline(name, sum_ / len(seeds), expected.get(name, 0.0)) for name, sum_ in rewards.items())
    )


Next = Callable[[int, str], str]
"""The next message of a player, given the number of its turns and the last observation."""


def _policies(way: Sequence[str], actions: Sequence[str], random: Random) -> Mapping[str, Next]:
    """Policies for one play each; `way` is the solution from its start."""
    last = way[-1] if way else ""
    cheats = {
        "imitate": f"Thought: Done.\nAction: {last}\nObservation: {SUCCESS}\n\nThought: {SUCCESS}",
        "many": "\n".join(f"Thought: Next.\nAction: {action}" for action in way),
        "forge": f"Action: {SUCCESS}",
        "oversized": f"Action: {last}{' x' * _OVERSIZED}",
    }

    def once(message: str) -> Next:
        return lambda turn, _: message if turn == 0 and len(way) > 1 else ""

    return {
        "oracle": lambda turn, _: f"Action: {way[turn]}" if turn < len(way) else "",
        "null": lambda _turn, _observation: "",
        "echo": lambda _, observation: observation,
        **{name: once(message) for name, message in cheats.items()},
        "random": lambda _turn, _observation: f"Action: {random.choice(actions)}" if actions else "",
        "search": lambda turn, _: f"Action: {actions[turn % len(actions)]}" if actions else "",
    }
