"""Tables and plots of whatever models are measured so far."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from bench.ablation.base import ENOUGH
from refinesynth.evaluate.comparing.comparison import sign_test

_RESAMPLED = 10_000
_SEED = 17

Model = Mapping[str, Any]
Models = Mapping[str, Mapping[int, Model]]
"""Variant to seed to what was measured."""


def read_results(folder: Path) -> Models:
    """All models in a folder of results."""
    found: dict[str, dict[int, Model]] = {}
    for path in sorted(folder.glob("seed-*/*.json")):
        model = orjson.loads(path.read_bytes())
        found.setdefault(model["variant"], {})[model["seed"]] = model
    return found


class Told(NamedTuple):
    """What a report is about."""

    variants: tuple[str, ...]
    """In their order; the others are compared with the first one."""
    primary: str
    """Name of the start whose success is tested."""
    clean: str
    """Name of the start without a mistake."""


def successes(model: Model, start: str) -> np.ndarray[Any, Any]:
    """1 or 0 for each world."""
    return np.array([float(mark) for mark in model["starts"][start]["success"]])


def difference(models: Models, variant: str, first: str, start: str) -> tuple[float, float, float, float, int]:
    """Of success to that of the first variant, in points: mean, 95 % interval, p, and on how many seeds it rests.

    The interval is a cluster bootstrap: seeds are drawn, and worlds within each, paired. The p-value is that of all
    flips of the seeds' signs; with twelve seeds it cannot be below 2 / 4,096.
    """
    ours, others = models.get(variant, {}), models.get(first, {})
    seeds = sorted(set(ours) & set(others))
    if not seeds:
        return math.nan, math.nan, math.nan, math.nan, 0
    worlds: list[Any] = [np.subtract(successes(ours[seed], start), successes(others[seed], start)) for seed in seeds]
    means = np.array([float(one.mean()) for one in worlds])
    rng = np.random.default_rng(_SEED)
    drawn = np.zeros(_RESAMPLED)
    for at, row in enumerate(rng.integers(len(seeds), size=(_RESAMPLED, len(seeds)))):
        drawn[at] = np.mean([rng.choice(worlds[one], size=len(worlds[one])).mean() for one in row])
    low, high = np.quantile(drawn, [0.025, 0.975])
    return 100 * float(means.mean()), 100 * float(low), 100 * float(high), sign_test([(1.0, means)]).p, len(seeds)


def holm(values: Sequence[float]) -> list[float]:
    """P-values corrected for their number (Holm, 1979)."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    corrected, highest = [math.nan] * len(values), 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[at]))
        corrected[at] = highest
    return corrected


def report(models: Models, told: Told) -> str:
    """The primary endpoint with its contrasts, and all else that was measured."""
    first, *others = told.variants
    rows = [(name, *difference(models, name, first, told.primary)) for name in others if name in models]
    measured = [row for row in rows if row[5]]
    corrected = dict(zip((row[0] for row in measured), holm([row[4] for row in measured]), strict=True))
    lines = [
        f"| variant | seeds | success, {told.primary} | difference from {first}, points | p, Holm |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in _measured(models, told):
        each = [100 * successes(model, told.primary).mean() for model in models[name].values()]
        contrast = next((row for row in measured if row[0] == name), None)
        compared = (
            f"{contrast[1]:+.1f} [{contrast[2]:+.1f}, {contrast[3]:+.1f}] | {corrected[name]:.3f}"
            if contrast
            else " | "
        )
        lines.append(f"| {name} | {len(each)} | {spread_of(each)} | {compared} |")
    return "\n".join([*lines, "", *bases_of(models), *_others(models, told)])


def bases_of(models: Models) -> list[str]:
    """The seeds whose base model did not learn to look up what a world says: they are kept, and told."""
    bases = {seed: model["base"] for each in models.values() for seed, model in each.items()}
    short = {seed: base for seed, base in sorted(bases.items()) if base["look_up"] < ENOUGH}
    if not short:
        return []
    told = ", ".join(f"seed {seed} {100 * base['look_up']:.0f} %" for seed, base in short.items())
    return [f"Whose base plays fewer than {100 * ENOUGH:.0f} % of held-out plays right: {told}.", ""]


def _measured(models: Models, told: Told) -> list[str]:
    return [name for name in told.variants if name in models]


def _others(models: Models, told: Told) -> list[str]:
    names = list(next(iter(next(iter(models.values())).values()))["starts"]) if models else []
    lines = [
        "Success from each start, %:",
        "",
        f"| variant | {' | '.join(names)} |",
        f"| --- |{' ---: |' * len(names)}",
    ]
    for variant in _measured(models, told):
        cells = [
            spread_of([100 * successes(model, name).mean() for model in models[variant].values()]) for name in names
        ]
        lines.append(f"| {variant} | {' | '.join(cells)} |")
    kinds: dict[str, tuple[str, str]] = {
        "progress": (told.primary, "progress"),
        "repaired within 3 turns": (told.primary, "soon"),
        "repeats what failed": (told.primary, "repeated"),
        "refused, of its turns": (told.primary, "refused"),
        "refused, clean start": (told.clean, "refused"),
    }
    lines += [
        "",
        f"From the start *{told.primary}*, greedily, and beside it *{told.clean}*, %:",
        "",
        f"| variant | {' | '.join(kinds)} |",
        f"| --- |{' ---: |' * len(kinds)}",
    ]
    for variant in _measured(models, told):
        every = [model["starts"] for model in models[variant].values()]
        cells = [
            spread_of([value for one in every if (value := one[start][key]) is not None])
            for start, key in kinds.values()
        ]
        lines.append(f"| {variant} | {' | '.join(cells)} |")
    return lines


def spread_of(values: Sequence[float]) -> str:
    """Mean and standard deviation over seeds."""
    if not values:
        return "-"
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def picture(models: Models, told: Told, path: Path) -> None:
    """Success from the primary start, a dot for each seed, by variant."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = _measured(models, told)
    figure: Any = Figure(figsize=(8, 0.5 * len(shown) + 1.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for at, name in enumerate(shown):
        values = [100 * successes(model, told.primary).mean() for model in models[name].values()]
        axes.plot(values, [at] * len(values), "o", alpha=0.5, color="C0")
        axes.plot([float(np.mean(values))], [at], "|", markersize=18, color="black")
    axes.set_yticks(range(len(shown)), shown)
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel=f"success from the start '{told.primary}', %: each seed, and the mean")
    figure.savefig(path)
