"""Units of the three experiments: an arm of a seed is tuned, plays, and leaves one small file of outcomes.

All arms of a seed have one base model, which knows more names than any arm is tuned on and the planner's words.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from bench.ablation.variants import VARIANTS, Variant, trajectories
from bench.ablation.worlds import EVERY, FRESH, KNOWN, SEEN, Pool, scene_of
from refinesynth.settings.mistakes import Mistakes, spread
from refinesynth.trajectory import Trajectory

RESULTS = Path(__file__).parent / "results"
CACHE = Path(__file__).parent / "cache"
"""Base models and what tuned models played; it may be deleted, and is made again."""


class Sizes(NamedTuple):
    """Sizes of the experiments; results of other sizes do not compare."""

    worlds: int = 128
    """Held-out ones, half as many of *gradient*, and a quarter from a clean start, greedily, and of unseen names."""
    tokens: int = 15_000
    """With loss, of the first tuning; each round adds as many."""
    rounds: int = 3
    scripts: int = 400
    """Played in each round."""
    updates: int = 100
    steps: int = 6_000
    """Of a pretraining at most."""


TEACHER = "clean 0.2"
"""The arm of *price* that is also *teacher's plays alone* of *rounds*: the same plays, and as many tokens."""

PRICE = (
    *(
        Variant(f"clean {share}{named}", trajectories(spread(clean=share), pool))
        for pool, named in ((SEEN, ""), (EVERY, ", 16 names"))
        for share in (0.2, 0.5, 0.8)
    ),
    Variant("without refinement data", trajectories(spread()), {"without_refinement": True}),
)
GRADIENT = {"clean": "clean", "mistakes": "mistakes", "mixed": "mixed:0.5"}
"""Arm to start of the plays from which is learned."""
BEFORE = "before"
"""The model whose updates are measured, and with which the rounds begin."""
REPAIRERS: Mapping[str, str | None] = {"repaired": "planner", "own plays": None}

ARMS: Mapping[str, tuple[str, ...]] = {
    "price": tuple(one.name for one in PRICE),
    "gradient": (BEFORE, *GRADIENT),
    "rounds": tuple(REPAIRERS),
}


def path_of(experiment: str, arm: str, seed: int, results: Path = RESULTS) -> Path:
    return results / experiment / f"{arm.replace(', ', '-').replace(' ', '-')}-{seed}.json"


def run(experiment: str, seed: int, *, results: Path, cache: Path, sizes: Sizes) -> int:
    """Measure the arms of a seed that are not there yet; how many these were."""
    missing = [arm for arm in ARMS[experiment] if not path_of(experiment, arm, seed, results).exists()]
    if not missing:
        return 0
    work = cache / f"seed-{seed:02d}"
    base = base_of(work, seed, sizes.steps)
    for arm in missing:
        with tempfile.TemporaryDirectory() as name:
            began = time.process_time()
            model = Path(name) / "model"
            facts = _MADE[experiment](arm, seed, work, model, sizes)
            trained = time.process_time()
            worlds = sizes.worlds // (2 if experiment == "gradient" else 1)
            outcomes = measured(model, starts(worlds), seed=seed)
        seconds = {"making": round(trained - began, 1), "playing": round(time.process_time() - trained, 1)}
        whole = {"experiment": experiment, "arm": arm, "seed": seed, "sizes": sizes._asdict(), "base": base}
        _write(path_of(experiment, arm, seed, results), whole | {"seconds": seconds, **facts, "starts": outcomes})
        print(f"{experiment}, {arm}, seed {seed}: {seconds}", file=sys.stderr, flush=True)
    return len(missing)


def base_of(work: Path, seed: int, steps: int) -> dict[str, float]:
    """Pretrain the base model of a seed in this folder, unless that is done; what came of it."""
    from bench.ablation.base import pretrained
    from bench.ablation.playing import play
    from refinesynth.rehearsal.phrasing import WORDINGS

    def draw(name: str, mistakes: Mistakes | None, episode: int) -> Trajectory:
        return play(name, scene_of(name, KNOWN), mistakes, episode=episode)

    told = work / "base.json"
    if not told.exists():
        keys = ("going_on", "repairing", "understood_parameter", "understood_place", "understood_logic")
        planners = [one for key in keys for one in WORDINGS[key]]
        began = time.process_time()
        base = pretrained(work / "base", draw, KNOWN.every, seed=seed, most=steps, sentences=planners)
        seconds = round(time.process_time() - began, 1)
        _write(told, {"look_up": base.look_up, "steps": base.steps, "seconds": seconds})
    return orjson.loads(told.read_bytes())


