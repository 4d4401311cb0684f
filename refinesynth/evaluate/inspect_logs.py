"""A run written as Inspect logs into its folder `view`, which may be deleted at any time.

Each log holds a part of the accepted or refused records. Its name ends in a digest of their lines, so existing logs are
right and only new parts are written.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import orjson
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalMetric,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageUser,
    Content,
    ContentReasoning,
    ContentText,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.scorer import Score
from inspect_ai.viewer import ViewerConfig
from pydantic import ValidationError

from refinesynth._version import __version__
from refinesynth.chat import render_task
from refinesynth.errors import InputError, RunFolderError
from refinesynth.files.output_folder import FolderLock
from refinesynth.outcome import Refused
from refinesynth.rules import Severity, Violation
from refinesynth.rules.repairs import Abandoned, Mark, Mistake, Refinement, marks
from refinesynth.run import RunFolder
from refinesynth.run.jsonl import last_line, last_line_end, read_lines
from refinesynth.text.printable import printable
from refinesynth.trajectory import (
    Draft,
    DraftTurn,
    DungeonMasterTurn,
    MalformedTurn,
    PlayerTurn,
    Trajectory,
    Usage,
    explain,
)

VERDICT = "verdict"


def sample_of(record: Trajectory | Refused, *, id_: str, models: str) -> EvalSample:
    """The record as a sample; `id_` is unique within its log, `models` the log's model."""
    accepted = isinstance(record, Trajectory)
    draft = record.draft() if accepted else record.evidence()
    marked = marks(draft) if draft else {}
    scores = _accepted(record, marked) if accepted else _refused(record, marked)
    took, cost = (record.provenance.usage, record.provenance.cost_usd) if accepted else (record.usage, record.cost_usd)
    violations = () if accepted else record.violations
    about = {"provenance"} if accepted else {"episode", "stage", "attempt"}
    sample: dict[str, Any] = {
        "id": id_,
        "epoch": 1,
        "input": printable(draft.script.goal) if draft else "no script that could be read",
        "target": [*map(printable, draft.script.completion_conditions)] if draft else "",
        "messages": list(_messages(draft, marked, violations))
        if draft
        else [ChatMessageUser(content=scores[VERDICT].explanation or "")],
        "output": ModelOutput(),
        "scores": scores,
        "metadata": {
            "persona": printable(record.persona.text),
            **record.model_dump(mode="json", include=about),
            "script": draft.script.model_dump(mode="json") if draft else None,
        },
        "model_usage": {models: _usage(took, cost)},
    }
    return EvalSample.model_validate(sample)


def _usage(usage: Usage, cost: float | None) -> ModelUsage:
    return ModelUsage(
        input_tokens=usage.input_tokens - usage.cached_tokens,
        input_tokens_cache_read=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        total_cost=cost,
    )


def _accepted(trajectory: Trajectory, marked: Mapping[int, Mark]) -> dict[str, Score]:
    answers = {at: mark.of for at, mark in marked.items() if isinstance(mark, Refinement)}
    told = "; ".join(f"turn {at + 1} of {_numbers(of)}" for at, of in answers.items())
    return {
        VERDICT: Score(value="accepted", explanation=printable(f"by {trajectory.provenance.rules}")),
        **_counts(marked),
        "refinements": Score(value=sum(map(len, answers.values())), explanation=told or "none"),
    }


def _refused(item: Refused, marked: Mapping[int, Mark]) -> dict[str, Score]:
    """Scores; the verdict is the first rule that refused the record."""
    refusal = next(iter(item.rejecting), "unreadable" if item.evidence() is None else "broken off")
    why = "\n".join([*filter(None, [item.text]), *map(_told, item.violations)]) or "neither accepted nor refused"
    return {
        VERDICT: Score(value=printable(refusal), explanation=printable(why)),
        **(_counts(marked) if item.draft else {}),
    }


def _told(violation: Violation) -> str:
    warns = " warns" if violation.severity is Severity.WARN else ""
    text = f"{violation.rule} ({violation.code}){warns}, turn {violation.turn + 1}: {violation.message}"
    return printable(f"{'!' if warns else '✗'} {text}")


def _counts(marked: Mapping[int, Mark]) -> dict[str, Score]:
    mistakes = {at: mark for at, mark in marked.items() if isinstance(mark, Mistake)}
    told = "; ".join(f"turn {at + 1}: {mark.kind.value}" for at, mark in mistakes.items())
    return {"mistakes": Score(value=len(mistakes), explanation=told or "none")}


