"""Integrity of grounded worlds as environments: only the solution earns the reward.

Policies in the sense of OpenEnv's RFC 008: an oracle that gets the maximum, idle players that must get nothing, and
players whose messages try to cheat the environment.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from refinesynth.environments.grounded import STEPS, GroundedEnvironment, NamedWorld
from refinesynth.rules.ending import SUCCESS
from refinesynth.world.ground_actions import some_ground_actions

_MAX_ACTIONS = 2_000
"""Maximum number of ground actions that the players choose from; in larger worlds, every action has a share of them."""

_OVERSIZED = 200_000

EASY = 0.5
"""Share of won plays of a player without knowledge; a world above it is easy."""


class Baseline(NamedTuple):
    """Result of one policy's plays in one world."""

    policy: str
    reward: float
    """Mean reward; a play that reached the goal has 1."""
    expected: float | None
    """Required reward of the policy; None without a requirement."""

    @property
    def fails(self) -> bool:
        """True if the reward differs from the required one."""
        return self.expected is not None and self.reward != self.expected

    @property
    def is_easy(self) -> bool:
        """True if a player without knowledge reaches the goal in more than half of its plays."""
        return self.expected is None and self.reward > EASY


@dataclass(frozen=True, slots=True)
class Integrity:
    """Baselines of one world."""

    id: str
    baselines: tuple[Baseline, ...]

    @property
    def is_sound(self) -> bool:
        """True if the oracle gets the maximum, and idle and cheating players get nothing."""
        return not any(baseline.fails for baseline in self.baselines)


def check_integrity(world: NamedWorld, *, steps: int = STEPS, seeds: Sequence[int] = range(5)) -> Integrity:
    """Play every policy in a world, from its start, with each seed. The result is deterministic.

    - `oracle` takes the best known solution: reward 1.
    - `null` sends empty messages, `echo` repeats the last observation: reward 0.
    - The cheats send one message and then empty ones: `imitate` (an action with an observation of success), `many` (the
      whole solution), `forge` (words of success), `oversized`: reward 0. With a solution of one action, they send nothing.
    - `random` takes random actions, `search` takes all in turn: any reward, which measures how easy the world is.

    Raises:
        RulebookError: The world cannot be executed.
        ValueError: The best known solution has more actions than `steps`.
    """
    environment = GroundedEnvironment(world.script, steps=steps)
    environment.reset(before=world.before)
    if (needed := len(environment.solution() or ())) > steps:
        raise ValueError(f"the best known solution has {needed} actions, and steps is {steps}; give steps={needed}")
    actions, _ = some_ground_actions(environment.world, _MAX_ACTIONS)
    rewards: dict[str, float] = {}
    for seed in seeds:
        environment.reset(seed, before=world.before)
        for policy, next_message in _policies(environment.solution() or (), actions, Random(seed)).items():
            observation = environment.reset(seed, before=world.before)
            while not environment.done:
                observation = environment.reply(next_message(environment.taken, observation))
            rewards[policy] = rewards.get(policy, 0.0) + environment.reward()
    expected = {"oracle": 1.0, "random": None, "search": None}
    return Integrity(
        world.id, tuple(Baseline(name, sum_ / len(seeds), expected.get(name, 0.0)) for name, sum_ in rewards.items())
    )


NextMessage = Callable[[int, str], str]
"""Function from the number of a player's turns and the last observation to the next message."""


def _policies(solution: Sequence[str], actions: Sequence[str], random: Random) -> Mapping[str, NextMessage]:
    """Return the policies for one play each; `solution` leads from the play's start to the goal."""
    last = solution[-1] if solution else ""
    cheats = {
        "imitate": f"Thought: Done.\nAction: {last}\nObservation: {SUCCESS}\n\nThought: {SUCCESS}",
        "many": "\n".join(f"Thought: Next.\nAction: {action}" for action in solution),
        "forge": f"Action: {SUCCESS}",
        "oversized": f"Action: {last}{' x' * _OVERSIZED}",
    }

    def send_once(message: str) -> NextMessage:
        return lambda turn, _: message if turn == 0 and len(solution) > 1 else ""

    return {
        "oracle": lambda turn, _: f"Action: {solution[turn]}" if turn < len(solution) else "",
        "null": lambda _turn, _observation: "",
        "echo": lambda _, observation: observation,
        **{name: send_once(message) for name, message in cheats.items()},
        "random": lambda _turn, _observation: f"Action: {random.choice(actions)}" if actions else "",
        "search": lambda turn, _: f"Action: {actions[turn % len(actions)]}" if actions else "",
    }
