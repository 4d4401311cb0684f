"""All variants of one seed: a base is pretrained, tuned, and what comes of it plays."""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from bench.ablation.evaluation import Start
    from bench.ablation.variants import Variant


def one_seed(
    seed: int, *, experiment: str, results: Path, worlds: int, tokens: int, steps: int, variants: tuple[str, ...] = ()
) -> int:
    """Pretrain a base, tune the variants that are not there yet, let each play; how many these were."""
    from bench.ablation.base import pretrained
    from bench.ablation.evaluation import write_starts
    from bench.ablation.experiments import EXPERIMENTS

    asked = EXPERIMENTS[experiment]
    folder = results / f"seed-{seed:02d}"
    missing = [
        one
        for one in asked.variants(seed)
        if (not variants or one.name in variants) and not _file(folder, one.name).exists()
    ]
    if not missing:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        began = time.process_time()
        base = pretrained(work / "base", asked.draw, asked.names, seed=seed, most=steps, falls_after=asked.falls_after)
        facts = {"look_up": base.look_up, "steps": base.steps, "seconds": time.process_time() - began}
        write_starts(work, asked.kinds(seed, worlds))
        for variant in missing:
            measured = _one_model(variant, work, base.folder, asked.starts(worlds), seed=seed, tokens=tokens)
            whole = {"variant": variant.name, "seed": seed, "worlds": worlds, "base": facts, **measured}
            temporary = _file(folder, variant.name).with_suffix(".part")
            temporary.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2))
            temporary.replace(_file(folder, variant.name))
            print(f"seed {seed}, {variant.name}: {measured['seconds']}", file=sys.stderr, flush=True)
    return len(missing)


def _one_model(
    variant: "Variant", work: Path, base: Path, starts: "tuple[Start, ...]", *, seed: int, tokens: int
) -> dict[str, object]:
    """Tuned and measured; its weights are not kept."""
    from bench.ablation.evaluation import measured
    from bench.ablation.tuning import tuned

    output = work / variant.name.replace(" ", "-")
    began = time.process_time()
    training = tuned(variant, work / "data.jsonl", base, output, seed=seed, tokens=tokens)
    trained = time.process_time()
    played = measured(output, work, starts, seed=seed)
    shutil.rmtree(output)
    seconds = {"training": round(trained - began, 1), "evaluation": round(time.process_time() - trained, 1)}
    return {"training": training, "seconds": seconds, "starts": played}


def _file(folder: Path, variant: str) -> Path:
    return folder / f"{variant.replace(' ', '-')}.json"
