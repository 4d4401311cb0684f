"""Tables and plot of the units that are measured so far."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench.ablation.report import holm, spread_of
from bench.real.data import ARMS

PAGE = Path(__file__).parents[2] / "docs" / "experiments" / "real-model.md"
STARTS: Mapping[str, Callable[[str], bool]] = {
    "own mistake": lambda kind: kind == "own",
    "imposed": lambda kind: kind.startswith("imposed"),
    "clean": lambda kind: kind == "clean",
    "kept family, imposed": lambda kind: kind == "kept family, imposed",
    "kept family, clean": lambda kind: kind == "kept family, clean",
}
"""The first is the primary endpoint."""
MARGIN = 5.0
"""Points that success from a clean start may be lost and still count as kept."""
_RESAMPLED, _SEED = 10_000, 17

Unit = Mapping[str, Any]


def read_results(folder: Path) -> list[Unit]:
    """All units in a folder of results."""
    return [orjson.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]


def chosen(unit: Unit, start: str) -> list[Mapping[str, Any]]:
    """The plays from a start that count: of own mistakes, those in which one was made."""
    return [one for one in unit["plays"] if STARTS[start](one["kind"]) and one["erred"] is not False]


def _grid(units: Sequence[Unit], start: str, seeds: Sequence[int], worlds: Sequence[str]) -> "np.ndarray[Any, Any]":
    """Success by seed and world, and NaN where the model made no mistake."""
    grid = np.full((len(seeds), len(worlds)), math.nan)
    for unit in units:
        for one in chosen(unit, start) if unit["seed"] in seeds else ():
            grid[seeds.index(unit["seed"]), worlds.index(one["world"])] = one["success"]
    return grid


def difference(units: Sequence[Unit], arm: str, first: str, start: str) -> tuple[float, float, float, float]:
    """Success of an arm less that of another, in points: mean, 95 % interval, two-sided p."""
    by_arm = [[one for one in units if one["arm"] == name] for name in (arm, first)]
    seeds = sorted({one["seed"] for one in by_arm[0]} & {one["seed"] for one in by_arm[1]})
    worlds = sorted({one["world"] for each in by_arm for unit in each for one in chosen(unit, start)})
    if not seeds or not worlds:
        return math.nan, math.nan, math.nan, math.nan
    return crossed(*(_grid(each, start, seeds, worlds) for each in by_arm))


def crossed(ours: "np.ndarray[Any, Any]", others: "np.ndarray[Any, Any]") -> tuple[float, float, float, float]:
    """Difference of the means of two grids, seeds by worlds, in points: mean, 95 % interval, two-sided p.

    A crossed bootstrap: seeds and worlds are drawn independently, the same for both. NaN is not measured.
    """
    rng = np.random.default_rng(_SEED)
    seeds, worlds = len(ours), len(ours[0])
    drawn: list[float] = []
    for _ in range(_RESAMPLED):
        at = np.ix_(rng.integers(seeds, size=seeds), rng.integers(worlds, size=worlds))
        drawn.append(_mean(ours[at]) - _mean(others[at]))
    found = np.array([one for one in drawn if not math.isnan(one)])
    low, high = np.quantile(found, [0.025, 0.975])
    tail = min(float((found <= 0).mean()), float((found >= 0).mean()))
    mean = _mean(ours) - _mean(others)
    return 100 * mean, 100 * float(low), 100 * float(high), min(1.0, max(2 * tail, 2 / _RESAMPLED))


def _mean(grid: "np.ndarray[Any, Any]") -> float:
    known = grid[~np.isnan(grid)]
    return float(known.mean()) if known.size else math.nan


def report(units: Sequence[Unit]) -> str:
    """The primary endpoint with its contrasts, non-inferiority, and all else that was measured."""
    primary, first = next(iter(STARTS)), next(iter(ARMS))
    by_arm = {arm: each for arm in ARMS if (each := [one for one in units if one["arm"] == arm])}
    others = [arm for arm in by_arm if arm != first and ARMS[arm] is not None and first in by_arm]
    rows = {arm: difference(units, arm, first, primary) for arm in others}
    tested = [arm for arm, row in rows.items() if not math.isnan(row[3])]
    corrected = dict(zip(tested, holm([rows[arm][3] for arm in tested]), strict=True))
    lines = [
        f"| arm | seeds | plays that err | success, {primary} | less {first}, points | p, Holm |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for arm, each in by_arm.items():
        erred = [100 * len(chosen(one, primary)) / sum(play["kind"] == "own" for play in one["plays"]) for one in each]
        compared = " | "
        if arm in corrected:
            mean, low, high, _ = rows[arm]
            compared = f"{mean:+.1f} [{low:+.1f}, {high:+.1f}] | {corrected[arm]:.3f}"
        lines.append(f"| {arm} | {len(each)} | {spread_of(erred)} % | {_rate(each, primary)} | {compared} |")
    if "clean" in by_arm and first in by_arm:
        mean, low, high, _ = difference(units, first, "clean", "clean")
        kept = "is shown" if low > -MARGIN else "is not shown"
        lost = f"that no more than {MARGIN:g} points are lost {kept}"
        lines += [
            "",
            f"From a clean start, {first} less *clean*: {mean:+.1f} points [{low:+.1f}, {high:+.1f}]; {lost}.",
        ]
    names = [f"success, {start}" for start in list(STARTS)[1:]]
    lines += ["", f"| arm | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    lines += [
        f"| {arm} | {' | '.join(_rate(each, start) for start in list(STARTS)[1:])} |" for arm, each in by_arm.items()
    ]
    depths = sorted({one["kind"] for unit in units for one in unit["plays"] if one["kind"].startswith("imposed")})
    lines += ["", "From an imposed mistake, by the player's turn at which it is made, %, and behind failures:", ""]
    kinds = [
        *(f"turn {int(depth.split()[-1]) + 1}" for depth in depths),
        "repeats at once",
        "repeats, of turns",
        "stuck",
    ]
    lines += [f"| arm | {' | '.join(kinds)} | trained tokens |", f"| --- |{' ---: |' * (len(kinds) + 1)}"]
    for arm, each in by_arm.items():
        plays = [[one for one in unit["plays"] if one["kind"].startswith("imposed")] for unit in each]
        cells = [
            spread_of([_share([p["success"] for p in of if p["kind"] == depth]) for of in plays]) for depth in depths
        ]
        cells += [spread_of([_share([p["at once"] for p in of if p["at once"] is not None]) for of in plays])]
        cells += [
            spread_of(
                [100 * sum(p["repeated"] for p in of) / max(1, sum(p["after_failure"] for p in of)) for of in plays]
            )
        ]
        cells += [spread_of([_share([p["stuck"] for p in of]) for of in plays])]
        tokens = [one["training"]["tokens"] for one in each if one["training"]]
        lines.append(f"| {arm} | {' | '.join(cells)} | {f'{np.mean(tokens):,.0f}' if tokens else '-'} |")
    devices = sorted({one["device"] for one in units})
    lines += ["", f"Measured on: {'; '.join(devices)}. {len(units)} units."]
    return "\n".join(lines)


def _share(values: Sequence[bool]) -> float:
    return 100 * float(np.mean(values)) if values else math.nan


def _rate(units: Sequence[Unit], start: str) -> str:
    """Mean and spread over seeds, in percent."""
    values = [_share([one["success"] for one in chosen(unit, start)]) for unit in units]
    return spread_of([one for one in values if not math.isnan(one)])


def picture(units: Sequence[Unit], path: Path) -> None:
    """Success from each start by arm: a dot for each seed, and the mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    arms = [arm for arm in ARMS if any(one["arm"] == arm for one in units)]
    shown = list(STARTS)[:3]
    figure: Any = Figure(figsize=(10, 0.4 * len(arms) + 1.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, start in zip(figure.subplots(1, len(shown), sharey=True), shown, strict=True):
        for at, arm in enumerate(arms):
            values = [_share([p["success"] for p in chosen(one, start)]) for one in units if one["arm"] == arm]
            axes.plot(values, [at] * len(values), "o", alpha=0.5, color="C0")
            axes.plot([float(np.nanmean(values))], [at], "|", markersize=16, color="black")
        axes.set(xlim=(0, 100), xlabel=f"success, {start}, %")
        axes.set_yticks(range(len(arms)), arms)
    figure.axes[0].invert_yaxis()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
