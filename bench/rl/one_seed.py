"""One seed: a base is tuned on plays, a hundred updates are made in the worlds of these plays, and both are measured."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import orjson

if TYPE_CHECKING:
    from bench.ablation.evaluation import Start

T = TypeVar("T")

STEPS = 8
"""Actions of a play from which is learned; a right way takes four or five."""
_MOST_STEPS = 6_000
"""Of a pretraining."""


class Sizes(NamedTuple):
    """What a seed does."""

    updates: int
    groups: int
    """Worlds in each update."""
    plays: int
    """Of each of these worlds."""
    rate: float
    """Learning rate."""
    worlds: int
    """Held-out ones of the endpoint; half as many of each other start."""
    tokens: int
    """With loss, of the tuning."""


def one_seed(seed: int, *, results: Path, models: Path, sizes: Sizes) -> bool:
    """Measure a seed, but where that is done already; whether it was not. Its models are kept."""
    from bench.ablation.evaluation import kinds_of, measured, write_starts
    from bench.ablation.tuning import tuned
    from bench.ablation.variants import VARIANTS

    path, work = results / f"seed-{seed:02d}.json", models / f"seed-{seed:02d}"
    if path.exists():
        return False
    for folder in (results, work):
        folder.mkdir(parents=True, exist_ok=True)
    base = pretrained_base(work, seed)
    before, after = work / "tuned", work / "updated"
    for old in (before, after):
        shutil.rmtree(old, ignore_errors=True)
    training = tuned(VARIANTS[0], work / "data.jsonl", work / "base", before, seed=seed, tokens=sizes.tokens)
    updates = updated(before, work / "data.jsonl", after, seed=seed, sizes=sizes)
    write_starts(work, kinds_of(sizes.worlds))
    which = starts(sizes.worlds)
    whole = {
        "seed": seed,
        "sizes": sizes._asdict(),
        "base": base,
        "training": training,
        "before": {"starts": measured(before, work, which, seed=seed)},
        "after": {"starts": measured(after, work, which, seed=seed)},
        "updates": updates,
    }
    temporary = path.with_suffix(".part")
    temporary.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2))
    temporary.replace(path)
    return True


def pretrained_base(work: Path, seed: int) -> dict[str, float]:
    """Pretrain the base in this folder, unless that is done; what came of it."""
    from bench.ablation.base import pretrained
    from bench.ablation.experiments import EXPERIMENTS

    told, bring = work / "base.json", EXPERIMENTS["ablation"]
    if not told.exists():
        base = pretrained(work / "base", bring.draw, bring.names, seed=seed, most=_MOST_STEPS)
        told.write_bytes(orjson.dumps({"look_up": base.look_up, "steps": base.steps}))
    return orjson.loads(told.read_bytes())


def starts(worlds: int) -> "tuple[Start, ...]":
    """The first one is the endpoint: how the policy is played while it learns, in worlds that it has not seen."""
    from bench.ablation.evaluation import Start

    return (
        Start("clean, T = 1", "worlds", "clean", worlds, temperature=1.0),
        Start("mistake", "mistakes", "mistake", worlds // 2),
    )


def updated(
    tuned: Path, run: Path, output: Path, *, seed: int, sizes: Sizes, start: str = "clean"
) -> list[dict[str, float]]:
    """Update the tuned model in the worlds of this run, from this start, and save it; what each update saw."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from bench.rl.rollouts import play
    from bench.rl.updating import update
    from refinesynth.environments import GroundedEnvironment, read_worlds

    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
    torch.set_num_threads(1)
    tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(tuned)
    model: Any = cast("Any", AutoModelForCausalLM).from_pretrained(tuned)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=sizes.rate, betas=(0.9, 0.95), weight_decay=0.0)
    named = drawn(list(read_worlds(run, start)), seed)
    found: list[dict[str, float]] = []
    for number in range(sizes.updates):
        chosen = [next(named) for _ in range(sizes.groups)]
        worlds = [GroundedEnvironment(one.script, steps=STEPS) for one in chosen for _ in range(sizes.plays)]
        for world, one in zip(worlds, (one for one in chosen for _ in range(sizes.plays)), strict=True):
            world.reset(before=one.before)
        rollouts = play(model, tokenizer, worlds)
        groups = [rollouts[at : at + sizes.plays] for at in range(0, len(rollouts), sizes.plays)]
        made = update(model, optimizer, groups)
        found.append(
            {
                "success": 100 * sum(one.world.success for one in rollouts) / len(rollouts),
                "refused": 100 * sum(world.mistakes for world in worlds) / sum(world.taken for world in worlds),
                **made._asdict(),
            }
        )
        if number % 10 == 9:
            print(f"seed {seed}, update {number + 1}: {found[-1]}", file=sys.stderr, flush=True)
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    return found


def drawn(worlds: Sequence[T], seed: int) -> Iterator[T]:
    """Without end: each once in an order that the seed decides, then in another one."""
    rng = Random(seed)
    while True:
        yield from rng.sample(worlds, len(worlds))
