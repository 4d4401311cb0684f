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
    Cell,
    Change,
    Comparison,
    Estimate,
    MeanAndDeviation,
    Number,
    Pair,
    PValue,
    Share,
    Table,
    main_table,
)

Parts = Sequence[tuple[float, Floats]]
"""Weight of each task with one figure per instance; a single task has the weight 1."""

SEED = 20_252_025
_LEVEL = 0.95
_RESAMPLES = 10_000
_SIGN_DRAWS = 20_000
_MAX_ENUMERATED = 16
"""Most differing instances for which all signs are enumerated."""
_MAX_DRAWS = 1_000_000
"""Most random numbers drawn at a time, which bounds memory."""
_TOLERANCE = 1e-12
"""Tolerance of equal sums."""


def estimate(parts: Parts) -> Estimate:
    """Weighted mean with its percentile bootstrap interval; instances are drawn within each task.

    Percentile intervals are too narrow for few instances: with 20 instances they cover about 93 % instead of 95 %.
    """
    mean = sum(weight * float(values.mean()) for weight, values in parts)
    if all(np.ptp(values) == 0 for _, values in parts):
        return Estimate(mean)
    generator = np.random.default_rng(SEED)
    means = sum(weight * _bootstrap_means(values, generator) for weight, values in parts)
    low, high = np.quantile(means, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Estimate(mean, float(low), float(high))


def _bootstrap_means(values: Floats, generator: np.random.Generator) -> Floats:
    rows = max(1, _MAX_DRAWS // len(values))
    chunks = [min(rows, _RESAMPLES - start) for start in range(0, _RESAMPLES, rows)]
    return np.concatenate(
        [values[generator.integers(len(values), size=(chunk, len(values)))].mean(axis=1) for chunk in chunks]
    )


def sign_test(parts: Parts) -> PValue:
    """Paired two-sided test of differences per instance: probability of a weighted mean as far from 0 under random signs.

    Exact if all nonzero differences have one size, as for success in one epoch (McNemar's test), or at most 16 are nonzero.
    Otherwise estimated from 20,000 draws of signs, and at least 1 / 20,001.
    """
    differences = np.concatenate([weight / len(values) * values for weight, values in parts])
    nonzero = differences[np.abs(differences) > _TOLERANCE]
    if not len(nonzero):
        return PValue(1.0, "no differences")
    sizes = np.abs(nonzero)
    if np.allclose(sizes, sizes[0], rtol=1e-9, atol=0):
        fewer = min(int((nonzero > 0).sum()), int((nonzero < 0).sum()))
        tail = sum(math.comb(len(nonzero), wins) for wins in range(fewer + 1))
        return PValue(min(1.0, 2 * tail / 2 ** len(nonzero)), "McNemar, exact")
    threshold = abs(float(nonzero.sum())) - _TOLERANCE
    if len(nonzero) <= _MAX_ENUMERATED:
        signs = np.array(list(product((1.0, -1.0), repeat=len(nonzero))))
        return PValue(float((np.abs(signs @ nonzero) >= threshold).mean()), "sign flips, exact")
    generator, extreme, rows = np.random.default_rng(SEED), 0, max(1, _MAX_DRAWS // len(nonzero))
    for start in range(0, _SIGN_DRAWS, rows):
        signs = generator.integers(2, size=(min(rows, _SIGN_DRAWS - start), len(nonzero))) * 2.0 - 1
        extreme += int((np.abs(signs @ nonzero) >= threshold).sum())
    return PValue((extreme + 1) / (_SIGN_DRAWS + 1), "sign flips, drawn")


def mean_and_deviation(values: Sequence[float] | Floats) -> MeanAndDeviation:
    array = np.asarray(values, dtype=np.float64)
    sample = float(array.std(ddof=1)) if len(array) > 1 else None
    return MeanAndDeviation(float(array.mean()), float(array.std()), sample)


Evaluations = Mapping[str, Sequence[LoggedEvaluation]]
"""Name to the tasks of that evaluation."""
Rows = Iterator[tuple[Cell, ...]]
_CORE = ("success", "progress")
_KEYS = ("task", "evaluation")
_REPAIRED = "repaired"


def tables(evaluations: Evaluations, *, paper: bool) -> list[Table]:
    """All tables that have rows. Unfinished tasks have rows only in `scores`, without scores."""
    complete = {name: [log for log in tasks if not log.missing] for name, tasks in evaluations.items()}
    of_complete = (_other_measures, _differences, _levels, _grid, _perturbations, _behaviour)
    results = (
        _main_scores(evaluations, complete, paper=paper),
        _scores(evaluations),
        *(make_table(complete) for make_table in of_complete),
    )
    return [table for table in results if table.rows]


def _main_scores(evaluations: Evaluations, complete: Evaluations, *, paper: bool) -> Table:
    own_rows: dict[str, dict[str, Pair]] = {}
    notes = [
        f"{name} is unfinished: {', '.join(unfinished)}"
        for name, tasks in evaluations.items()
        if (unfinished := [log.task for log in tasks if log.missing and log.task in INSTANCES])
    ]
    for name, tasks in complete.items():
        published = [log for log in tasks if log.task in INSTANCES]
        if published:
            own_rows[name] = {
                log.task: Pair(*(float(log.means(measure).mean()) for measure in _CORE)) for log in published
            }
        if partial := [_instance_mismatch(log) for log in published if _instance_mismatch(log)]:
            notes.append(f"{name} does not compare with published figures: instances are {', '.join(partial)}")
    table = main_table(own_rows, paper=paper)
    return replace(table, notes=[*table.notes, *notes])


def _instance_mismatch(log: LoggedEvaluation) -> str:
    """`babyai 5 of 112` if the number differs from the paper's."""
    return "" if len(log.ids) == INSTANCES[log.task] else f"{log.task} {len(log.ids)} of {INSTANCES[log.task]}"


def _by_task(evaluations: Evaluations) -> Iterator[tuple[str, LoggedEvaluation]]:
    for task in dict.fromkeys(log.task for tasks in evaluations.values() for log in tasks):
        yield from ((name, log) for name, tasks in evaluations.items() for log in tasks if log.task == task)


def _scores(evaluations: Evaluations) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, log in _by_task(evaluations):
        instances = len(log.ids) if len(log.ids) == log.total else f"{len(log.ids)} of {log.total}"
        if log.missing:
            rows.append((log.task, name, f"{instances}, unfinished", NOTHING, NOTHING))
        else:
            rows.append((log.task, name, instances, *(estimate([(1.0, log.means(measure))]) for measure in _CORE)))
    for name, tasks in evaluations.items():
        held_out = {log.task: log for log in tasks if log.task in HELD_OUT and not log.missing}
        if held_out.keys() == set(HELD_OUT):
            is_partial = any(map(_instance_mismatch, held_out.values()))
            scores = (
                estimate(weighted({task: held_out[task].means(measure) for task in HELD_OUT})) for measure in _CORE
            )
            rows.append((HELD_OUT_TASK, name, "partial" if is_partial else "all", *scores))
    notes = ["[-]: all instances gave the same, so there is no interval"]
    if any(log.missing for tasks in evaluations.values() for log in tasks):
        notes.append(
            "unfinished: the episodes so far are mostly quick successes; the same `evaluate` command plays the others"
        )
    return Table("scores", "Scores in %, with 95 % intervals", (*_KEYS, "instances", *_CORE), 2, rows, notes)


def weighted(figures: Mapping[str, Floats]) -> Parts:
    """Figures of the held-out tasks with the paper's weights, independent of the number of instances."""
    return [(WEIGHTS[task], figures[task]) for task in HELD_OUT]


def _other_measures(evaluations: Evaluations) -> Table:
    rows = [
        (log.task, name, measure, estimate([(1.0, log.means(measure))]))
        for name, log in _by_task(evaluations)
        for measure in log.measures
        if measure not in _CORE
    ]
    return Table("further", "Further measures in %, with 95 % intervals", (*_KEYS, "measure", "mean"), 3, rows)


def _levels(evaluations: Evaluations) -> Table:
    """Scores by level, for groups of several levels."""
    levels = [
        (log, name, f"{group} {cell}", mask)
        for name, log in _by_task(evaluations)
        for group, cells in log.cells().items()
        if len(cells) > 1
        for cell, mask in cells.items()
    ]
    measures = (*_CORE, *([_REPAIRED] if any(_REPAIRED in log.measures for log, *_ in levels) else []))
    rows = [
        (
            log.task,
            name,
            level,
            int(mask.sum()),
            *(estimate([(1.0, log.means(key)[mask])]) if key in log.measures else NOTHING for key in measures),
        )
        for log, name, level, mask in levels
    ]
    columns = (*_KEYS, "level", "instances", *measures)
    return Table("levels", "Scores by level in %, with 95 % intervals", columns, 4, rows)


def _grid(evaluations: Evaluations) -> Table:
    """Repairs by the kind of the mistake and its position."""
    rows: list[tuple[Cell, ...]] = []
    for name, log in _by_task(evaluations):
        cells = log.cells()
        if _REPAIRED not in log.measures or not cells.keys() >= {"kind", "position"}:
            continue
        repaired = log.means(_REPAIRED)
        for kind, mask in cells["kind"].items():
            masks = (mask & cells["position"].get(third, np.zeros(len(mask), bool)) for third in THIRDS)
            shares = (Share(float(repaired[part].mean()) if part.any() else None) for part in masks)
            rows.append((log.task, name, kind, *shares))
    return Table("grid", "Repaired by kind and position of the mistake, %", (*_KEYS, "kind", *THIRDS), 3, rows)


def _differences(evaluations: Evaluations) -> Table:
    (first, base), *others = evaluations.items()
    rows = [row for name, logs in others for row in _difference_rows(base, name, logs)]
    note = (
        "over the instances that both have; p of a paired two-sided test (McNemar's, or flips of signs), not corrected for "
        "the number of tests"
    )
    title = f"Differences from {first} in points, with 95 % intervals"
    return Table("differences", title, (*_KEYS, "measure", "pairs", "difference", "p"), 3, rows, [note])


def _difference_rows(base: Sequence[LoggedEvaluation], name: str, others: Sequence[LoggedEvaluation]) -> Rows:
    logs = {log.task: log for log in others}
    pairs = {log.task: (log, logs[log.task]) for log in base if log.task in logs and log.shared_ids(logs[log.task])}
    for task, (first, second) in pairs.items():
        for measure in (measure for measure in first.measures if measure in second.measures):
            yield task, name, measure, *_change([(1.0, first.differences(second, measure))])
    if pairs.keys() >= set(HELD_OUT):
        for measure in _CORE:
            parts = weighted({task: first.differences(second, measure) for task, (first, second) in pairs.items()})
            yield HELD_OUT_TASK, name, measure, *_change(parts)


def _change(parts: Parts) -> tuple[Cell, ...]:
    mean = estimate(parts)
    return sum(len(values) for _, values in parts), Change(mean.mean, mean.low, mean.high), sign_test(parts)


def _perturbations(evaluations: Evaluations) -> Table:
    groups: dict[tuple[str, str], list[LoggedEvaluation]] = {}
    for name, log in _by_task(evaluations):
        groups.setdefault((log.task.removesuffix(log.perturb).strip(), name), []).append(log)
    rows: list[tuple[Cell, ...]] = []
    for (task, name), group in groups.items():
        if len(group) > 1:
            variants = ", ".join(log.perturb or "original" for log in group)
            deviations = (mean_and_deviation([float(log.means(measure).mean()) for log in group]) for measure in _CORE)
            rows.append((task, name, variants, *deviations))
    note = "mean ± standard deviation (population, sample) of the scores of the variants that were played"
    return Table("perturbations", "Over perturbations, %", (*_KEYS, "variants", *_CORE), 2, rows, [note])


def _behaviour(evaluations: Evaluations) -> Table:
    rate_names: tuple[str, ...] = ()
    rows: list[tuple[Cell, ...]] = []
    for name, log in _by_task(evaluations):
        rates = log.counts.rates
        rate_names = tuple(rates)
        rows.append((log.task, name, *(Number(rate) if "steps" in key else Share(rate) for key, rate in rates.items())))
    note = (
        "errors and invalid actions: of all turns; repeats: of the turns after a failed one, word for word; recovers: of "
        "stretches of failures; steps: their number, not per cent"
    )
    columns = (*_KEYS, *(key.replace("_", " ") for key in rate_names))
    return Table("behaviour", "How failures are dealt with, %", columns, 2, rows, [note])


_PUBLISHED_WITH = {"steps": "30", "temperature": "0.0"}


def compare(folders: Sequence[Path], *, paper: bool = False) -> Comparison:
    """Read evaluations and compare each with the first; `paper` adds the published rows. Raises InputError."""
    if not folders:
        raise InputError("no evaluation is named; give the folders of one or more")
    paths = [folder.resolve() for folder in folders]
    if repeated := next((str(path) for path in paths if paths.count(path) > 1), None):
        raise InputError(f"{repeated!r} is given more than once; give each folder once")
    names = [path.name if [p.name for p in paths].count(path.name) == 1 else str(path) for path in paths]
    evaluations = {name: read_evaluation(path) for name, path in zip(names, folders, strict=True)}
    warnings = [f"{name}: {remark}" for name, tasks in evaluations.items() for remark in _remarks(tasks, paper=paper)]
    scored = {name: [log for log in tasks if log.ids] for name, tasks in evaluations.items()}
    for name in names[1:]:
        warnings += _mismatches(names[0], scored[names[0]], name, scored[name])
    models = {name: ", ".join(sorted({log.model for log in tasks})) for name, tasks in scored.items()}
    return Comparison(models, tables(scored, paper=paper), warnings)


def _remarks(tasks: Sequence[LoggedEvaluation], *, paper: bool) -> Iterator[str]:
    if len(models := sorted({log.model for log in tasks})) > 1:
        yield f"several models in one folder: {', '.join(models)}"
    for log in tasks:
        yield from (f"{log.task}: {remark}" for remark in log.remarks)
        for name, published in _PUBLISHED_WITH.items() if paper and log.benchmark in INSTANCES else ():
            if (value := log.settings.get(name, published)) != published:
                yield f"{log.task}: {name} is {value}; published scores are with {published}"


def _mismatches(
    first: str, first_logs: Sequence[LoggedEvaluation], second: str, second_logs: Sequence[LoggedEvaluation]
) -> Iterator[str]:
    by_task, tasks = {log.task: log for log in second_logs}, {log.task for log in first_logs}
    for task in sorted(tasks ^ by_task.keys()):
        yield f"{task}: only in {first if task in tasks else second}, so not compared"
    for log in (log for log in first_logs if log.task in by_task):
        match = by_task[log.task]
        shared = log.shared_ids(match)
        unshared = len(set(log.ids) - shared), len(set(match.ids) - shared)
        if any(unshared):
            text = f"{unshared[0]} in {first}, {unshared[1]} in {second}"
            yield f"{log.task}: instances of one alone, which count in its score and not in the difference: {text}"
        for name in sorted(log.settings.keys() | match.settings.keys()):
            first_value, second_value = log.settings.get(name, "unknown"), match.settings.get(name, "unknown")
            if first_value != second_value:
                yield f"{log.task}: {name} is {first_value} in {first} and {second_value} in {second}"
