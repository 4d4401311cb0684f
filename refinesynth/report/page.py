"""Report page: figures of a run, plots, and a sample of its records as data for the browser of records."""

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
from pydantic import JsonValue

from refinesynth._version import __version__
from refinesynth.chat.react import label_of
from refinesynth.errors import InputError, RunFolderError
from refinesynth.files.atomic_write import refuse_file_of_run, refuse_irregular, write_text_file
from refinesynth.lazy_imports import check_installed
from refinesynth.outcome import Refused
from refinesynth.report.html_page import bars, histogram, render_page, scatter, script_data, shorten
from refinesynth.rules import rejects
from refinesynth.rules.repairs import marks
from refinesynth.run import RunFolder
from refinesynth.run.jsonl import read_lines
from refinesynth.run.status import RunStatus
from refinesynth.text.formatting import dollars, one_line
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn, Script, Trajectory, explain, flagged_turns

SAMPLE: Final = 500
"""Default for the most trajectories, and the most refused scripts and drafts, in a report."""
CHUNK: Final = 50
"""Records in one block of data, which the web browser parses on demand."""
_TITLE: Final = b"<title>Report of "
_HEAD_BYTES: Final = 1_000
"""Bytes at the beginning of a report, with its title."""


def write_report(run: str | Path, path: str | Path, *, sample: int = SAMPLE) -> Path:
    """Write the report of a run as one self-contained HTML file, which fetches nothing; replaces an earlier report.

    Args:
        run: Folder of a run, finished or in progress.
        path: File to write.
        sample: Most trajectories, and most refused scripts and drafts, to include, drawn at random.

    Raises:
        RunFolderError: There is no run, or its files are damaged.
        ConfigurationError: matplotlib is not installed.
        InputError: `path` is an irregular file, a file of a run, or a file that is no report.
        StorageError: The file cannot be written.
    """
    path = Path(path)
    refuse_irregular(path)
    refuse_file_of_run(path)
    if path.is_file():
        with path.open("rb") as file:
            if _TITLE not in file.read(_HEAD_BYTES):
                raise InputError(f"{str(path)!r} exists and is no report; choose another name, or remove it")
    write_text_file(path, render_report(run, sample=sample))
    return path


def render_report(run: str | Path, *, sample: int = SAMPLE) -> str:
    """Return the page of `write_report`."""
    check_installed("report", "matplotlib", "numpy")
    folder = RunFolder.open(run)
    status = RunStatus.of(folder)
    counted, seed = folder.committed_part(), folder.config.seed
    accepted = _sample_records(folder.trajectories_file, counted and counted.trajectories_end, Trajectory, sample, seed)
    refused = _sample_records(folder.rejected_file, counted and counted.rejected_end, Refused, sample, seed)
    scripts = list({trajectory.script.digest: trajectory.script for trajectory in accepted}.values())
    return render_page(
        "page.html.jinja",
        status=status,
        config=folder.config,
        rows=_overview(status),
        reasons=_refusal_reasons(status, refused),
        plots=[plot for plot in _plots(status, scatter(scripts)) if plot[1]],
        accepted=[script_data(chunk) for chunk in _chunks(map(_trajectory_data, accepted))],
        refused=[script_data(chunk) for chunk in _chunks(map(_refused_data, refused))],
        sizes=(len(accepted), len(refused)),
        version=__version__,
    )


def _overview(status: RunStatus) -> Iterator[tuple[str, str]]:
    totals, variety = status.totals, status.variety
    figures = variety.figures
    yield "state", status.state
    yield "personas", f"{totals.episodes:,} finished, {totals.fruitful:,} with an accepted trajectory"
    yield "scripts", f"{figures.scripts_written:,} written, {totals.scripts_refused:,} refused"
    yield "drafts refused", f"{totals.drafts_refused:,}"
    yield "accepted", f"{status.accepted:,} of {status.n:,}"
    yield "distinct", f"{variety.environments:,} environments, {variety.action_names:,} action names"
    yield "without a mistake", f"{figures.clean:,}"
    total = status.spending.total.usage
    yield "requests", f"{total.requests:,}"
    yield "tokens", f"{total.input_tokens:,} in ({total.cached_tokens:,} cached), {total.output_tokens:,} out"
    per_trajectory = "" if status.cost_per_accepted is None else f", {dollars(status.cost_per_accepted)} per trajectory"
    yield "cost", "unknown" if status.cost_usd is None else f"{dollars(status.cost_usd)}{per_trajectory}"


