"""A comparison as tables of text, the same for the terminal, Markdown and HTML. Figures are per cent, with one digit
after the point.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from refinesynth.evaluate.comparing.published import HELD_IN, HELD_OUT, INSTANCES, ROWS, Cells, held_out
from refinesynth.evaluate.comparing.values import (
    HELD_OUT_TASK,
    Change,
    Comparison,
    Estimate,
    Evaluation,
    Spread,
    TaskScores,
)

NOTHING: Final = "-"
_CORE: Final = ("success", "progress")
_RATES: Final = ("format_errors", "invalid_actions", "repeats_failed_action", "recovers", "steps_to_recover")
_BY: Final = ("task", "evaluation")
_LEAST_P: Final = 0.001


@dataclass(frozen=True)
class Table:
    """Columns and rows of plain text; names in it were written by others."""

    title: str
    columns: tuple[str, ...]
    labels: int
    """How many columns, from the left, say what a row is."""
    rows: Sequence[tuple[str, ...]]
    notes: Sequence[str] = ()


def tables(comparison: Comparison, *, paper: bool) -> list[Table]:
    """All tables that have a row; `paper` puts the published rows in, and alone gives them alone."""
    evaluations = comparison.evaluations
    found = [
        _main(evaluations, paper=paper),
        _scores(evaluations),
        _further(evaluations),
        _differences(comparison),
        _epochs(evaluations),
        _perturbed(evaluations),
        _behaviour(evaluations),
    ]
    return [table for table in found if table.rows]


def _main(evaluations: Sequence[Evaluation], *, paper: bool) -> Table:
    """The paper's main table: published rows in its order, then ours, of original wordings."""
    ours: dict[str, Cells] = {}
    for each in evaluations:
        tasks = [one for one in each.tasks if one.task in INSTANCES]
        cells = {one.task: [100 * one.measures[name].mean for name in _CORE] for one in tasks}
        ours |= {each.name: cells} if cells else {}
    published = {f"{name} (published)": (cells, HELD_IN.get(name, ())) for name, cells in ROWS.items()} if paper else {}
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for name, (cells, seen) in {**published, **{name: (cells, ()) for name, cells in ours.items()}}.items():
        total = _pair(held_out(cells)) + "†" * (not set(seen).isdisjoint(HELD_OUT))
        rows.append((name, *(_pair(cells.get(task)) + "†" * (task in seen) for task in INSTANCES), total))
        if needs := [task for task in HELD_OUT if cells.get(task) is None]:
            notes.append(f"{HELD_OUT_TASK} of {name} needs {', '.join(needs)}")
    notes += ["† the method had seen the training split of this task, or of one in the held-out score"] * paper
    return Table("Success / progress, %", ("", *INSTANCES, HELD_OUT_TASK), 1, rows, notes)


def _pair(cell: Sequence[float] | None) -> str:
    return NOTHING if cell is None else f"{cell[0]:.1f}/{cell[1]:.1f}"


def _by_task(evaluations: Sequence[Evaluation]) -> Iterator[tuple[str, str, TaskScores]]:
    """Task, evaluation and scores; what is compared stands together."""
    found = {(one.task, each.name): one for each in evaluations for one in each.tasks}
    for task in dict.fromkeys(task for task, _ in found):
        yield from ((task, each.name, found[task, each.name]) for each in evaluations if (task, each.name) in found)


def _scores(evaluations: Sequence[Evaluation]) -> Table:
    rows = [(task, name, _of(one), *_both(one.measures)) for task, name, one in _by_task(evaluations)]
    notes = [f"[{NOTHING}]: all instances gave the same, so there is no interval"]
    for each in evaluations:
        total, few = each.held_out, ", ".join(f"{task} {some}" for task, some in each.held_out.partial.items())
        if total.needs:
            notes.append(f"{HELD_OUT_TASK} of {each.name} needs {', '.join(total.needs)}")
            continue
        rows.append((HELD_OUT_TASK, each.name, "partial" if few else "all", *_both(total.measures)))
        if few:
            notes.append(f"{HELD_OUT_TASK} of {each.name} is partial, no figure to publish: {few} instances")
    return Table("Scores in %, with 95 % intervals", (*_BY, "instances", *_CORE), 2, rows, notes)


