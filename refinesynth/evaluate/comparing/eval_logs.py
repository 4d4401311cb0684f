"""Evaluations read from Inspect's logs; only summaries of samples, to bound memory."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from refinesynth.errors import InputError
from refinesynth.evaluate.comparing.table_values import INSTANCES
from refinesynth.evaluate.episode_counts import SCORE, Counts

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalLogInfo, EvalSampleSummary

Floats = NDArray[np.float64]
_REQUIRED = ("success", "progress")
_SETTINGS = ("steps", "user")
THIRDS = ("early", "middle", "late")
"""Positions of a mistake, in their order."""
_RATES = frozenset(Counts().rates)
"""Measures that are computed from summed counts, not as means over episodes."""


@dataclass(frozen=True, eq=False)
class LoggedEvaluation:
    task: str
    """Benchmark, its argument and the perturbation: `worlds:runs/held-out`, `alfworld P1`."""
    benchmark: str
    perturb: str
    model: str
    settings: Mapping[str, str]
    ids: tuple[str, ...]
    """Instances with at least one episode, sorted."""
    total: int
    measures: Mapping[str, Floats]
    """Name to an array of shape (instances, epochs); nan for missing episodes."""
    counts: Counts
    remarks: tuple[str, ...]
    """Reasons why its figures are incomplete."""
    missing: int = 0
    """Episodes without a score in an unfinished log; 0 for a finished one."""
    levels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Instance to its level; instances without a level are left out."""
    digests: Mapping[str, str] = field(default_factory=dict[str, str])
    """Instance to the digest of its data; instances without one, as in earlier logs, are left out."""

    def means(self, measure: str) -> Floats:
        """Mean over epochs for each instance."""
        return np.nanmean(self.measures[measure], axis=1)

    def cells(self) -> dict[str, dict[str, NDArray[np.bool_]]]:
        """Group to its cells, as masks of the instances. `kind=place` is the cell `place` of the group `kind`; a level
        without `=` is a cell of the group `level`.
        """
        ids_by_cell: dict[str, dict[str, list[str]]] = {}
        for id_ in self.ids:
            level = self.levels.get(id_, "")
            for part in level.split() if "=" in level else filter(None, [level]):
                group, _, cell = part.rpartition("=")
                ids_by_cell.setdefault(group or "level", {}).setdefault(cell, []).append(id_)
        return {
            group: {cell: np.isin(self.ids, cells[cell]) for cell in sorted(cells, key=_cell_order)}
            for group, cells in ids_by_cell.items()
        }

    def shared_ids(self, other: "LoggedEvaluation") -> set[str]:
        """Instances of both evaluations; an id with two digests names two instances."""
        shared = set(self.ids).intersection(other.ids)
        known = shared.intersection(self.digests, other.digests)
        return shared - {id_ for id_ in known if self.digests[id_] != other.digests[id_]}

    def differences(self, other: "LoggedEvaluation", measure: str) -> Floats:
        """Means of `other` minus the means of this evaluation, over the common instances in the order of their ids."""
        shared = self.shared_ids(other)
        own_means, other_means = (dict(zip(log.ids, log.means(measure), strict=True)) for log in (self, other))
        return np.array([other_means[id_] - own_means[id_] for id_ in self.ids if id_ in shared])


def _cell_order(cell: str) -> tuple[int, str]:
    """Sort key: thirds of a play in their order, then other cells by name."""
    return (THIRDS.index(cell) if cell in THIRDS else -1), cell


class _Log(NamedTuple):
    finished: bool
    created: str
    path: Path
    header: "EvalLog"
    samples: "Sequence[EvalSampleSummary]"


def read_evaluation(folder: Path) -> list[LoggedEvaluation]:
    """Tasks in a folder in order, each from its newest finished log, else its newest log; raises InputError."""
    from refinesynth.evaluate.task import task_key

    if not folder.is_dir():
        raise InputError(f"{str(folder)!r} is no folder; give one that `refinesynth evaluate -o` wrote to")
    logs: dict[tuple[str, str, str], list[_Log]] = {}
    for path in folder.glob("*.eval"):
        header, samples = read_log(str(path))
        log = _Log(header.status == "success", header.eval.created, path, header, samples)
        key = task_key(log.header.eval.metadata)
        if not key[0]:
            raise InputError(
                f"the log {str(path)!r} is of the task {log.header.eval.task!r}, which is no benchmark of refinesynth; move it "
                f"to another folder"
            )
        logs.setdefault(key, []).append(log)
    if not logs:
        names = sorted({path.parent.name for path in folder.glob("*/*.eval")})
        hint = f"; there are some in its folders {', '.join(names)}, of which each can be given" if names else ""
        raise InputError(f"{str(folder)!r} holds no logs of an evaluation (*.eval){hint}")
    results = [_evaluation(*key, sorted(task_logs, key=lambda log: log[:3])) for key, task_logs in sorted(logs.items())]
    if not any(evaluation.ids for evaluation in results):
        raise InputError(f"the logs in {str(folder)!r} hold no scored episode: {'; '.join(results[0].remarks)}")
    return results


