"""From folders of logs to what there is to say about them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from refinesynth.errors import InputError
from refinesynth.evaluate.comparing.published import HELD_OUT, INSTANCES, WEIGHTS
from refinesynth.evaluate.comparing.reading import Played, read_evaluation
from refinesynth.evaluate.comparing.statistics import Parts, change, estimate, pass_hat, spread
from refinesynth.evaluate.comparing.values import (
    HELD_OUT_TASK,
    Comparison,
    Difference,
    Evaluation,
    HeldOut,
    Perturbed,
    TaskScores,
)

_CORE = ("success", "progress")
_PUBLISHED_WITH = {"compat": ("agentboard",), "steps": ("30",), "reflexion": ("0", "1"), "temperature": ("0.0",)}


def compare(folders: Sequence[Path], *, paper: bool = False) -> Comparison:
    """Read evaluations and compare each with the first; `paper` warns of what published scores do not compare with.

    Raises:
        InputError: A folder is none, is given twice, holds no logs, or one that cannot be read or used.
    """
    paths = [folder.resolve() for folder in folders]
    if again := next((str(path) for path in paths if paths.count(path) > 1), None):
        raise InputError(f"{again!r} is given more than once; give each folder once")
    names = [path.name if [p.name for p in paths].count(path.name) == 1 else str(path) for path in paths]
    played = {name: read_evaluation(path) for name, path in zip(names, folders, strict=True)}
    first = next(iter(played.items()))
    warnings = [f"{name}: {said}" for name, tasks in played.items() for said in _remarks(tasks, paper=paper)]
    others = list(played.items())[1:]
    return Comparison(
        evaluations=tuple(_evaluation(name, tasks) for name, tasks in played.items()),
        differences=tuple(found for other in others for found in _differences(first, other)),
        warnings=(*warnings, *(said for other in others for said in _unlike(first, other))),
    )


def _evaluation(name: str, tasks: Sequence[Played]) -> Evaluation:
    return Evaluation(
        name=name,
        model=", ".join(sorted({one.model for one in tasks})),
        tasks=tuple(map(_scores, tasks)),
        held_out=_held_out(tasks),
        perturbed=_perturbed(tasks),
    )


def _scores(played: Played) -> TaskScores:
    won = played.measures["success"]
    instances, epochs = won.shape
    again = played.measures.items() if epochs > 1 else ()
    passes = {k: pass_hat(won, k) for k in range(2, epochs + 1)}
    return TaskScores(
        task=played.task,
        settings=played.settings,
        instances=instances,
        of=played.of,
        epochs=epochs,
        measures={name: estimate([(1.0, played.means(name))]) for name in played.measures},
        over_epochs={name: spread(np.nanmean(values, axis=0)) for name, values in again},
        best={name: float(np.nanmax(values, axis=1).mean()) for name, values in again},
        pass_hat={k: share for k, share in passes.items() if share is not None},
        rates=played.counts.rates,
    )


def _held_out(tasks: Sequence[Played]) -> HeldOut:
    """Weights are the paper's whatever the number of instances, so that the score means the same."""
    there = {one.task: one for one in tasks}
    if needs := tuple(task for task in HELD_OUT if task not in there):
        return HeldOut(needs=needs)
    played = {task: len(there[task].ids) for task in HELD_OUT}
    parts = {name: [(WEIGHTS[task], there[task].means(name)) for task in HELD_OUT] for name in _CORE}
    return HeldOut(
        partial={task: f"{n} of {INSTANCES[task]}" for task, n in played.items() if n != INSTANCES[task]},
        measures={name: estimate(part) for name, part in parts.items()},
    )


def _perturbed(tasks: Sequence[Played]) -> dict[str, Perturbed]:
    groups: dict[str, list[Played]] = {}
    for one in tasks:
        groups.setdefault(one.task.removesuffix(one.perturb).strip(), []).append(one)
    return {
        task: Perturbed(
            variants=tuple(one.perturb or "original" for one in group),
            measures={name: spread([float(one.means(name).mean()) for one in group]) for name in _CORE},
        )
        for task, group in groups.items()
        if len(group) > 1
    }


_Named = tuple[str, Sequence[Played]]


def _shared(first: _Named, second: _Named) -> Iterator[tuple[Played, Played]]:
    """Tasks that both have."""
    theirs = {one.task: one for one in second[1]}
    return ((one, theirs[one.task]) for one in first[1] if one.task in theirs)


def _differences(first: _Named, second: _Named) -> Iterator[Difference]:
    pairs = {one.task: (one, other) for one, other in _shared(first, second) if not set(one.ids).isdisjoint(other.ids)}
    for task, (one, other) in pairs.items():
        names = [name for name in one.measures if name in other.measures]
        yield _difference(task, first, second, {name: [(1.0, one.differences(other, name))] for name in names})
    if all(task in pairs for task in HELD_OUT):
        weighted = [(WEIGHTS[task], *pairs[task]) for task in HELD_OUT]
        parts = {name: [(weight, one.differences(other, name)) for weight, one, other in weighted] for name in _CORE}
        yield _difference(HELD_OUT_TASK, first, second, parts)


def _difference(task: str, first: _Named, second: _Named, parts: Mapping[str, Parts]) -> Difference:
    instances = sum(len(values) for _, values in parts["success"])
    return Difference(task, first[0], second[0], instances, {name: change(part) for name, part in parts.items()})


def _remarks(tasks: Sequence[Played], *, paper: bool) -> Iterator[str]:
    """What to know about one evaluation."""
    if len(models := sorted({one.model for one in tasks})) > 1:
        yield f"several models in one folder: {', '.join(models)}"
    for one in tasks:
        yield from one.warnings
        for name, usual in _PUBLISHED_WITH.items() if paper and one.benchmark in INSTANCES else ():
            if (value := one.settings.get(name, usual[0])) not in usual:
                yield f"{one.task}: {name} is {value}; published scores are with {usual[0]}"


def _unlike(first: _Named, second: _Named) -> Iterator[str]:
    """What makes two evaluations hard to compare."""
    mine, theirs = ({one.task for one in tasks} for _, tasks in (first, second))
    for task in sorted(mine ^ theirs):
        yield f"{task}: only in {first[0] if task in mine else second[0]}, so not compared"
    for one, other in _shared(first, second):
        alone = len(set(one.ids) - set(other.ids)), len(set(other.ids) - set(one.ids))
        if any(alone):
            lone = f"{alone[0]} in {first[0]}, {alone[1]} in {second[0]}"
            yield f"{one.task}: instances of one alone, which count in its score and not in the difference: {lone}"
        for name in sorted(one.settings.keys() | other.settings.keys()):
            was, now = one.settings.get(name, "unknown"), other.settings.get(name, "unknown")
            if was != now:
                yield f"{one.task}: {name} is {was} in {first[0]} and {now} in {second[0]}"
