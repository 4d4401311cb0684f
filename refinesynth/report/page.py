"""The page: figures of a run, plots, and a sample of its records as data for the page's browser."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from refinesynth._version import __version__
from refinesynth.cost import Cost
from refinesynth.extras import check_installed
from refinesynth.files.atomic_write import write_text_file
from refinesynth.outcome import Refused
from refinesynth.report import samples
from refinesynth.report.html_page import rendered, script_data
from refinesynth.report.plots import bars, histogram, scatter
from refinesynth.run import RunFolder
from refinesynth.run.status import RunStatus
from refinesynth.text.number_format import dollars
from refinesynth.text.printable import one_line

SAMPLE: Final = 500
"""Default number of trajectories, and of refused drafts, in a report."""
CHUNK: Final = 50
"""Records in one block of data, which a browser reads when it is needed."""


def write_report(run: str | Path, path: str | Path, *, sample: int = SAMPLE) -> Path:
    """Write the report of a run as one self-contained HTML file, which fetches nothing; replaces an existing file.

    Args:
        run: Folder of a run, finished or in progress.
        path: File to write.
        sample: Most trajectories, and most refused scripts and drafts, to include, drawn at random.

    Raises:
        RunFolderError: There is no run, or its files are damaged.
        ConfigurationError: matplotlib is not installed.
        StorageError: The file cannot be written.
    """
    write_text_file(Path(path), render_report(run, sample=sample))
    return Path(path)


def render_report(run: str | Path, *, sample: int = SAMPLE) -> str:
    """Return the page of `write_report`."""
    check_installed("report", "matplotlib", "numpy")
    folder = RunFolder.open(run)
    status = RunStatus.of(folder)
    shown = samples.trajectories(folder, sample)
    refused = samples.refused(folder, sample)
    scripts = list({found.script.digest: found.script for found in shown}.values())
    return rendered(
        "page.html.jinja",
        status=status,
        config=folder.config,
        rows=_overview(status),
        reasons=_reasons(status, refused),
        plots=[plot for plot in _plots(status, scatter(scripts)) if plot[1]],
        accepted=[script_data(chunk) for chunk in _chunks(map(samples.of_trajectory, shown))],
        refused=[script_data(chunk) for chunk in _chunks(map(samples.of_refused, refused))],
        sizes=(len(shown), len(refused)),
        version=__version__,
    )


def _overview(status: RunStatus) -> Iterator[tuple[str, str]]:
    totals, variety = status.totals, status.variety
    figures = variety.figures
    yield "state", status.state
    yield "personas", f"{totals.episodes:,} finished, {totals.fruitful:,} with an accepted trajectory"
    yield "scripts", f"{figures.written:,} written, {totals.scripts_refused:,} refused"
    yield "drafts refused", f"{totals.drafts_refused:,}"
    yield "accepted", f"{status.accepted:,} of {status.n:,}"
    yield "distinct", f"{variety.environments:,} environments, {variety.action_names:,} action names"
    yield "without a mistake", f"{figures.clean:,}"
    total = status.spending.total.usage
    yield "requests", f"{total.requests:,}"
    yield "tokens", f"{total.input_tokens:,} in ({total.cached_tokens:,} cached), {total.output_tokens:,} out"
    each = "" if status.cost_per_accepted is None else f", {dollars(status.cost_per_accepted)} per trajectory"
    yield "cost", "unknown" if status.cost_usd is None else f"{dollars(status.cost_usd)}{each}"


def _plots(status: RunStatus, projection: str) -> Iterator[tuple[str, str]]:
    figures, spending = status.variety.figures, status.spending
    answered = figures.refinements - figures.abandoned
    fates = {"repaired": answered, "goal reached without": figures.abandoned, "unanswered": figures.unanswered}
    yield "Mistakes by kind", bars(dict(figures.mistakes.most_common()))
    yield "Mistakes by tenth of the play", histogram(figures.tenths, [f"{tenth + 1}" for tenth in range(10)])
    yield "Outcome of mistakes", bars(fates if any(fates.values()) else {})
    turns = sorted(figures.turns)
    lengths = range(turns[0], turns[-1] + 1) if turns else range(0)
    yield "Turns per trajectory", histogram([figures.turns[each] for each in lengths], [str(each) for each in lengths])
    unit = " USD" if status.cost_usd else " tokens"
    for title, parts in (("Cost by role", spending.by_role), ("Cost by model", spending.by_model)):
        yield (
            title,
            bars({name: _amount(part, priced=bool(status.cost_usd)) for name, part in parts.items()}, unit=unit),
        )
    yield "Scripts by their words (two main components)", projection


def _amount(cost: Cost, *, priced: bool) -> float:
    return (cost.cost_usd or 0.0) if priced else cost.tokens


def _reasons(status: RunStatus, refused: Iterable[Refused]) -> list[tuple[str, int, str, str]]:
    """Return rules with their refusals, an example's message and its episode; the commonest first."""
    examples: dict[str, tuple[str, str]] = {}
    for one in refused:
        for violation in one.violations:
            if violation.rule in one.rejecting:
                examples.setdefault(violation.rule, (violation.message, one.episode))
    ordered = sorted(status.totals.by_rule.items(), key=lambda item: (-item[1], item[0]))
    found = ((rule, count, *examples.get(rule, ("", ""))) for rule, count in ordered)
    return [
        (one_line(rule), count, one_line(message, most=400), one_line(episode))
        for rule, count, message, episode in found
    ]


def _chunks(records: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    chunk: list[dict[str, Any]] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
