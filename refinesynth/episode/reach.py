"""What can come about in a world: a bounded sample of its reachable states, for whoever chooses a goal in it."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice, product, zip_longest
from typing import Any, cast

from pydantic import JsonValue

from refinesynth.world import Ruling, World
from refinesynth.world.expression import encode

MAX_STEPS = 4_000
"""Most actions that are tried."""

MAX_ACTIONS = 400
"""Most action texts that are tried in each state."""

MAX_BYTES = 16_777_216
"""Most bytes of states that are looked at, as JSON, all of them together."""

MAX_USABLE = 80
"""Most action texts that are shown."""

MAX_PLACES = 60
"""Most places in the state that are shown."""

MAX_VALUES = 5
"""Most values that are shown for each."""


@dataclass
class _Seen:
    """What the sample has shown so far."""

    usable: dict[str, None] = field(default_factory=dict[str, None])
    changes: dict[str, list[JsonValue]] = field(default_factory=dict[str, "list[JsonValue]"])

    def note(self, text: str, ruling: Ruling) -> None:
        self.usable.setdefault(text)
        for change in ruling.changed:
            values = self.changes.setdefault(change.path, [change.before])
            if change.after not in values and len(values) < MAX_VALUES:
                values.append(change.after)


def reachable(world: World) -> dict[str, Any]:
    """What a search from the beginning meets, as JSON of bounded size; the same for the same world.

    Nearer states are looked at first. Every action text is tried in each, up to `MAX_ACTIONS` of them, taken from all actions
    in turn, and `MAX_STEPS` in all.

    Returns:
        `usable`: action texts that work at some time; `changes`: JSON Pointer to values there, the first one at the start;
        `deepest`: one of the states farthest from the start, as the actions that lead there; `complete`: whether the
        sample is all that there is.
    """
    texts = list(islice(_texts(world), MAX_ACTIONS + 1))
    complete = len(texts) <= MAX_ACTIONS and not any(_takes_any(world))
    texts = texts[:MAX_ACTIONS]
    start = cast("JsonValue", world.script.environment)
    seen, known = _Seen(), {blake2b(encode(start, sort=True) or b"", digest_size=16).digest()}
    queue: deque[tuple[JsonValue, tuple[str, ...]]] = deque([(start, ())])
    deepest: tuple[str, ...] = ()
    steps = size = 0
    while queue and steps < MAX_STEPS:
        state, path = queue.popleft()
        for text in texts:
            if steps >= MAX_STEPS:
                break
            steps += 1
            ruling = world.step(state, text)
            if ruling.kind is not None:
                continue
            seen.note(text, ruling)
            if ruling.state is state or (encoded := encode(ruling.state, sort=True)) is None:
                continue
            if (key := blake2b(encoded, digest_size=16).digest()) in known:
                continue
            known.add(key)
            size += len(encoded)
            if size > MAX_BYTES:
                steps = MAX_STEPS
                break
            queue.append((ruling.state, (*path, text)))
            deepest = max(deepest, (*path, text), key=len)
    return {
        "usable": list(seen.usable)[:MAX_USABLE],
        "changes": dict(islice(seen.changes.items(), MAX_PLACES)),
        "deepest": list(deepest),
        "complete": complete and not queue and steps < MAX_STEPS,
    }


def _texts(world: World) -> Iterator[str]:
    """Filled actions, one of each action in turn, so that none crowds out the others."""
    for row in zip_longest(*(_filled(world, at) for at in range(len(world.script.actions)))):
        yield from (text for text in row if text is not None)


def _filled(world: World, at: int) -> Iterator[str]:
    action = world.script.actions[at]
    names = action.placeholders
    for values in product(*(action.parameters.get(name, ()) for name in names)):
        yield action.fill(dict(zip(names, values, strict=True)))


def _takes_any(world: World) -> Iterator[bool]:
    """Of each action, whether it takes any text somewhere: such an action is not tried."""
    for action in world.script.actions:
        yield any(not action.parameters.get(name) for name in action.placeholders)