def _plots(status: RunStatus, projection: str) -> Iterator[tuple[str, str]]:
    figures, spending = status.variety.figures, status.spending
    answered = figures.refinements - figures.abandoned
    outcomes = {"repaired": answered, "goal reached without": figures.abandoned, "unanswered": figures.unanswered}
    yield "Mistakes by kind", bars(dict(figures.mistakes.most_common()))
    yield "Mistakes by tenth of the play", histogram(figures.tenths, [f"{tenth + 1}" for tenth in range(10)])
    yield "Outcome of mistakes", bars(outcomes if any(outcomes.values()) else {})
    turns = sorted(figures.turns)
    lengths = range(turns[0], turns[-1] + 1) if turns else range(0)
    yield "Turns per trajectory", histogram([figures.turns[n] for n in lengths], [str(n) for n in lengths])
    unit = " USD" if status.cost_usd else " tokens"
    for title, parts in (("Cost by role", spending.by_role), ("Cost by model", spending.by_model)):
        costs = {name: (cost.cost_usd or 0.0) if status.cost_usd else cost.tokens for name, cost in parts.items()}
        yield title, bars(costs, unit=unit)
    yield "Scripts by their words (two main components)", projection


def _refusal_reasons(status: RunStatus, refused: Iterable[Refused]) -> list[tuple[str, int, str, str]]:
    """Return rules with their number of refusals, an example's message and its episode; the most frequent first."""
    examples: dict[str, tuple[str, str]] = {}
    for record in refused:
        for violation in record.violations:
            if violation.rule in record.rejecting:
                examples.setdefault(violation.rule, (violation.message, record.episode))
    ordered = sorted(status.totals.by_rule.items(), key=lambda item: (-item[1], item[0]))
    rows = ((rule, count, *examples.get(rule, ("", ""))) for rule, count in ordered)
    return [
        (one_line(rule), count, one_line(message, size=400), one_line(episode))
        for rule, count, message, episode in rows
    ]


def _chunks(records: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while chunk := [*islice(records, CHUNK)]:
        yield chunk


_Record = TypeVar("_Record", Trajectory, Refused)


def _sample_records(path: Path, end: int | None, kind: type[_Record], size: int, seed: int) -> list[_Record]:
    # Algorithm R (Vitter, 1985). Only the lines of the sample are parsed.
    rng, sample = random.Random(seed), list[tuple[int, bytes]]()
    for number, line in enumerate(read_lines(path, end=end), start=1):
        if len(sample) < size:
            sample.append((number, line))
        elif (index := rng.randrange(number)) < size:
            sample[index] = (number, line)
    records: list[_Record] = []
    for number, line in sorted(sample):
        try:
            records.append(kind.model_validate(orjson.loads(line)))
        except ValueError as error:
            subject = f"line {number} of {str(path)!r} is not a {kind.__name__}"
            raise RunFolderError(f"{subject}: {explain(error)}") from error
    return records


def _trajectory_data(trajectory: Trajectory) -> dict[str, JsonValue]:
    return {
        "id": shorten(trajectory.id),
        "by": shorten(", ".join(f"{role}: {model}" for role, model in trajectory.provenance.models.items())),
        "persona": shorten(trajectory.persona.text),
        **_script(trajectory.script),
        "turns": _turns(trajectory.draft()),
    }


def _refused_data(refused: Refused) -> dict[str, JsonValue]:
    evidence = refused.evidence()
    return {
        "id": shorten(refused.episode),
        "by": f"{refused.stage}, attempt {refused.attempt}",
        "persona": shorten(refused.persona.text),
        **({} if evidence is None else _script(evidence.script)),
        "turns": [] if evidence is None else _turns(evidence),
        "why": [shorten(f"{item.rule} ({item.code}): {item.message}") for item in refused.violations if rejects(item)]
        or [shorten(refused.text or "unreadable")],
    }


def _script(script: Script) -> dict[str, JsonValue]:
    return {
        "goal": shorten(script.goal),
        "place": shorten(script.introduction.strip()),
        "actions": [shorten(action.name) for action in script.actions],
    }


def _turns(draft: Draft) -> list[JsonValue]:
    marked, mistakes = marks(draft), set(flagged_turns(draft.turns))
    turns: list[JsonValue] = []
    for index, turn in enumerate(draft.turns):
        if isinstance(turn, PlayerTurn):
            mark, note = marked.get(index), ""
            if mark is not None and mark.kind is not None:
                note = f"mistake ({mark.kind.value})"
            elif mark is not None and mark.label == "refinement":
                note = f"repairs turn {', '.join(str(number + 1) for number in mark.mistakes)}"
            texts = {"thought": shorten(turn.thought), "action": shorten(turn.action), "note": note}
            turns.append({"who": label_of(turn, mistake=index in mistakes), **texts})
        elif isinstance(turn, DungeonMasterTurn):
            turns.append({"who": "dm", "text": shorten(turn.observation)})
        else:
            turns.append({"who": "malformed", "text": shorten(str(turn.raw)), "note": shorten(turn.problem)})
    return turns