def _messages(draft: Draft, marked: Mapping[int, Mark], violations: Sequence[Violation]) -> Iterator[ChatMessage]:
    yield ChatMessageUser(content=printable(render_task(draft.script)))
    end = len(draft.turns)
    for at, turn in enumerate(draft.turns):
        found = [_told(one) for one in violations if one.turn == at]
        blocks = _blocks(turn, [*_marked(at + 1, marked.get(at)), *found])
        yield ChatMessageAssistant(content=blocks) if isinstance(turn, PlayerTurn) else ChatMessageUser(content=blocks)
    rest = [_told(one) for one in violations if one.turn >= end]
    if draft.text_error is not None:
        rest.insert(0, f"✗ the text after these turns could not be read: {draft.text_error}")
    if rest:
        yield ChatMessageUser(content=printable("\n".join(rest)))


def _blocks(turn: DraftTurn, notes: Sequence[str]) -> list[Content]:
    blocks: list[Content] = []
    if isinstance(turn, MalformedTurn):
        said = f"✗ malformed turn: {turn.problem}\n{turn.raw}"
    else:
        said = f"> {turn.action}" if isinstance(turn, PlayerTurn) else f"{turn.observation}{_flags(turn)}"
        if turn.thought:
            blocks.append(ContentReasoning(reasoning=printable(turn.thought)))
    return [*blocks, ContentText(text=printable("\n".join([said, *notes])))]


def _flags(turn: DungeonMasterTurn) -> str:
    flags = [
        name.replace("_", " ") for name in ("parameter_error", "place_error", "logic_error") if getattr(turn, name)
    ]
    if turn.transient:
        flags.append("failed for a moment, by chance")
    if turn.plain:
        flags.append("in the rulebook's own words")
    if turn.progress is not None:
        flags.append(f"progress {turn.progress:.0%}")
    return f"\n· {', '.join(flags)}" if flags else ""


def _marked(number: int, mark: Mark | None) -> Iterator[str]:
    if isinstance(mark, Mistake):
        yield f"✗ turn {number}, mistake ({mark.kind.value}): kept as context, never trained on"
    elif isinstance(mark, Refinement):
        yield f"✓ turn {number}, refinement of {_numbers(mark.of)}"
    elif isinstance(mark, Abandoned):
        yield f"✓ turn {number}, goes on without {_numbers(mark.of)}"
    elif mark is not None:
        yield f"! turn {number}: {_numbers(mark.of)} stays unanswered"


def _numbers(turns: Sequence[int]) -> str:
    return f"turn{'s' if len(turns) > 1 else ''} {', '.join(str(at + 1) for at in turns)}"


FOLDER: Final = "view"
"""Name of the folder within that of the run."""

_MOST_SAMPLES: Final = 1_000
_MOST_BYTES: Final = 50_000_000
"""Bytes of the lines of one log, which are in memory while it is written."""

_OURS = re.compile(r"(accepted|refused)-\d{4,}-[0-9a-f]{16}\.eval|\.inspect_tmp_.*\.writing")
"""Names of our logs, and of Inspect's leftovers of an interrupted write."""

_UNSAFE = re.compile(r"[^0-9A-Za-z._-]+")
_LONGEST_ID: Final = 80


@dataclass(frozen=True)
class _Part:
    kind: type[Trajectory] | type[Refused]
    number: int
    first: int
    lines: Sequence[bytes]

    @property
    def name(self) -> str:
        return "accepted" if self.kind is Trajectory else "refused"

    @property
    def file(self) -> str:
        digest = blake2b(f"{__version__} {self.first}\n".encode(), digest_size=8)
        for line in self.lines:
            digest.update(line)
            digest.update(b"\n")
        return f"{self.name}-{self.number:04}-{digest.hexdigest()}.eval"


def write_logs(path: Path, tell: Callable[[int], object] = lambda _: None) -> Path:
    """Write the parts that have no log yet, up to what the journal counts, and return the folder.

    `tell` is called with the number of records that are in logs.

    Raises:
        RunFolderError: There is no run, a line is not a run's, or another process writes these logs.
        InputError: The run has no records.
        StorageError, OSError: The journal cannot be read, or the logs cannot be written.
    """
    run = RunFolder.open(path)
    counted = run.counted()
    ends = {
        run.trajectories_file: counted.trajectories_end if counted else last_line_end(run.trajectories_file),
        run.rejected_file: counted.rejected_end if counted else last_line_end(run.rejected_file),
    }
    if not any(ends.values()):
        raise InputError(f"the run in {str(path)!r} has neither accepted nor refused anything yet; look again later")
    folder = path / FOLDER
    folder.mkdir(exist_ok=True)
    with FolderLock(folder, ".lock", work="view", names_holder=False):
        wanted: set[str] = set()
        records = 0
        for part in _parts(run, ends):
            wanted.add(part.file)
            if not (folder / part.file).exists():
                write_eval_log(_log(run, part), str(folder / part.file))
            records += len(part.lines)
            tell(records)
        for old in folder.iterdir():
            if _OURS.fullmatch(old.name) and old.name not in wanted:
                old.unlink(missing_ok=True)
    return folder


