"""The rounds of one seed."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from bench.ablation.variants import Records

ARMS = ("own plays", "teacher's plays alone")
"""What the rounds add to the teacher's plays: the first one's own, or more of the teacher's."""


def one_seed(seed: int, *, results: Path, rounds: int, worlds: int, scripts: int, tokens: int, steps: int) -> int:
    """Tune and measure every round of both arms, but what is measured already; how many models these were."""
    from bench.ablation.base import pretrained
    from bench.ablation.evaluation import Start, kinds_of, measured, write_starts
    from bench.ablation.experiments import EXPERIMENTS
    from bench.ablation.tuning import tuned
    from bench.ablation.variants import VARIANTS, Variant
    from bench.rounds.playing import play_scripts
    from refinesynth.trajectory import Trajectory

    folder, bring = results / f"seed-{seed:02d}", EXPERIMENTS["ablation"]
    every = [(ARMS[0], 0), *((arm, at) for arm in ARMS for at in range(1, rounds + 1))]
    missing = [(arm, at) for arm, at in every if not _file(folder, arm, at).exists()]
    if not missing:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    starts = (
        Start("mistake", "mistakes", "mistake", worlds),
        Start("clean", "worlds", "clean", worlds),
        Start("clean, T = 1", "worlds", "clean", worlds, temperature=1.0),
    )
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        base = pretrained(work / "base", bring.draw, bring.names, seed=seed, most=steps).folder
        write_starts(work, kinds_of(worlds))
        for arm, at in missing:
            own = _own(folder, arm, at)
            variant = Variant(arm, mixed(own, VARIANTS[0].records))
            training = tuned(variant, work / "data.jsonl", base, work / "model", seed=seed, tokens=tokens * (at + 1))
            whole = {
                "arm": arm,
                "round": at,
                "seed": seed,
                "own plays": len(own),
                "mistakes in them": sum(len(Trajectory.model_validate(one).mistakes()) for one in own),
                "training": training,
                "starts": measured(work / "model", work, starts, seed=seed),
            }
            if arm == ARMS[0] and at < rounds:
                names = [f"seed {seed} round {at} world {number}" for number in range(scripts)]
                played = play_scripts(work / "model", names, work / f"round-{at}", seed=seed)
                played.replace(folder / f"round-{at + 1}.jsonl")
            temporary = _file(folder, arm, at).with_suffix(".part")
            temporary.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2))
            temporary.replace(_file(folder, arm, at))
            shutil.rmtree(work / "model")
            print(f"seed {seed}, {arm}, round {at}: done", file=sys.stderr, flush=True)
    return len(missing)


def _own(folder: Path, arm: str, at: int) -> list[dict[str, Any]]:
    """What the arm's models played in the rounds before."""
    if arm != ARMS[0]:
        return []
    lines = chain.from_iterable((folder / f"round-{one}.jsonl").read_bytes().splitlines() for one in range(1, at + 1))
    return [orjson.loads(line) for line in lines]


def mixed(own: list[dict[str, Any]], teachers: "Records") -> "Records":
    """By turns, and the teacher's when the others are at their end."""

    def records(seed: int) -> Iterator[dict[str, Any]]:
        for mine, theirs in zip_longest(own, teachers(seed)):
            if mine is not None:
                yield mine
            yield theirs

    return records


def _file(folder: Path, arm: str, at: int) -> Path:
    return folder / f"{'own' if arm == ARMS[0] else 'teacher'}-{at}.json"