def _both(measures: Mapping[str, Estimate]) -> tuple[str, ...]:
    return tuple(_interval(measures[name]) for name in _CORE)


def _further(evaluations: Sequence[Evaluation]) -> Table:
    rows = [
        (task, name, measure, _interval(found))
        for task, name, one in _by_task(evaluations)
        for measure, found in one.measures.items()
        if measure not in _CORE
    ]
    return Table("Further measures in %, with 95 % intervals", (*_BY, "measure", "mean"), 3, rows)


def _of(task: TaskScores) -> str:
    return str(task.of) if task.instances == task.of else f"{task.instances} of {task.of}"


def _differences(comparison: Comparison) -> Table:
    rows = [
        (one.task, one.second, measure, str(one.instances), *_tested(found))
        for one in comparison.differences
        for measure, found in one.measures.items()
    ]
    first = "".join(one.name for one in comparison.evaluations[:1])
    note = (
        "over the instances that both have; p of a paired two-sided test (McNemar's, or flips of signs), not corrected for "
        "the number of tests"
    )
    columns = (*_BY, "measure", "pairs", "difference", "p")
    return Table(f"Differences from {first} in points, with 95 % intervals", columns, 3, rows, [note])


def _tested(found: Change) -> tuple[str, str]:
    return _interval(found.difference, sign="+"), f"<{_LEAST_P}" if found.p < _LEAST_P else f"{found.p:.3f}"


def _epochs(evaluations: Sequence[Evaluation]) -> Table:
    rows: list[tuple[str, ...]] = []
    for task, name, one in _by_task(evaluations):
        if one.epochs > 1:
            shown = {k: share for k, share in one.pass_hat.items() if k.bit_count() == 1 or k == one.epochs}
            passes = ", ".join(f"{k}: {_percent(share)}" for k, share in shown.items())
            best = "/".join(_percent(one.best[measure]) for measure in _CORE)
            rows.append((task, name, str(one.epochs), *_deviations(one.over_epochs), best, passes))
    notes = [
        "scores: mean ± standard deviation of the epochs' scores (population, sample)",
        "best: of each instance the best epoch, success/progress; pass^k: k epochs of an instance all succeed",
    ]
    return Table("Over epochs, %", (*_BY, "epochs", *_CORE, "best", "pass^k"), 2, rows, notes)


def _perturbed(evaluations: Sequence[Evaluation]) -> Table:
    rows = [
        (task, each.name, ", ".join(one.variants), *_deviations(one.measures))
        for each in evaluations
        for task, one in each.perturbed.items()
    ]
    note = "mean ± standard deviation (population, sample) of the scores of the variants that were played"
    return Table("Over perturbations, %", (*_BY, "variants", *_CORE), 2, rows, [note])


def _behaviour(evaluations: Sequence[Evaluation]) -> Table:
    def rate(name: str, value: float | None) -> str:
        return NOTHING if value is None else f"{value:.1f}" if name == "steps_to_recover" else _percent(value)

    rows = [(task, name, *(rate(key, one.rates[key]) for key in _RATES)) for task, name, one in _by_task(evaluations)]
    note = (
        "errors and invalid actions: of all turns; repeats: of the turns after a failed one, word for word; recovers: of "
        "stretches of failures; steps: their number, not per cent"
    )
    heads = (name.replace("_", " ") for name in _RATES)
    return Table("How failures are dealt with, %", (*_BY, *heads), 2, rows, [note])


def _percent(share: float | None, *, sign: str = "") -> str:
    return NOTHING if share is None else f"{100 * share:{sign}.1f}"


def _interval(found: Estimate, *, sign: str = "") -> str:
    mean, low, high = (_percent(share, sign=sign) for share in (found.mean, found.low, found.high))
    return f"{mean} [{NOTHING if found.low is None else f'{low}, {high}'}]"


def _deviations(spreads: Mapping[str, Spread]) -> tuple[str, ...]:
    found = [spreads[measure] for measure in _CORE]
    return tuple(f"{_percent(one.mean)} ± {_percent(one.population)}, {_percent(one.sample)}" for one in found)
