"""One unit of the experiment: an arm of a seed is trained, plays, and leaves one small file of outcomes."""

import os
import time
from pathlib import Path
from typing import Any

import orjson

from bench.real.data import ARMS, SIZES, digest_of, read, records_of, write
from refinesynth._version import __version__

RESULTS = Path(__file__).parent / "results"
CACHE = Path(__file__).parent / "cache"
"""Data and trained weights; it may be deleted, and is made again."""

BATCH, LEARNING_RATE, MAX_LENGTH = 2, 2e-4, 2_304
"""Plays per optimizer step; as in the trial before the experiment; tokens, more than the longest play has."""
SETTINGS: dict[str, Any] = {
    "max_length": MAX_LENGTH,
    "tokens_per_pack": MAX_LENGTH,
    "held_out": 0,
    "epochs": 1,
    "batch_size": BATCH,
    "learning_rate": LEARNING_RATE,
    "warmup": 0.05,
    "adam_betas": (0.9, 0.95),
    "gradient_checkpointing": False,
    "evaluate_every": "never",
    "save_every": "never",
    "log_every": 4,
}
"""Of the package's trainer; all weights are trained."""
PRECISION = {"cpu": "fp32", "cuda": "bf16"}
"""bf16 is autocast; few CPUs compute in it."""


def path_of(arm: str, seed: int, size: str, results: Path = RESULTS) -> Path:
    return results / size / f"{arm.replace(' ', '-')}-{seed}.json"


def run(arm: str, seed: int, *, size: str, model: Path, device: str, results: Path = RESULTS) -> dict[str, Any]:
    """Train and play an arm of a seed, write its outcomes, and return them.

    One that is interrupted while it trains goes on from there, and one that was killed behind its training goes on
    with the trained weights.

    Raises:
        KeyboardInterrupt: A signal ended the training.
    """
    from bench.real.playing import play

    sizes, folder = SIZES[size], CACHE / size
    write(folder, seed, sizes)
    asked = ARMS[arm]
    training = None
    tuned = folder / f"{arm.replace(' ', '-')}-{seed}"
    if asked is not None:
        training = _trained(asked.loss_on, records_of(asked, folder, seed), model, tuned, seed=seed, device=device)
    # A unit that was interrupted was trained in an earlier process.
    spent = training.pop("seconds") if training else 0.0
    trained = time.time()
    starts = read(folder / "starts.jsonl.gz")
    outcomes = play(model if asked is None else tuned, starts, seed=seed, device=device)
    whole = {
        "arm": arm,
        "seed": seed,
        "size": sizes._asdict(),
        "version": __version__,
        "model": model.name,
        "starts digest": digest_of(starts),
        "device": _name(device),
        "seconds": {"training": round(spent, 1), "playing": round(time.time() - trained, 1)},
        "processor seconds": round(time.process_time(), 1),
        "training": training,
        "plays": outcomes,
    }
    path = path_of(arm, seed, size, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    lines = orjson.dumps({**whole, "plays": None}, option=orjson.OPT_INDENT_2).removesuffix(b"null\n}")
    part.write_bytes(lines + b"[\n" + b",\n".join(orjson.dumps(one) for one in outcomes) + b"\n]}\n")
    part.replace(path)
    return whole


def _trained(
    loss_on: str, records: list[dict[str, Any]], model: Path, output: Path, *, seed: int, device: str
) -> dict[str, Any]:
    import torch

    from refinesynth.train import Trainer

    if device == "cpu":
        torch.set_num_threads(1)
    settings: dict[str, Any] = {
        **SETTINGS,
        "loss_on": loss_on,
        "seed": seed,
        "precision": PRECISION[device],
        "device": "cpu" if device == "cpu" else "auto",
    }
    began, clock = time.time(), output / "seconds.json"
    before = orjson.loads(clock.read_bytes()) if clock.exists() else 0.0
    result = Trainer(model=model, data=records, output=output, **settings).train()
    spent = before + time.time() - began
    clock.write_bytes(orjson.dumps(spent))
    if result.signal is not None:
        raise KeyboardInterrupt  # a checkpoint is saved, from which the same unit goes on
    lines = [orjson.loads(line) for line in (output / "metrics.jsonl").read_bytes().splitlines()]
    losses = [round(line["loss"], 4) for line in lines if line.get("kind") == "train"]
    counted = orjson.loads((output / "plan.json").read_bytes())["sizes"]["counts"]
    return {
        "seconds": spent,
        "data digest": digest_of(records),
        "loss_on": loss_on,
        "steps": result.steps,
        "tokens": counted["trained_tokens"],
        "tokens read": counted["tokens"],
        "losses": losses,
        "settings": {name: settings[name] for name in ("batch_size", "learning_rate", "precision")},
    }


def _name(device: str) -> str:
    import torch

    if device != "cpu":
        return torch.cuda.get_device_name()
    named = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{named[0].partition(': ')[2] if named else 'cpu'}, {os.environ.get('OMP_NUM_THREADS', '?')} thread"
