"""Tables of the units that are measured so far."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench.ablation.report import bases_of, holm, spread_of
from bench.real.report import MARGIN, crossed
from bench.repairs.unit import ARMS, BEFORE, PRICE, TEACHER

Units = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""Experiment and arm, such as `price: clean 0.5`, to seed to what was measured."""

_NAMES = {
    "own": "own mistake",
    "mistake": "imposed mistake",
    "sampled": "clean, T = 1",
    "clean": "clean, greedy",
    "unseen": "unseen names",
}
SEEDS = 6
"""With fewer, intervals stand for worlds rather than for models, and nothing is concluded."""
_ENDS = 10
"""Updates at the beginning and at the end whose plays are told."""


def read_results(folder: Path) -> Units:
    """All units in a folder of results."""
    found: dict[str, dict[int, Any]] = {}
    for path in sorted(folder.glob("*/*.json")):
        one = orjson.loads(path.read_bytes())
        found.setdefault(f"{one['experiment']}: {one['arm']}", {})[one["seed"]] = one
    return found


def marks(unit: Mapping[str, Any], start: str) -> "np.ndarray[Any, Any]":
    """1 or 0 for each world, and NaN where the model made no mistake of its own."""
    return np.array([math.nan if mark == "-" else float(mark) for mark in unit["starts"][start]["success"]])


def difference(units: Units, arm: str, first: str, start: str) -> tuple[float, float, float, float] | None:
    """Success of an arm less that of another, in points: mean, 95 % interval, two-sided p; None without common seeds."""
    ours, others = units.get(arm, {}), units.get(first, {})
    seeds = sorted(set(ours) & set(others))
    grids = [np.array([marks(each[seed], start) for seed in seeds]) for each in (ours, others)]
    return crossed(*grids) if seeds and not any(np.isnan(grid).all() for grid in grids) else None


def _interval(found: tuple[float, float, float, float] | None) -> str:
    return "" if found is None else f"{found[0]:+.1f} [{found[1]:+.1f}, {found[2]:+.1f}]"


def _rate(units: Units, arm: str, start: str) -> str:
    """Mean and spread over seeds, in percent."""
    each = [marks(one, start) for one in units[arm].values()]
    return spread_of([100 * float(np.nanmean(one)) for one in each if not np.isnan(one).all()])


def _mean(units: Units, arm: str, value: Callable[[Any], float]) -> str:
    return f"{np.mean([value(one) for one in units[arm].values()]):,.0f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (heads, ["---", *["---:"] * (len(heads) - 1)], *rows)]


def _counted(units: Units, experiment: str, lines: Sequence[str]) -> str:
    """The lines, and how many units they rest on; the seeds whose base has not learned to look up are told."""
    known = {arm: units[f"{experiment}: {arm}"] for arm in ARMS[experiment] if f"{experiment}: {arm}" in units}
    many = f"{sum(map(len, known.values()))} of {SEEDS * len(ARMS[experiment])} units are measured."
    if any(len(known.get(arm, ())) < SEEDS for arm in ARMS[experiment]):
        many += f" Rows of fewer than {SEEDS} seeds are provisional, and nothing is concluded from them."
    return "\n".join([many, "", *(lines if known else ["Nothing is measured yet."]), "", *bases_of(known)]).strip()


def price(units: Units) -> str:
    """Table of the price: success by the share of clean plays and the number of names."""
    first, clean = f"price: {TEACHER}", f"price: {PRICE[-1].name}"
    rows: list[list[str]] = []
    for arm in (f"price: {one.name}" for one in PRICE):
        if arm not in units:
            continue
        repairing, kept = difference(units, arm, first, "mistake"), difference(units, arm, clean, "sampled")
        both = all(found and found[1] > -MARGIN for found in (repairing, kept))
        rows.append(
            [
                arm.partition(": ")[2],
                str(len(units[arm])),
                _mean(units, arm, lambda one: one["training"]["plays"]),
                "taken out" if arm == clean else _mean(units, arm, lambda one: one["training"]["mistakes"]),
                _rate(units, arm, "mistake"),
                "" if arm == first else _interval(repairing),
                _rate(units, arm, "sampled"),
                "" if arm == first else _interval(difference(units, arm, first, "sampled")),
                "" if arm == clean else _interval(kept),
                "open" if len(units[arm]) < SEEDS else "shown" if both else "not shown",
                *(_rate(units, arm, start) for start in ("unseen", "own", "clean")),
            ]
        )
    heads = ["arm", "seeds", "plays", "mistakes in them", _NAMES["mistake"], f"less {TEACHER}", _NAMES["sampled"]]
    heads += [
        f"less {TEACHER}",
        f"less {PRICE[-1].name}",
        "keeps both",
        *(_NAMES[one] for one in ("unseen", "own", "clean")),
    ]
    return _counted(units, "price", _table(heads, rows))


