"""Holding conversations out by persona, script and environment, never by turn."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from refinesynth.errors import InputError
from refinesynth.train.conversation import Conversation, task_digest


class Split(NamedTuple):
    """Two sides that share no persona, no script, no environment and no task."""

    train: list[Conversation]
    held_out: list[Conversation]


def split(conversations: Iterable[Conversation], held_out: float, seed: int = 0) -> Split:
    """Hold out some groups: a share of them if `held_out` is below 1, else so many; at least one if it is above 0.

    Conversations belong together if they share a persona (`group`), a script, an environment, or the text of their
    task, and so do those that are linked through others. Which groups are held out depends on what they hold and on
    `seed` alone, not on their order or on the machine; both sides keep the order.

    Raises:
        InputError: There are not enough groups to hold out so many and train on one.
    """
    every = list(conversations)
    if not held_out or not every:
        return Split(every, [])
    names = _components(every)
    groups = sorted(set(names), key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    count = max(1, round(held_out * len(groups) if held_out < 1 else held_out))
    if count >= len(groups):
        raise InputError(
            f"held_out={held_out:g} asks for {count} of {len(groups)} groups, which leaves none to train on: the {len(every)} "
            "conversations are linked by persona, environment or task. Hold out less (0: none), or give more varied data"
        )
    chosen = set(groups[:count])
    sides: tuple[list[Conversation], list[Conversation]] = ([], [])
    for one, name in zip(every, names, strict=True):
        sides[name in chosen].append(one)
    return Split(*sides)


def _keys(one: Conversation) -> Iterator[str]:
    yield f"group:{one.group}"
    yield f"task:{task_digest(one.turns)}"
    if one.script:
        yield f"script:{one.script}"
    if one.environment:
        yield f"environment:{one.environment}"


def _components(conversations: Sequence[Conversation]) -> list[str]:
    """For each conversation the name of its component: the least of all keys in it, independent of the order."""
    above: dict[str, str] = {}

    def top(key: str) -> str:
        while above[key] != key:
            above[key] = above[above[key]]
            key = above[key]
        return key

    firsts: list[str] = []
    for one in conversations:
        keys = list(_keys(one))
        for key in keys:
            above.setdefault(key, key)
        tops = sorted({top(key) for key in keys})
        for other in tops[1:]:
            above[other] = tops[0]
        firsts.append(keys[0])
    return [top(key) for key in firsts]