def _parts(run: RunFolder, ends: Mapping[Path, int]) -> Iterator[_Part]:
    for file, kind in ((run.trajectories_file, Trajectory), (run.rejected_file, Refused)):
        number, first, size, lines = 1, 1, 0, list[bytes]()
        for line in read_lines(file, end=ends[file]):
            if lines and (len(lines) == _MOST_SAMPLES or size + len(line) > _MOST_BYTES):
                yield _Part(kind, number, first, lines)
                number, first, size, lines = number + 1, first + len(lines), 0, []
            lines.append(line)
            size += len(line)
        if lines:
            yield _Part(kind, number, first, lines)


def _log(run: RunFolder, part: _Part) -> EvalLog:
    begun, ended = _times(run)
    models = _models(run)
    used: Counter[str] = Counter()
    samples: list[EvalSample] = []
    for at, line in enumerate(part.lines):
        record = _record(run, part, at, line)
        samples.append(sample_of(record, id_=_id(record, used), models=models))
    name, last = f"{run.path.resolve().name}: {part.name}", part.first + len(samples) - 1
    return EvalLog(
        status="success",
        eval=EvalSpec(
            created=begun,
            task=f"{name} {part.first:,} to {last:,}",
            task_id=part.file.removesuffix(".eval"),
            dataset=EvalDataset(name=name, samples=len(samples)),
            model=models,
            config=EvalConfig(),
            packages={"refinesynth": __version__},
            # Where the servers are is nobody's business who looks at a bundle.
            metadata=run.config.model_dump(mode="json", exclude={"connections"}),
            # Texts are shown as they are: no Markdown, no links, no pictures.
            viewer=ViewerConfig(trust_content=False),
        ),
        # Without times the viewer shows NaN.
        stats=EvalStats(started_at=begun, completed_at=ended),
        results=_results(samples),
        samples=samples,
    )


def _record(run: RunFolder, part: _Part, at: int, line: bytes) -> Trajectory | Refused:
    try:
        return part.kind.model_validate(orjson.loads(line))
    except ValidationError as error:
        problem = explain(error)
    except orjson.JSONDecodeError as error:
        problem = str(error)
    file = run.trajectories_file if part.kind is Trajectory else run.rejected_file
    raise RunFolderError(f"line {part.first + at} of {str(file)!r} is none that a run wrote: {problem}")


def _id(record: Trajectory | Refused, used: Counter[str]) -> str:
    """A unique id that is safe in URLs and file names."""
    own = record.id if isinstance(record, Trajectory) else f"{record.episode}-{record.stage[0]}{record.attempt}"
    name = _UNSAFE.sub("_", own)[:_LONGEST_ID]
    used[name] += 1
    return name if used[name] == 1 else f"{name}~{used[name]}"


def _times(run: RunFolder) -> tuple[str, str]:
    written = datetime.fromtimestamp(run.config_file.stat().st_mtime, UTC).isoformat()
    first = next(read_lines(run.events_file), None)
    times = [_time(line, written) for line in (first, last_line(run.events_file) if first else None)]
    return times[0], max(times)


def _time(event: bytes | None, otherwise: str) -> str:
    try:
        return datetime.fromisoformat(orjson.loads(event or b"{}")["timestamp"]).astimezone(UTC).isoformat()
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return otherwise


def _models(run: RunFolder) -> str:
    found: dict[str, None] = {}
    for given in run.config.models.values():
        for one in given if isinstance(given, list) else [given]:
            found[str(one.get("model")) if isinstance(one, dict) else str(one)] = None
    return ", ".join(found) or "unknown"


def _results(samples: Sequence[EvalSample]) -> EvalResults:
    numbers: dict[str, list[float]] = {}
    for sample in samples:
        for name, score in (sample.scores or {}).items():
            if isinstance(score.value, int | float):
                numbers.setdefault(name, []).append(score.value)
    scores: list[Any] = [
        EvalScore(name=name, scorer=name, metrics={"mean": EvalMetric(name="mean", value=round(fmean(found), 3))})
        for name, found in numbers.items()
    ]
    return EvalResults(total_samples=len(samples), completed_samples=len(samples), scores=scores)