def gradient(units: Units) -> str:
    """Success after updates from each start, less that before and less that of updates from clean starts."""
    before, clean = f"gradient: {BEFORE}", "gradient: clean"
    rows: list[list[str]] = []
    for arm in (f"gradient: {one}" for one in ARMS["gradient"]):
        if arm not in units:
            continue
        differ = "-"
        if arm != before:
            ends = [
                np.mean([[100 * update["unequal"] for update in part] for part in (of[:_ENDS], of[-_ENDS:])], axis=1)
                for of in (one["updates"] for one in units[arm].values())
            ]
            differ = " → ".join(f"{one:.0f}" for one in np.mean(ends, axis=0))
        rows.append([arm.partition(": ")[2], str(len(units[arm]))])
        for start in ("mistake", "sampled", "own"):
            compared = [difference(units, arm, other, start) for other in (before, clean)]
            rows[-1] += [
                _rate(units, arm, start),
                "" if arm == before else _interval(compared[0]),
                "" if arm in {before, clean} else _interval(compared[1]),
            ]
        rows[-1].append(differ)
    heads = ["start of the updates", "seeds"]
    for start in ("mistake", "sampled", "own"):
        heads += [_NAMES[start], f"less {BEFORE}", "less clean"]
    return _counted(units, "gradient", _table([*heads, "groups whose rewards differ, %"], rows))


def rounds(units: Units) -> str:
    """Success after the last round, and what *repaired* has more than the others."""
    first, others = "rounds: repaired", ("rounds: own plays", f"price: {TEACHER}")
    told = {first: "repaired", others[0]: "own plays", others[1]: "teacher's plays alone"}
    told[f"gradient: {BEFORE}"] = "none (before the rounds)"
    compared = {arm: found for arm in others if (found := difference(units, first, arm, "own"))}
    corrected = dict(zip(compared, holm([one[3] for one in compared.values()]), strict=True))
    rows: list[list[str]] = []
    for arm, name in told.items():
        if arm not in units:
            continue
        erred = [100 * float((~np.isnan(marks(one, "own"))).mean()) for one in units[arm].values()]
        played = [one["played"] for one in units[arm].values() if "played" in one]
        scripts = [one["sizes"]["scripts"] for one in units[arm].values() if "played" in one]
        shares = [100 * sum(at["accepted"] for at in of) / (len(of) * n) for of, n in zip(played, scripts, strict=True)]
        each = [sum(at["mistakes"] for at in of) / max(1, sum(at["accepted"] for at in of)) for of in played]
        rows.append(
            [
                name,
                str(len(units[arm])),
                spread_of(erred),
                _rate(units, arm, "own"),
                _interval(compared.get(arm)),
                f"{corrected[arm]:.3f}" if arm in corrected else "",
                *(_rate(units, arm, start) for start in ("clean", "sampled", "mistake")),
                spread_of(shares),
                f"{np.mean(each):.2f}" if each else "-",
            ]
        )
    heads = ["added in each round", "seeds", "plays that err, %", _NAMES["own"], "repaired less this", "p, Holm"]
    heads += [_NAMES["clean"], _NAMES["sampled"], _NAMES["mistake"], "scripts accepted, %", "mistakes in a play"]
    return _counted(units, "rounds", _table(heads, rows))


TABLES: Mapping[str, Callable[[Units], str]] = {"price": price, "gradient": gradient, "rounds": rounds}
