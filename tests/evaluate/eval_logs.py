"""Logs of evaluations, written as Inspect writes them, without any model or environment."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import Any

from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Score

from refinesynth.evaluate.episode_counts import SCORE, Counts

Episodes = Mapping[str, Sequence[Mapping[str, float] | None]]
"""Instance to what each epoch gave; None is an episode that failed."""

COUNTS = Counts(
    turns=10, format_errors=1, refused=2, after_failure=3, repeated=1, failures=2, recovered=1, steps_to_recover=2
)


def scored(*successes: float, progress: float | None = None) -> list[Mapping[str, float]]:
    """Epochs of one instance."""
    return [{"success": one, "progress": one if progress is None else progress} for one in successes]


def flat(won: int, of: int, *, progress: float = 0.5) -> Episodes:
    """One epoch: the first `won` instances succeed, the others come as far as `progress`."""
    return {f"{at:03}": scored(float(at < won), progress=1.0 if at < won else progress) for at in range(of)}


def write_log(
    folder: Path,
    benchmark: str,
    episodes: Episodes,
    *,
    perturb: str = "",
    argument: str = "",
    model: str = "test/model",
    status: str = "success",
    created: str = "2026-11-01T10:00:00+00:00",
    stopped: str = "done",
    levels: Mapping[str, str] | None = None,
    digests: Mapping[str, str] | None = None,
    **settings: object,
) -> Path:
    """Write one log; `settings` stand beside steps, or take its place; `levels` by instance."""
    about = {
        "benchmark": benchmark,
        "argument": argument,
        "perturb": perturb,
        "steps": 30,
        "instances": len(episodes),
        **settings,
    }
    most = max(map(len, episodes.values()), default=1)
    log: Any = EvalLog.model_validate(
        {
            "status": status,
            "eval": EvalSpec(
                created=created,
                task=f"refinesynth/{benchmark}",
                dataset=EvalDataset(samples=len(episodes), sample_ids=list(episodes)),
                model=model,
                config=EvalConfig(epochs=most),
                metadata={"refinesynth": about},
            ),
            "samples": [
                _sample(
                    instance,
                    epoch,
                    value,
                    stopped,
                    level=(levels or {}).get(instance, "easy"),
                    digest=(digests or {}).get(instance, ""),
                )
                for instance, values in episodes.items()
                for epoch, value in enumerate(values, start=1)
            ],
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{created[:19].replace(':', '-')}_{benchmark}_{perturb or 'P0'}_{len(list(folder.iterdir()))}.eval"
    write_eval_log(log, str(path))
    return path


def _sample(
    instance: str, epoch: int, value: Mapping[str, float] | None, stopped: str, *, level: str, digest: str
) -> EvalSample:
    error = {"message": "the environment died", "traceback": "", "traceback_ansi": ""}
    rates = {name: nan if rate is None else rate for name, rate in COUNTS.rates.items()}
    about = {"counts": asdict(COUNTS), "level": level, "digest": digest, "stopped": stopped, "faults": ["it died"]}
    score = Score(value={**(value or {}), **rates}, metadata=about)
    return EvalSample.model_validate(
        {
            "id": instance,
            "epoch": epoch,
            "input": "Begin.",
            "target": "",
            "output": ModelOutput.from_content("test/model", "done"),
            **({"error": error} if value is None else {"scores": {SCORE: score}}),
        }
    )