ReadLog: TypeAlias = "tuple[EvalLog, Sequence[EvalSampleSummary]]"
"""Header of a log, and the summaries of its samples."""


def read_log(log: "str | EvalLogInfo") -> ReadLog:
    """Return the header of a log and the summaries of its samples; raises InputError."""
    from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries

    try:
        return read_eval_log(log, header_only=True), read_eval_log_sample_summaries(log)
    except Exception as error:  # over a damaged file, anything from zipfile's errors to pydantic's
        name, cause = log if isinstance(log, str) else log.name, f"{type(error).__name__}: {str(error)[:200]}"
        raise InputError(f"the log {name!r} cannot be read ({cause}); move it away") from error


def _evaluation(benchmark: str, argument: str, perturb: str, logs: Sequence[_Log]) -> LoggedEvaluation:
    from refinesynth.evaluate.task import task_facts

    finished, _, path, header, samples = logs[-1]
    facts = task_facts(header.eval.metadata)
    episodes: dict[tuple[str, int], dict[str, float]] = {}
    levels: dict[str, str] = {}
    digests: dict[str, str] = {}
    counts, failed, broken = Counts(), list[str](), list[str]()
    for sample in samples:
        score = (sample.scores or {}).get(SCORE)
        metadata = (score and score.metadata) or {}
        if level := str(metadata.get("level") or ""):
            levels[str(sample.id)] = level
        if digest := str(metadata.get("digest") or ""):
            digests[str(sample.id)] = digest
        values = _numbers(score and score.value)
        if sample.error or not all(0 <= values.get(name, -1) <= 1 for name in _REQUIRED):
            failed.append(sample.error or "no score")
            continue
        episodes[str(sample.id), sample.epoch] = {name: values[name] for name in values if name not in _RATES}
        stored_counts = _numbers(metadata.get("counts"))
        counts += Counts(**{name: int(stored_counts.get(name, 0)) for name in Counts.__dataclass_fields__})
        if metadata.get("stopped") == "environment":
            broken.append(str((metadata.get("faults") or ["no reason"])[-1])[:200])
    planned = len(header.eval.dataset.sample_ids or ()) * (header.eval.config.epochs or 1)
    remarks = {
        f"{path.name} counts; other logs of it are left out: {len(logs) - 1}": len(logs) > 1,
        f"its log is not finished ({header.status})": not finished,
        f"failed and left out: {len(failed)} of {len(samples)} episodes, the first by {''.join(failed[:1])[:200]}": failed,
        f"never played: {planned - len(samples)} of {planned} episodes": planned > len(samples),
        f"broken off by the environment, scored as far as they came: {len(broken)} episodes, the first by "
        f"{''.join(broken[:1])}": broken,
    }
    ids, epochs = tuple(sorted({id_ for id_, _ in episodes})), sorted({epoch for _, epoch in episodes})
    settings = {name: facts.get(name) for name in _SETTINGS} | {
        "temperature": header.plan.config.temperature,
        "max_tokens": header.plan.config.max_tokens,
        "form": facts.get("form", "react"),
        "epochs": len(epochs),
    }
    return LoggedEvaluation(
        task=f"{benchmark}{':' if argument else ''}{argument}{' ' if perturb else ''}{perturb}",
        benchmark=benchmark,
        perturb=perturb,
        model=header.eval.model,
        settings={name: str(value) for name, value in settings.items() if value is not None},
        ids=ids,
        total=max(len(ids), INSTANCES.get(benchmark, 0) or int(_numbers(facts).get("instances", 0))),
        measures=_measures(episodes, ids, epochs),
        counts=counts,
        remarks=tuple(remark for remark, applies in remarks.items() if applies),
        levels=levels,
        digests=digests,
        missing=0 if finished else max(planned, len(samples)) - len(episodes),
    )


def _numbers(values: object) -> dict[str, float]:
    """The finite numbers among untrusted values."""
    mapping = cast("Mapping[str, object]", values if isinstance(values, Mapping) else {})
    return {name: float(x) for name, x in mapping.items() if isinstance(x, int | float) and math.isfinite(x)}


def _measures(
    episodes: Mapping[tuple[str, int], Mapping[str, float]], ids: Sequence[str], epochs: Sequence[int]
) -> dict[str, Floats]:
    """Arrays of the measures; a measure is 0 in episodes that lack it, and nan for missing episodes."""
    names = [*_REQUIRED, *sorted({name for values in episodes.values() for name in values} - set(_REQUIRED))]
    rows, columns = ({key: index for index, key in enumerate(keys)} for keys in (ids, epochs))
    measures = {name: np.full((len(ids), len(epochs)), np.nan) for name in names}
    for (id_, epoch), values in episodes.items():
        for name in names:
            measures[name][rows[id_], columns[epoch]] = values.get(name, 0.0)
    return measures
