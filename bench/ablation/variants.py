"""What is compared: one base model, tuned in six ways on as many trained tokens each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import orjson

from bench.ablation.playing import play
from bench.ablation.worlds import SEEN, Pool, scene_of
from refinesynth.chat import Message, to_messages
from refinesynth.settings.mistakes import Mistakes, at_least, spread
from refinesynth.train.data.conversation_reader import read_conversations
from refinesynth.train.labelled_conversation import LossOn
from refinesynth.trajectory import Trajectory

Records = Callable[[int], Iterator[dict[str, Any]]]
"""From a seed to its records, without end."""


@dataclass(frozen=True)
class Variant:
    """One row of the table."""

    name: str
    records: Records
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """What `Trainer` is asked for."""


def _plays(seed: int, mistakes: Mistakes, pool: Pool = SEEN) -> Iterator[Trajectory]:
    for number in count():
        name = f"seed {seed} train {number}"
        yield play(name, scene_of(name, pool), mistakes, episode=number)


def trajectories(mistakes: Mistakes, pool: Pool = SEEN) -> Records:
    """Plays of the teacher in worlds of these names."""
    return lambda seed: (orjson.loads(one.to_json()) for one in _plays(seed, mistakes, pool))


def _repairs_shuffled(seed: int) -> Iterator[dict[str, Any]]:
    """Each repair says what another play's repair says: a turn of the same form, after a mistake, that answers nothing."""
    others: list[str] = []
    for one in _plays(seed, spread()):
        messages = to_messages(one)
        repairs = _repairs(messages)
        said = [messages[at].content for at in repairs]
        if len(others) >= len(said):
            lent = iter(others)
            mixed = [m._replace(content=next(lent)) if at in repairs else m for at, m in enumerate(messages)]
            yield _record(one, mixed)
        others = said or others


def _repairs(messages: list[Message]) -> list[int]:
    """Turns of the player that follow a mistake and are none."""
    acts = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return [at for before, at in pairwise(acts) if messages[at].loss and not messages[before].loss]


def _record(one: Trajectory, messages: list[Message]) -> dict[str, Any]:
    return {"id": one.id, "messages": [message._asdict() for message in messages]}


VARIANTS = (
    Variant("full", trajectories(spread())),
    Variant("without refinement loss", trajectories(spread()), {"loss_on": "no_refinement_turns"}),
    Variant("without refinement data", trajectories(spread()), {"without_refinement": True}),
    Variant("erroneous loss", trajectories(spread()), {"loss_on": "all_turns"}),
    Variant("repairs shuffled", _repairs_shuffled),
    Variant("at least two", trajectories(at_least(2))),
)
"""The first is what the others are compared with."""


def write_data(variant: Variant, path: Path, *, seed: int, tokens: int, count_tokens: Callable[[str], int]) -> int:
    """As many records as give so many tokens with loss; how many these are."""
    found = 0
    loss_on = LossOn(variant.settings.get("loss_on", LossOn.REFINEMENT))
    without = bool(variant.settings.get("without_refinement", False))
    with path.open("wb") as lines:
        for number, record in enumerate(variant.records(seed), start=1):
            lines.write(orjson.dumps(record) + b"\n")
            for one in read_conversations([[record]], without_refinement=without):
                spoken = zip(one.turns, one.trained(loss_on), strict=True)
                found += sum(count_tokens(turn.content) + 1 for turn, trained in spoken if trained)
            if found >= tokens:
                return number
    raise RuntimeError("the records came to an end")
