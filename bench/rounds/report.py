"""The table of what is measured so far."""

from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench.ablation.report import difference, spread_of, successes
from bench.rounds.one_seed import ARMS

Models = dict[str, dict[int, dict[int, Any]]]
"""Arm to round to seed to what was measured."""


def read_rounds(results: Path) -> Models:
    """All models in a folder of results."""
    models: Models = {arm: {} for arm in ARMS}
    for path in sorted(results.glob("seed-*/*-*.json")):
        one = orjson.loads(path.read_bytes())
        models[one["arm"]].setdefault(one["round"], {})[one["seed"]] = one
    return models


def report(models: Models) -> str:
    """Success by round and start in both arms, and the difference that is tested: that of the last round."""
    rounds = sorted({at for each in models.values() for at in each})
    if not rounds:
        return "Nothing is measured yet."
    starts = list(next(iter(models[ARMS[0]][rounds[0]].values()))["starts"])
    lines = [
        f"| added to the teacher's plays | round | seeds | {' | '.join(f'success, {one}' for one in starts)} | own plays | mistakes in each |",
        f"| --- | ---: | ---: |{' ---: |' * (len(starts) + 2)}",
    ]
    for arm in ARMS:
        for at in sorted(models[arm]):
            each = list(models[arm][at].values())
            cells = [spread_of([100 * float(successes(one, start).mean()) for one in each]) for start in starts]
            own = [one["own plays"] for one in each]
            made = [one["mistakes in them"] / one["own plays"] for one in each if one["own plays"]]
            more = f"{np.mean(own):.0f} | {np.mean(made):.2f}" if made else "- | -"
            lines.append(f"| {arm if at else '-'} | {at} | {len(each)} | {' | '.join(cells)} | {more} |")
    last = rounds[-1]
    named = {arm: models[arm].get(last, {}) for arm in ARMS}
    mean, low, high, p, seeds = difference(named, ARMS[0], ARMS[1], starts[0])
    lines += [
        "",
        f"Round {last}, *{starts[0]}*, {ARMS[0]} less {ARMS[1]}: {mean:+.1f} points [{low:+.1f}, {high:+.1f}], p = {p:.3f}, {seeds} seeds.",
    ]
    return "\n".join(lines)


def picture(models: Models, path: Path) -> None:
    """Success from an imposed mistake by round: a line for each seed, and the mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(7, 3.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for color, arm in zip(("C0", "C1"), ARMS, strict=True):
        # Both arms begin with the same model.
        each = {0: models[ARMS[0]].get(0, {}), **models[arm]}
        rates = {
            at: {seed: 100 * float(successes(one, "mistake").mean()) for seed, one in of.items()}
            for at, of in sorted(each.items())
        }
        for seed in sorted({seed for of in rates.values() for seed in of}):
            known = [(at, of[seed]) for at, of in rates.items() if seed in of]
            axes.plot(*zip(*known, strict=True), "-", alpha=0.3, color=color)
        means = [(at, float(np.mean(list(of.values())))) for at, of in rates.items() if of]
        axes.plot(*zip(*means, strict=True), "o-", color=color, label=arm)
    axes.set(xlabel="round", ylabel="success from an imposed mistake, %", ylim=(0, None))
    axes.set_xticks(range(max(map(max, filter(None, models.values())), default=0) + 1))
    axes.legend()
    figure.savefig(path)
