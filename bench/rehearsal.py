"""Whether the rehearsal's trajectories give their mistakes away, and whether its repairs repair.

    python -m bench.rehearsal [N]

N trajectories each (by default 1,000) of live and grounded play. Half of them teach a logistic regression on the words
of the player's thoughts, singly and in pairs, to tell mistakes; balanced accuracy is of the other half: 50 % is chance.
Where a world hides something that the play needs, the first place that is looked into is compared with a guess.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import anyio
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import refinesynth as rs
from refinesynth.personas import shipped
from refinesynth.rehearsal.search_plan import hidden_names
from refinesynth.rules.repairs import repairs
from refinesynth.trajectory import DungeonMasterTurn, MistakeKind, PlayerTurn, Trajectory
from refinesynth.world import World, mentions, world_of

GOAL = 0.65
"""Balanced accuracy at most."""

_WORDS = 4_000
"""Commonest words and pairs that are looked at."""
_STEPS, _DECAY = 300, 1e-3


def main() -> None:
    """Print one table."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    print(
        "| play | trajectories | mistakes | told by the thought | not after a mistake | with turn and last answer | answered | first guess right |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for play in ("live", "grounded"):
        made = anyio.run(_rehearsed, play, number)
        turns = [turn for one in made for turn in _turns(one)]
        mistakes = sum(turn["mistake"] for turn in turns)
        first = [turn for turn in turns if not turn["repairs"]]
        figures = [told(turns, "thought"), told(first, "thought"), told(turns, "all")]
        cells = [f"{100 * figure:.0f} %" for figure in figures]
        print(f"| {play} | {len(made):,} | {mistakes:,} | {' | '.join(cells)} | {_answered(made)} | {_guessed(made)} |")


async def _rehearsed(play: str, number: int) -> list[Trajectory]:
    personas = [f"{one.text} ({at})" for at in range(-(-number // len(shipped())) + 1) for one in shipped()]
    with tempfile.TemporaryDirectory() as folder:
        faults = "rehearsal:" + ",".join(f"{name}=0" for name in ("natural_mistake", "false_alarm"))
        result = await rs.synthesize(personas, number, faults, play=play, output=Path(folder) / "run")
        return list(result)


def _turns(one: Trajectory) -> Iterator[dict[str, Any]]:
    last, wrong = "", False
    for at, (act, answer) in enumerate(pairwise(one.turns)):
        if isinstance(act, PlayerTurn) and isinstance(answer, DungeonMasterTurn):
            mistake = answer.mistake_kind is not None
            about = f"turn{at // 2} {' '.join(f'last:{word}' for word in last.split())}"
            yield {
                "group": one.id,
                "thought": act.thought,
                "all": f"{act.thought} {about}",
                "mistake": mistake,
                "repairs": wrong,
            }
            last, wrong = answer.observation, mistake


def told(turns: Sequence[dict[str, Any]], text: str) -> float:
    """Balanced accuracy with which mistakes are told, in trajectories that were not learned from."""
    groups = sorted({turn["group"] for turn in turns})
    Random(0).shuffle(groups)
    learned = set(groups[: len(groups) // 2])
    words = [_words(turn[text]) for turn in turns]
    counts: dict[str, int] = {}
    for turn, said in zip(turns, words, strict=True):
        if turn["group"] in learned:
            for word in said:
                counts[word] = counts.get(word, 0) + 1
    known = {word: at for at, word in enumerate(sorted(counts, key=lambda word: (-counts[word], word))[:_WORDS])}
    features = torch.zeros(len(turns), len(known))
    for row, said in enumerate(words):
        features[row, [known[word] for word in said if word in known]] = 1.0
    labels = torch.tensor([float(turn["mistake"]) for turn in turns])
    mine = torch.tensor([turn["group"] in learned for turn in turns])
    weights, bias = _fitted(features[mine], labels[mine])
    said = (features[~mine] @ weights + bias) > 0
    truth = labels[~mine] > 0
    return float((said[truth].float().mean() + (~said[~truth]).float().mean()) / 2)


def _fitted(features: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A logistic regression that gives mistakes as much weight as right turns."""
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    weights, bias = torch.zeros(features.shape[1], requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer: Any = torch.optim.AdamW([weights, bias], lr=0.05, weight_decay=_DECAY)
    positive = (1 - labels).sum() / labels.sum()
    for _ in range(_STEPS):
        optimizer.zero_grad()
        loss: Any = binary_cross_entropy_with_logits(features @ weights + bias, labels, pos_weight=positive)
        loss.backward()
        optimizer.step()
    return weights.detach(), bias.detach()


def _words(text: str) -> set[str]:
    single = text.casefold().split()
    return {*single, *(f"{one} {other}" for one, other in pairwise(single))}


def _answered(made: Sequence[Trajectory]) -> str:
    """Of place and logic mistakes, those that a later action answers; only where the
    world is executed."""
    kinds = {MistakeKind.PLACE, MistakeKind.LOGIC}
    found = [
        repair
        for one in made
        if one.script.grounded
        for repair in repairs(one.draft())
        if repair.mistake.answer is not None and repair.mistake.answer.mistake_kind in kinds
    ]
    if not found:
        return "-"
    share = sum(repair.answer is not None and not repair.abandoned for repair in found) / len(found)
    return f"{100 * share:.0f} %"


def _guessed(made: Sequence[Trajectory]) -> str:
    """Of the first places looked into for something hidden, the share where it was; and what chance would give."""
    found = [guess for one in made if one.script.grounded and (guess := _first_guess(one)) is not None]
    if not found:
        return "-"
    right, chance = (sum(column) / len(found) for column in zip(*found, strict=True))
    return f"{100 * right:.0f} % of {len(found)}; chance {100 * chance:.0f} %"


def _first_guess(one: Trajectory) -> tuple[bool, float] | None:
    """Whether the first place that is gone to, before the first hidden thing of the solution is found, holds it."""
    world = world_of(one.script)
    hidden = hidden_names(world).places_of
    solution = one.script.rulebook.solution if one.script.rulebook else ()
    named = (value for step in solution for value in _values(world, step) if value in hidden)
    thing = next(named, None)
    if thing is None or mentions(one.script.introduction, thing):
        return None
    searched = frozenset[str]().union(*hidden.values())
    places = next(
        values
        for action in one.script.actions
        for values in action.parameters.values()
        if hidden[thing] & {*values} and searched >= {*values}
    )
    for turn, answer in pairwise(one.turns):
        if isinstance(turn, PlayerTurn) and isinstance(answer, DungeonMasterTurn) and not answer.flagged:
            gone = [value for value in _values(world, turn.action) if value in places]
            if gone:
                return gone[0] in hidden[thing], 1 / (len(places) - 1)
            if mentions(answer.observation, thing):
                return None
    return None


def _values(world: World, action: str) -> tuple[str, ...]:
    read = world.read(action)
    return (*read[1].values(),) if read else ()


if __name__ == "__main__":
    main()