def starts(worlds: int) -> list[dict[str, Any]]:
    """Starts of plays in held-out worlds, which no training has seen; the same for every model."""
    from bench.ablation.playing import play
    from refinesynth.environments.grounded import turns_to_mistake

    def clean(kind: str, number: int, pool: Pool = SEEN) -> Iterator[dict[str, Any]]:
        for at in range(number):
            script = scene_of(f"held out {at}", pool).script
            yield {"kind": kind, "script": orjson.loads(script.to_json()), "before": []}

    def mistaken() -> Iterator[dict[str, Any]]:
        for at in range(worlds):
            name = f"held out {at}"
            played = play(name, scene_of(name), spread(1.0, clean=0), episode=at)
            whole = orjson.loads(played.to_json())
            yield {
                "kind": "mistake",
                "script": whole["script"],
                "before": whole["turns"][: len(turns_to_mistake(played))],
            }

    few = max(1, worlds // 4)
    return [
        *clean("own", worlds),
        *mistaken(),
        *clean("sampled", worlds),
        *clean("clean", few),
        *clean("unseen", few, FRESH),
    ]


def measured(model: Path, begun: Sequence[Mapping[str, Any]], *, seed: int) -> dict[str, dict[str, Any]]:
    """Kind of start to what was measured: `success` of each world in order, `-` where no own mistake was made, and
    refused actions of a play."""
    import torch

    from bench.real.playing import play

    torch.set_num_threads(1)
    outcomes = play(model, begun, seed=seed, device="cpu", dtype=torch.float32, rows=_ROWS)
    found: dict[str, dict[str, Any]] = {}
    for kind in dict.fromkeys(one["kind"] for one in outcomes):
        each = [one for one in outcomes if one["kind"] == kind]
        found[kind] = {
            "success": "".join("-" if one["erred"] is False else str(int(one["success"])) for one in each),
            "refused": round(sum(one["refused"] + one["format_errors"] for one in each) / len(each), 2),
            "stuck": round(100 * sum(one["stuck"] for one in each) / len(each), 1),
        }
    return found


_ROWS = 128
"""Plays at once."""


def _priced(arm: str, seed: int, work: Path, model: Path, sizes: Sizes) -> dict[str, Any]:
    variant = next(one for one in PRICE if one.name == arm)
    return {"training": _tuned(variant, seed, work, model, sizes.tokens * (sizes.rounds + 1))}


def _tuned(variant: Variant, seed: int, work: Path, model: Path, tokens: int) -> dict[str, Any]:
    """Tune the base; what it was tuned on."""
    from bench.ablation.tuning import tuned

    data = model.with_suffix(".jsonl")
    told = tuned(variant, data, work / "base", model, seed=seed, tokens=tokens)
    plays = [Trajectory.from_json(line) for line in data.read_bytes().splitlines()]
    return {**told, "mistakes": sum(len(one.mistakes()) for one in plays)}


def _updated(arm: str, seed: int, work: Path, model: Path, sizes: Sizes) -> dict[str, Any]:
    from bench.rl.one_seed import Sizes as Updates
    from bench.rl.one_seed import updated

    tuned = model if arm == BEFORE else model.with_name("tuned")
    training = _tuned(VARIANTS[0], seed, work, tuned, sizes.tokens)
    if arm == BEFORE:
        return {"training": training}
    asked = Updates(sizes.updates, groups=4, plays=4, rate=3e-4, worlds=sizes.worlds, tokens=sizes.tokens)
    told = updated(tuned, tuned.with_suffix(".jsonl"), model, seed=seed, sizes=asked, start=GRADIENT[arm])
    return {"training": training, "updates": told}


def _played(arm: str, seed: int, work: Path, model: Path, sizes: Sizes) -> dict[str, Any]:
    """Play and tune round by round; what was played is kept, so a unit that was interrupted goes on behind it."""
    from bench.rounds.one_seed import mixed
    from bench.rounds.playing import play_scripts

    own: list[dict[str, Any]] = []
    played: list[dict[str, float]] = []
    for at in range(1, sizes.rounds + 1):
        kept = work / f"{arm.replace(' ', '-')}-{at}.jsonl"
        if not kept.exists():
            _tuned(Variant(arm, mixed(own, VARIANTS[0].records)), seed, work, model, sizes.tokens * at)
            names = [f"seed {seed} round {at} world {number}" for number in range(sizes.scripts)]
            lines = play_scripts(model, names, model.with_name(f"run-{at}"), seed=seed, repairer=REPAIRERS[arm])
            Path(shutil.copyfile(lines, kept.with_suffix(".part"))).replace(kept)
            shutil.rmtree(model)
        new = [Trajectory.from_json(line) for line in kept.read_bytes().splitlines()]
        own += [orjson.loads(one.to_json()) for one in new]
        played.append({"accepted": len(new), "mistakes": sum(len(one.mistakes()) for one in new)})
    tokens = sizes.tokens * (sizes.rounds + 1)
    return {
        "played": played,
        "training": _tuned(Variant(arm, mixed(own, VARIANTS[0].records)), seed, work, model, tokens),
    }


_MADE: Mapping[str, Callable[[str, int, Path, Path, Sizes], dict[str, Any]]] = {
    "price": _priced,
    "gradient": _updated,
    "rounds": _played,
}


def _write(path: Path, whole: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2) + b"\n")
    part.replace(path)
