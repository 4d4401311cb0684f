"""Comparisons from folders of logs: bootstrap intervals, paired tests and tables, with seeded draws."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from refinesynth.errors import InputError
from refinesynth.evaluate.comparing.eval_logs import THIRDS, Floats, LoggedEvaluation, read_evaluation
from refinesynth.evaluate.comparing.table_values import (
    HELD_OUT,
    HELD_OUT_TASK,
    INSTANCES,
    NOTHING,
    WEIGHTS,
    Bounds,
    Cell,
    Chance,
    Change,
    Comparison,
    Estimate,
    MeanAndDeviation,
    Number,
    Pair,
    Share,
    Table,
    main_table,
)

Parts = Sequence[tuple[float, Floats]]
"""Weight of each task with one figure per instance; a single task has the weight 1."""

SEED = 20_252_025
_LEVEL = 0.95
_RESAMPLED = 10_000
_FLIPPED = 20_000
_ENUMERATED = 16
"""Most differing instances for which all signs are enumerated."""
_AT_ONCE = 1_000_000
"""Most random numbers drawn at a time, which bounds memory."""
_CLOSE = 1e-12
"""Tolerance of equal sums."""


def estimate(parts: Parts) -> Estimate:
    """Weighted mean with its percentile bootstrap interval; instances are drawn within each task.

    Percentile intervals are too narrow for few instances: with 20 instances they cover about 93 % instead of 95 %.
    """
    mean = sum(weight * float(values.mean()) for weight, values in parts)
    if all(np.ptp(values) == 0 for _, values in parts):
        return Estimate(mean)
    generator = np.random.default_rng(SEED)
    means = sum(weight * _resampled(values, generator) for weight, values in parts)
    low, high = np.quantile(means, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Estimate(mean, float(low), float(high))


def _resampled(values: Floats, generator: np.random.Generator) -> Floats:
    rows = max(1, _AT_ONCE // len(values))
    chunks = [min(rows, _RESAMPLED - at) for at in range(0, _RESAMPLED, rows)]
    return np.concatenate(
        [values[generator.integers(len(values), size=(chunk, len(values)))].mean(axis=1) for chunk in chunks]
    )


def sign_test(parts: Parts) -> Chance:
    """Paired two-sided test of differences per instance: probability of a weighted mean as far from 0 under random signs.

    Exact if all nonzero differences have one size, as for success in one epoch (McNemar's test), or at most 16 are nonzero.
    Otherwise estimated from 20,000 draws of signs, and at least 1 / 20,001.
    """
    differences = np.concatenate([weight / len(values) * values for weight, values in parts])
    nonzero = differences[np.abs(differences) > _CLOSE]
    if not len(nonzero):
        return Chance(1.0, "no differences")
    sizes = np.abs(nonzero)
    if np.allclose(sizes, sizes[0], rtol=1e-9, atol=0):
        fewer = min(int((nonzero > 0).sum()), int((nonzero < 0).sum()))
        tail = sum(math.comb(len(nonzero), wins) for wins in range(fewer + 1))
        return Chance(min(1.0, 2 * tail / 2 ** len(nonzero)), "McNemar, exact")
    least = abs(float(nonzero.sum())) - _CLOSE
    if len(nonzero) <= _ENUMERATED:
        signs = np.array(list(product((1.0, -1.0), repeat=len(nonzero))))
        return Chance(float((np.abs(signs @ nonzero) >= least).mean()), "sign flips, exact")
    generator, extreme, rows = np.random.default_rng(SEED), 0, max(1, _AT_ONCE // len(nonzero))
    for at in range(0, _FLIPPED, rows):
        signs = generator.integers(2, size=(min(rows, _FLIPPED - at), len(nonzero))) * 2.0 - 1
        extreme += int((np.abs(signs @ nonzero) >= least).sum())
    return Chance((extreme + 1) / (_FLIPPED + 1), "sign flips, drawn")


def spread(values: Sequence[float] | Floats) -> MeanAndDeviation:
    many = np.asarray(values, dtype=np.float64)
    sample = float(many.std(ddof=1)) if len(many) > 1 else None
    return MeanAndDeviation(float(many.mean()), float(many.std()), sample)


Evaluations = Mapping[str, Sequence[LoggedEvaluation]]
"""Name to the tasks of that evaluation."""
Rows = Iterator[tuple[Cell, ...]]
_CORE = ("success", "progress")
_BY = ("task", "evaluation")
_REPAIRED = "repaired"


def tables(evaluations: Evaluations, *, paper: bool) -> list[Table]:
    """All tables that have rows. Unfinished tasks have rows only in `scores`, with the bounds of their scores."""
    complete = {name: [one for one in tasks if not one.missing] for name, tasks in evaluations.items()}
    results = [
        _main(evaluations, complete, paper=paper),
        _scores(evaluations),
        _further(complete),
        _differences(complete),
    ]
    results += [_levels(complete), _grid(complete), _perturbations(complete), _behaviour(complete)]
    return [table for table in results if table.rows]


def _main(evaluations: Evaluations, whole: Evaluations, *, paper: bool) -> Table:
    ours: dict[str, dict[str, Pair]] = {}
    notes = [
        f"{name} is unfinished: {', '.join(left)}"
        for name, tasks in evaluations.items()
        if (left := [one.task for one in tasks if one.missing and one.task in INSTANCES])
    ]
    for name, tasks in whole.items():
        known = [one for one in tasks if one.task in INSTANCES]
        if known:
            ours[name] = {one.task: Pair(*(float(one.means(measure).mean()) for measure in _CORE)) for one in known}
        if few := [_other_instances(one) for one in known if _other_instances(one)]:
            notes.append(f"{name} does not compare with published figures: instances are {', '.join(few)}")
    table = main_table(ours, paper=paper)
    return replace(table, notes=[*table.notes, *notes])


def _other_instances(one: LoggedEvaluation) -> str:
    """`babyai 5 of 112` if the number differs from the paper's."""
    return "" if len(one.ids) == INSTANCES[one.task] else f"{one.task} {len(one.ids)} of {INSTANCES[one.task]}"


def _by_task(evaluations: Evaluations) -> Iterator[tuple[str, LoggedEvaluation]]:
    for task in dict.fromkeys(one.task for tasks in evaluations.values() for one in tasks):
        yield from ((name, one) for name, tasks in evaluations.items() for one in tasks if one.task == task)


def _scores(evaluations: Evaluations) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, one in _by_task(evaluations):
        instances = len(one.ids) if len(one.ids) == one.of else f"{len(one.ids)} of {one.of}"
        if one.missing:
            rows.append((one.task, name, f"{instances}, unfinished", *map(one.bounds, _CORE)))
        else:
            rows.append((one.task, name, instances, *(estimate([(1.0, one.means(measure))]) for measure in _CORE)))
    for name, tasks in evaluations.items():
        held_out = {one.task: one for one in tasks if one.task in HELD_OUT and not one.missing}
        if held_out.keys() == set(HELD_OUT):
            other = any(map(_other_instances, held_out.values()))
            scores = (
                estimate(weighted({task: held_out[task].means(measure) for task in HELD_OUT})) for measure in _CORE
            )
            rows.append((HELD_OUT_TASK, name, "partial" if other else "all", *scores))
    notes = ["[-]: all instances gave the same, so there is no interval"]
    if any(isinstance(cell, Bounds) for row in rows for cell in row):
        notes.append("unfinished: from the worst case, each missing episode giving 0, to the best, each giving 100")
    return Table("scores", "Scores in %, with 95 % intervals", (*_BY, "instances", *_CORE), 2, rows, notes)


def weighted(figures: Mapping[str, Floats]) -> Parts:
    """Figures of the held-out tasks with the paper's weights, independent of the number of instances."""
    return [(WEIGHTS[task], figures[task]) for task in HELD_OUT]


def _further(evaluations: Evaluations) -> Table:
    rows = [
        (one.task, name, measure, estimate([(1.0, one.means(measure))]))
        for name, one in _by_task(evaluations)
        for measure in one.measures
        if measure not in _CORE
    ]
    return Table("further", "Further measures in %, with 95 % intervals", (*_BY, "measure", "mean"), 3, rows)


def _levels(evaluations: Evaluations) -> Table:
    """Scores by level, for groups of several levels."""
    found = [
        (one, name, f"{group} {cell}", mask)
        for name, one in _by_task(evaluations)
        for group, cells in one.cells().items()
        if len(cells) > 1
        for cell, mask in cells.items()
    ]
    measures = (*_CORE, *([_REPAIRED] if any(_REPAIRED in one.measures for one, *_ in found) else []))
    rows = [
        (
            one.task,
            name,
            level,
            int(mask.sum()),
            *(estimate([(1.0, one.means(each)[mask])]) if each in one.measures else NOTHING for each in measures),
        )
        for one, name, level, mask in found
    ]
    columns = (*_BY, "level", "instances", *measures)
    return Table("levels", "Scores by level in %, with 95 % intervals", columns, 4, rows)


def _grid(evaluations: Evaluations) -> Table:
    """Repairs by the kind of the mistake and its position."""
    rows: list[tuple[Cell, ...]] = []
    for name, one in _by_task(evaluations):
        cells = one.cells()
        if _REPAIRED in one.measures and cells.keys() >= {"kind", "position"}:
            repaired = one.means(_REPAIRED)
            for kind, mask in cells["kind"].items():
                both = [mask & cells["position"].get(each, np.zeros(len(mask), bool)) for each in THIRDS]
                rows.append(
                    (
                        one.task,
                        name,
                        kind,
                        *(Share(float(repaired[each].mean()) if each.any() else None) for each in both),
                    )
                )
    return Table("grid", "Repaired by kind and position of the mistake, %", (*_BY, "kind", *THIRDS), 3, rows)


def _differences(evaluations: Evaluations) -> Table:
    (first, mine), *others = evaluations.items()
    rows = [row for name, theirs in others for row in _against(mine, name, theirs)]
    note = (
        "over the instances that both have; p of a paired two-sided test (McNemar's, or flips of signs), not corrected for "
        "the number of tests"
    )
    title = f"Differences from {first} in points, with 95 % intervals"
    return Table("differences", title, (*_BY, "measure", "pairs", "difference", "p"), 3, rows, [note])


def _against(mine: Sequence[LoggedEvaluation], name: str, theirs: Sequence[LoggedEvaluation]) -> Rows:
    other = {one.task: one for one in theirs}
    pairs = {one.task: (one, other[one.task]) for one in mine if one.task in other and one.shares(other[one.task])}
    for task, (one, two) in pairs.items():
        for measure in (measure for measure in one.measures if measure in two.measures):
            yield task, name, measure, *_change([(1.0, one.differences(two, measure))])
    if pairs.keys() >= set(HELD_OUT):
        for measure in _CORE:
            parts = weighted({task: one.differences(two, measure) for task, (one, two) in pairs.items()})
            yield HELD_OUT_TASK, name, measure, *_change(parts)


def _change(parts: Parts) -> tuple[Cell, ...]:
    mean = estimate(parts)
    return sum(len(values) for _, values in parts), Change(mean.mean, mean.low, mean.high), sign_test(parts)


def _perturbations(evaluations: Evaluations) -> Table:
    groups: dict[tuple[str, str], list[LoggedEvaluation]] = {}
    for name, one in _by_task(evaluations):
        groups.setdefault((one.task.removesuffix(one.perturb).strip(), name), []).append(one)
    rows: list[tuple[Cell, ...]] = []
    for (task, name), group in groups.items():
        if len(group) > 1:
            variants = ", ".join(one.perturb or "original" for one in group)
            spreads = (spread([float(one.means(measure).mean()) for one in group]) for measure in _CORE)
            rows.append((task, name, variants, *spreads))
    note = "mean ± standard deviation (population, sample) of the scores of the variants that were played"
    return Table("perturbations", "Over perturbations, %", (*_BY, "variants", *_CORE), 2, rows, [note])


def _behaviour(evaluations: Evaluations) -> Table:
    heads: tuple[str, ...] = ()
    rows: list[tuple[Cell, ...]] = []
    for name, one in _by_task(evaluations):
        rates = one.counts.rates
        heads = tuple(rates)
        rows.append(
            (one.task, name, *(Number(rate) if "steps" in head else Share(rate) for head, rate in rates.items()))
        )
    note = (
        "errors and invalid actions: of all turns; repeats: of the turns after a failed one, word for word; recovers: of "
        "stretches of failures; steps: their number, not per cent"
    )
    columns = (*_BY, *(head.replace("_", " ") for head in heads))
    return Table("behaviour", "How failures are dealt with, %", columns, 2, rows, [note])


_PUBLISHED_WITH = {"compat": ("agentboard",), "steps": ("30",), "reflexion": ("0", "1"), "temperature": ("0.0",)}


def compare(folders: Sequence[Path], *, paper: bool = False) -> Comparison:
    """Read evaluations and compare each with the first; `paper` adds the published rows. Raises InputError."""
    if not folders:
        raise InputError("no evaluation is named; give the folders of one or more")
    paths = [folder.resolve() for folder in folders]
    if again := next((str(path) for path in paths if paths.count(path) > 1), None):
        raise InputError(f"{again!r} is given more than once; give each folder once")
    names = [path.name if [p.name for p in paths].count(path.name) == 1 else str(path) for path in paths]
    read = {name: read_evaluation(path) for name, path in zip(names, folders, strict=True)}
    warnings = [f"{name}: {remark}" for name, tasks in read.items() for remark in _remarks(tasks, paper=paper)]
    played = {name: [one for one in tasks if one.ids] for name, tasks in read.items()}
    for name in names[1:]:
        warnings += _unlike(names[0], played[names[0]], name, played[name])
    models = {name: ", ".join(sorted({one.model for one in tasks})) for name, tasks in played.items()}
    return Comparison(models, tables(played, paper=paper), warnings)


def _remarks(tasks: Sequence[LoggedEvaluation], *, paper: bool) -> Iterator[str]:
    if len(models := sorted({one.model for one in tasks})) > 1:
        yield f"several models in one folder: {', '.join(models)}"
    for one in tasks:
        yield from (f"{one.task}: {remark}" for remark in one.remarks)
        for name, usual in _PUBLISHED_WITH.items() if paper and one.benchmark in INSTANCES else ():
            if (value := one.settings.get(name, usual[0])) not in usual:
                yield f"{one.task}: {name} is {value}; published scores are with {usual[0]}"


def _unlike(
    first: str, mine: Sequence[LoggedEvaluation], second: str, theirs: Sequence[LoggedEvaluation]
) -> Iterator[str]:
    others, tasks = {one.task: one for one in theirs}, {one.task for one in mine}
    for task in sorted(tasks ^ others.keys()):
        yield f"{task}: only in {first if task in tasks else second}, so not compared"
    for one in (one for one in mine if one.task in others):
        other = others[one.task]
        alone = len(set(one.ids) - set(other.ids)), len(set(other.ids) - set(one.ids))
        if any(alone):
            lone = f"{alone[0]} in {first}, {alone[1]} in {second}"
            yield f"{one.task}: instances of one alone, which count in its score and not in the difference: {lone}"
        for name in sorted(one.settings.keys() | other.settings.keys()):
            was, now = one.settings.get(name, "unknown"), other.settings.get(name, "unknown")
            if was != now:
                yield f"{one.task}: {name} is {was} in {first} and {now} in {second}"
