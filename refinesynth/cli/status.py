"""Command `status`: states of runs, also of running and of killed ones."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from rich.console import RenderableType
from rich.table import Table

from refinesynth.cli.display import failure_reasons
from refinesynth.cli.field_options import option
from refinesynth.cli.run_records import Run, amount, by_outcome, estimated
from refinesynth.cli.terminal import labelled, output, print_json, styled
from refinesynth.run import RunFolder
from refinesynth.run.completed_episode import FEATURES, SLOW_REPAIRS, UNREADABLE
from refinesynth.run.status import Distribution, DiversityStats, RunStatus
from refinesynth.text.formatting import counted, dollars, one_line
from refinesynth.trajectory.turns import is_lopsided

AsJson = Annotated[bool, option(help="As one JSON object.")]

_MAX_IN_FLIGHT = 8

_STOPPED = {
    "personas_ran_out": "stopped: the personas ran out; the same command with more of them at the end goes on with it",
    "budget_spent": "stopped: the budget is spent; the same command with a larger one goes on with it",
    "nothing_accepted": "stopped early: nothing was accepted; `show --refused` says why, the same command with --early-stop 0 goes on",
}


_MIN_TRAJECTORIES, _CLEAN_TOLERANCE = 20, 0.15
"""Least number of trajectories for the warning on too many without a mistake; tolerated excess of their share."""


def status(
    run: Run,
    *,
    json: AsJson = False,
) -> None:
    """Show the progress, cost and health of a run: process, accepted trajectories and their diversity, episodes in flight,
    refusals and cost. Changes nothing.
    """
    current = RunStatus.of(RunFolder.open(run))
    if json:
        print_json(as_json(current))
        return
    print_status(current)


def print_status(current: RunStatus) -> None:
    """Print the progress, cost and health of a run."""
    console = output()
    console.print(labelled(_overview(current), width=10))
    if current.spent:
        console.print(_cost_table(current), labelled(_spending_rows(current), width=10))


def _overview(current: RunStatus) -> Iterator[tuple[str, RenderableType]]:
    totals = current.totals
    style = {"running": "bold cyan", "complete": "bold green"}.get(current.state, "bold yellow")
    yield "run", styled(one_line(str(current.folder)))
    yield "state", styled(_state(current), style)
    kept = f", {current.kept:,} kept for later" if current.kept else ""
    yield "accepted", f"{current.accepted:,} of {current.n:,}{kept}"
    share = f" ({totals.fruitful / totals.episodes:.0%} of them accepted)" if totals.episodes else ""
    yield "episodes", f"{totals.episodes:,} finished{share}"
    yield "refused", f"{counted(totals.scripts_refused, 'script')}, {counted(totals.drafts_refused, 'draft')}"
    # Refusals by the stages are shown in the rows of the stages.
    shown = {stage.rule for stage in current.variety.stages}
    for rule, count in sorted(totals.by_rule.items(), key=lambda item: (-item[1], item[0])):
        if rule not in shown:
            yield "", styled(f"{count:,} by {one_line(rule, size=40)}", "dim")
    for index, reason in enumerate(failure_reasons(totals.commonest_reason, totals.last_reason, failed=totals.failed)):
        yield "" if index else "why none", styled(reason)
    if event := current.last_event:
        facts = " ".join(str(event[name]) for name in ("event", "id", "why") if event.get(name))
        yield "last event", styled(one_line(f"{facts}, {event.get('timestamp', 'at no known time')}"))
    yield from ((label, text if label else styled(text, "dim")) for label, text in variety_rows(current.variety))
    if current.outstanding:
        label = "in flight" if current.state == "running" else "begun"
        yield label, counted(len(current.outstanding), "episode")
    for episode in current.outstanding[:_MAX_IN_FLIGHT]:
        state = f"attempt {episode.attempt}, last answered {episode.role.replace('_', ' ')}"
        yield "", one_line(f"{episode.episode}  {counted(episode.requests, 'request')}, {state}")
    if len(current.outstanding) > _MAX_IN_FLIGHT:
        yield "", f"and {len(current.outstanding) - _MAX_IN_FLIGHT:,} more"


def _state(current: RunStatus) -> str:
    process = f"process {current.holder.pid} on {current.holder.host}" if current.holder else "a process"
    match current.state:
        case "running":
            return f"running, by {process}"
        case "complete":
            return "complete"
        case "stopped":
            return _STOPPED.get(
                current.why, f"stopped: {current.why or 'reason unknown'}; the same command goes on with it"
            )
        case "died":
            return f"died with {process}; the same command goes on with it and pays for no completion twice"


def variety_rows(variety: DiversityStats) -> Iterator[tuple[str, str]]:
    """Rows of label and text about the diversity of a run."""
    figures = variety.figures
    if figures.scripts_written:
        passed = f"{figures.passed:,} of them passed ({figures.passed / figures.scripts_written:.0%})"
        yield "scripts", f"{figures.scripts_written:,} written, {passed}"
        for stage in variety.stages:
            reason = "could not be read" if stage.rule == UNREADABLE else f"by {one_line(stage.rule, size=40)}"
            yield "", f"{stage.refused:,} {reason}, {stage.left:,} left"
    if figures.salvaged:
        kinds = (f"{count:,} {one_line(kind)}" for kind, count in sorted(figures.salvaged.items()))
        yield "salvaged", f"answers that were read all the same: {', '.join(kinds)}"
    if not figures.trajectories:
        return
    distinct = f"{counted(variety.environments, 'environment')} and {counted(variety.action_names, 'action name')}"
    yield "distinct", f"{distinct} in {counted(figures.trajectories, 'trajectory', 'trajectories')}"
    if (turns := Distribution.of(figures.turns)) is not None:
        yield "turns", _spread(turns)
    if (steps := Distribution.of(figures.steps)) is not None:
        yield "difficulty", f"shortest solution {_spread(steps)} actions"
        shares = (f"{feature} {figures.features[feature] / figures.steps.total():.0%}" for feature in FEATURES)
        yield "features", f"measured: {', '.join(shares)}"
    yield from _mistakes(variety)
    if figures.transient:
        yield "transient", f"{counted(figures.transient, 'right action')} failed for a moment"
    if figures.plain:
        yield "words", f"the rulebook's own in {counted(figures.plain, 'answer')}: none of the DungeonMaster's would do"
    if variety.near_duplicates or variety.contaminated:
        copies = counted(variety.near_duplicates, "near-duplicate")
        yield "curated", f"{copies} and {variety.contaminated:,} contaminated refused"


def _mistakes(variety: DiversityStats) -> Iterator[tuple[str, str]]:
    figures = variety.figures
    kinds = sorted(figures.mistakes.items(), key=lambda item: (-item[1], item[0]))
    mean, clean = figures.mistakes.total() / figures.trajectories, figures.clean / figures.trajectories
    means = f"; {mean:.1f} a trajectory, none in {clean:.0%}"
    yield "mistakes", f"{', '.join(f'{count:,} {one_line(kind)}' for kind, count in kinds)}{means}" if kinds else "none"
    intended = variety.clean_asked
    if intended is not None and figures.trajectories >= _MIN_TRAJECTORIES and clean > intended + _CLEAN_TOLERANCE:
        yield "", f"{intended:.0%} were to hold none: the player makes too few, or its world lets them pass"
    if total := sum(figures.tenths):
        shares = " ".join(f"{mass / total:.0%}" for mass in figures.tenths)
        uneven = "; uneven: the fullest middle tenth holds more than twice the emptiest"
        yield "by tenth", f"{shares} of them{uneven if is_lopsided(figures.tenths) else ''}"
    if figures.refinements or figures.unanswered:
        longer = "".join(f", {figures.longer[kind]:,} {kind}" for kind in SLOW_REPAIRS if figures.longer[kind])
        outcomes = {"abandoned": figures.abandoned, "unanswered": figures.unanswered}
        others = "".join(f"; {count:,} {outcome}" for outcome, count in outcomes.items() if count)
        yield "refined", f"{counted(figures.refinements - figures.abandoned, 'mistake')} answered{longer}{others}"
    if figures.repaired:
        shares = (
            f"{count / figures.mistakes[kind]:.0%} of {kind} in {figures.repair_turns[kind] / count:.1f} turns"
            for kind, count in sorted(figures.repaired.items())
        )
        yield "repaired", ", ".join(shares)


def _spread(spread: Distribution) -> str:
    return f"{spread.minimum:,} to {spread.maximum:,}, median {spread.median:,g}"


def _cost_table(current: RunStatus) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("role")
    table.add_column("model", overflow="fold")
    for name in ("requests", "tokens in", "cached", "out", "cost"):
        table.add_column(name, justify="right", no_wrap=True)

    def row(role: str, model: str, counts: Sequence[int], cost: float | None, style: str = "") -> None:
        figures = [*(f"{count:,}" for count in counts), "unknown" if cost is None else dollars(cost)]
        table.add_row(*(styled(text, style) for text in (role, one_line(model), *figures)))

    counts = [(spent.requests, spent.input_tokens, spent.cached_tokens, spent.output_tokens) for spent in current.spent]
    for spent, numbers in zip(current.spent, counts, strict=True):
        row(spent.role.replace("_", " "), spent.model, numbers, None if spent.unpriced else spent.cost_usd)
    row("all", "", [sum(column) for column in zip(*counts, strict=True)], current.cost_usd, "bold")
    return table


def _spending_rows(current: RunStatus) -> Iterator[tuple[str, RenderableType]]:
    spending = current.spending
    if current.cost_per_accepted:
        yield "each", dollars(current.cost_per_accepted)
    if shares := by_outcome(spending):
        yield "went", shares
    if estimated_text := estimated(spending):
        yield "estimated", estimated_text
    for rule, spent in sorted(spending.wasted.items(), key=lambda item: -item[1].tokens):
        yield "", styled(f"{amount(spent, whole=spending.total)} on what {one_line(rule, size=40)} refused", "dim")


def as_json(current: RunStatus) -> dict[str, Any]:
    holder = current.holder
    return {
        "folder": str(current.folder),
        "state": current.state,
        "why": current.why,
        "process": None if holder is None else holder.model_dump(mode="json"),
        "n": current.n,
        "accepted": current.accepted,
        "kept": current.kept,
        "waiting": current.waiting,
        **current.totals.model_dump(
            mode="json", exclude={"accepted", "usage", "cost_usd", "wasted", "fruitless", "figures"}
        ),
        "variety": variety_json(current.variety),
        "in_flight": [asdict(episode) for episode in current.outstanding],
        "spent": [asdict(spent) for spent in current.spent],
        "cost_usd": current.cost_usd,
        "cost_per_accepted": current.cost_per_accepted,
        "spending": current.spending.as_json(),
        "last_event": dict(current.last_event),
    }


def variety_json(variety: DiversityStats) -> dict[str, Any]:
    figures = variety.figures
    turns = Distribution.of(figures.turns)
    return {
        **figures.model_dump(
            include={"trajectories", "refinements", "abandoned", "unanswered", "clean", "transient", "plain"}
        ),
        "environments": variety.environments,
        "action_names": variety.action_names,
        "turns": None if turns is None else {"min": turns.minimum, "median": turns.median, "max": turns.maximum},
        "steps": {str(steps): count for steps, count in sorted(figures.steps.items())},
        "features": {feature: figures.features[feature] for feature in FEATURES} if figures.steps else {},
        "mistakes": dict(figures.mistakes),
        "salvaged": dict(figures.salvaged),
        "longer": {field: figures.longer[kind] for kind, field in SLOW_REPAIRS.items()},
        "repaired": {
            kind: {"mistakes": count, "turns": figures.repair_turns[kind] / count}
            for kind, count in sorted(figures.repaired.items())
        },
        "mistakes_by_tenth": [round(mass, 1) for mass in figures.tenths],
        "near_duplicates": variety.near_duplicates,
        "contaminated": variety.contaminated,
        "scripts": figures.scripts_written,
        "stages": [asdict(stage) for stage in variety.stages],
    }
