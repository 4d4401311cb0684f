"""The table of what is measured so far."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench.ablation.report import difference, successes

_ENDS = 10
"""Updates at the beginning and at the end whose plays are told."""


def report(results: Path) -> str:
    """Success before and after the updates, for each seed and start, and what the updates themselves saw."""
    models: dict[int, Any] = {}
    for path in sorted(results.glob("seed-*.json")):
        one = orjson.loads(path.read_bytes())
        models[one["seed"]] = one
    if not models:
        return "Nothing is measured yet."
    when = {name: {seed: one[name] for seed, one in models.items()} for name in ("before", "after")}
    lines = [
        f"| success, % | {' | '.join(f'seed {seed}' for seed in models)} | difference, points |",
        f"| --- |{' ---: |' * (len(models) + 1)}",
    ]
    for start in next(iter(models.values()))["before"]["starts"]:
        cells = [
            " → ".join(f"{100 * float(successes(when[name][seed], start).mean()):.1f}" for name in when)
            for seed in models
        ]
        mean, low, high, _, _ = difference(when, "after", "before", start)
        lines.append(f"| {start} | {' | '.join(cells)} | {mean:+.1f} [{low:+.1f}, {high:+.1f}] |")
    rows = {
        "success, %": ("success", 1.0),
        "actions refused, %": ("refused", 1.0),
        "groups whose rewards differ, %": ("unequal", 100.0),
    }
    lines += [
        "",
        f"In the plays of the first and of the last {_ENDS} updates:",
        "",
        f"| | {' | '.join(f'seed {seed}' for seed in models)} |",
        f"| --- |{' ---: |' * len(models)}",
    ]
    for told, (key, factor) in rows.items():
        each = [[factor * update[key] for update in one["updates"]] for one in models.values()]
        cells = [f"{np.mean(one[:_ENDS]):.1f} → {np.mean(one[-_ENDS:]):.1f}" for one in each]
        lines.append(f"| {told} | {' | '.join(cells)} |")
    return "\n".join(lines)
