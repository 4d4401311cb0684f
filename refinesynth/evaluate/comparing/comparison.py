"""From folders of logs to what there is to say about them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from refinesynth.errors import InputError
from refinesynth.evaluate.comparing.cells import Comparison
from refinesynth.evaluate.comparing.published import INSTANCES
from refinesynth.evaluate.comparing.reading import Played, read_evaluation
from refinesynth.evaluate.comparing.tables import tables

_PUBLISHED_WITH = {"compat": ("agentboard",), "steps": ("30",), "reflexion": ("0", "1"), "temperature": ("0.0",)}


def compare(folders: Sequence[Path], *, paper: bool = False) -> Comparison:
    """Read evaluations, at least one, and compare each with the first; `paper` puts the published rows in, and warns of
    what does not compare with them.

    Raises:
        InputError: A folder is none, is given twice, holds no logs, or one that cannot be read or used.
    """
    paths = [folder.resolve() for folder in folders]
    if again := next((str(path) for path in paths if paths.count(path) > 1), None):
        raise InputError(f"{again!r} is given more than once; give each folder once")
    names = [path.name if [p.name for p in paths].count(path.name) == 1 else str(path) for path in paths]
    read = {name: read_evaluation(path) for name, path in zip(names, folders, strict=True)}
    warnings = [f"{name}: {said}" for name, tasks in read.items() for said in _remarks(tasks, paper=paper)]
    played = {name: [one for one in tasks if one.ids] for name, tasks in read.items()}
    for name in names[1:]:
        warnings += _unlike(names[0], played[names[0]], name, played[name])
    models = {name: ", ".join(sorted({one.model for one in tasks})) for name, tasks in played.items()}
    return Comparison(models, tables(played, paper=paper), warnings)


def _remarks(tasks: Sequence[Played], *, paper: bool) -> Iterator[str]:
    """What to know about one evaluation."""
    if len(models := sorted({one.model for one in tasks})) > 1:
        yield f"several models in one folder: {', '.join(models)}"
    for one in tasks:
        yield from (f"{one.task}: {said}" for said in one.remarks)
        for name, usual in _PUBLISHED_WITH.items() if paper and one.benchmark in INSTANCES else ():
            if (value := one.settings.get(name, usual[0])) not in usual:
                yield f"{one.task}: {name} is {value}; published scores are with {usual[0]}"


def _unlike(first: str, mine: Sequence[Played], second: str, theirs: Sequence[Played]) -> Iterator[str]:
    """What makes two evaluations hard to compare."""
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
