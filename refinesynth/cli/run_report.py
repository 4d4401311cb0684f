"""Report of a run: the funnel from personas to trajectories, the cost, and advice after an early stop."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from refinesynth.cli.display import failure_reasons
from refinesynth.cli.terminal import styled
from refinesynth.cli.trajectory_text import why_refused
from refinesynth.cost import Cost
from refinesynth.run.stats import Spending, rule_names
from refinesynth.synthesis.result import SynthesisResult
from refinesynth.text.number_format import compact, counted, dollars
from refinesynth.text.printable import one_line

_MAX_COMMAND_WIDTH = 60
"""Longest command, in characters, that counts for the width of the column of commands."""


def funnel(result: SynthesisResult) -> RenderableType:
    """Personas started, scripts and drafts refused by rule with their cost, and accepted trajectories; then the totals.

    Rules that refuse scripts are in the order of the chain, the others by number of refusals.
    """
    spending, totals = result.spending, result.finished
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", no_wrap=True)
    table.add_row("personas started", f"{result.episodes + result.pending:,}")
    if result.bad_personas:
        table.add_row("rows without a persona", f"{result.bad_personas:,}")

    def refusals(rules: Iterable[str]) -> None:
        # A script or draft that two rules refused counts for both.
        for rule in rules:
            wasted = amount(spending.wasted[rule], whole=spending.total) if rule in spending.wasted else ""
            row = (f"  refused by {one_line(rule, size=40)}", f"{totals.by_rule[rule]:,}", wasted)
            table.add_row(*(styled(cell, "dim") for cell in row))

    stages = [rule for rule in rule_names(result.config.script_rules) if rule in totals.by_rule]
    others = sorted(totals.by_rule.keys() - set(stages), key=lambda rule: (-totals.by_rule[rule], rule))
    written, passed = totals.figures.scripts_written, totals.figures.passed
    share = f"{passed / written:.0%} of {written:,} passed" if totals.scripts_refused and written else ""
    table.add_row("scripts refused", f"{totals.scripts_refused:,}", share)
    refusals(stages)
    table.add_row("drafts refused", f"{totals.drafts_refused:,}")
    refusals(others)
    cost_each = f"{dollars(result.cost_per_accepted)} each" if result.cost_per_accepted else ""
    table.add_row(styled("accepted", "bold"), styled(f"{len(result):,}", "bold"), styled(cost_each, "dim"))
    if kept := totals.accepted - len(result):
        # Finished before an earlier episode, or beyond the n-th: in the journal, not yet in the files.
        table.add_row(styled("kept for later", "dim"), styled(f"{kept:,}", "dim"))
    usage = result.usage
    cost = "cost unknown" if result.cost_usd is None else f"cost {dollars(result.cost_usd)}"
    usage_line = (
        f"{counted(usage.requests, 'request')}, {usage.input_tokens:,} tokens in ({usage.cached_tokens:,} cached), "
        f"{usage.output_tokens:,} out, {cost}"
    )
    by_role = {role.replace("_", " "): spent for role, spent in spending.by_role.items()}
    by_name = (_shares(parts, whole=spending.total) for parts in (by_role, spending.by_model))
    shares = (estimated(spending), by_outcome(spending), *by_name)
    failures = failure_reasons(totals.commonest_reason, totals.last_reason, failed=totals.failed)
    return Group(table, *map(styled, failures), "", *(styled(line, "dim") for line in (usage_line, *shares) if line))


def next_commands(path: Path, *, accepted: int, refused: int) -> list[str]:
    run = shlex.quote(str(path))
    commands: list[str] = []
    if accepted:
        commands += [
            f"refinesynth show {run} --random",
            f"refinesynth verify {run}",
            f"refinesynth export {run} --format openai -o {shlex.quote(str(path.with_name(path.name + '.jsonl')))}",
        ]
    if refused:
        commands.append(f"refinesynth show {run} --refused")
    return commands


def continue_command(arguments: Sequence[str], path: Path) -> str:
    """The same command with the run's folder and without `--fresh`."""
    repeated = [argument for argument in arguments if argument != "--fresh"]
    has_output = any(
        argument in {"-o", "--output"} or argument.startswith(("-o", "--output=")) for argument in repeated
    )
    return shlex.join(["refinesynth", *repeated, *([] if has_output else ["-o", str(path)])])


def advice(result: SynthesisResult, arguments: Sequence[str]) -> RenderableType:
    """Advice for a run that stopped early: the rule with the most refusals, an example, and commands to try."""
    top = result.by_rule.most_common(1)
    rule, count = top[0] if top else (None, 0)
    example = next((item for item in result.rejected if rule is None or rule in item.rejecting), None)
    parts: list[RenderableType] = []
    if rule is not None:
        refused = result.scripts_refused + result.drafts_refused
        parts.append(
            f"{one_line(rule, size=40)} refused {count:,} of {refused:,} scripts and drafts that were refused."
        )
    run = shlex.quote(str(result.path))
    hints: list[tuple[str, str]] = []
    if example is not None:
        parts += [
            f"For example {example.stage} {example.attempt} of {one_line(example.episode)}:",
            *why_refused(example, rule),
        ]
        hints += [
            (f"refinesynth show {run} {shlex.quote(example.episode)} --refused", "this one in full"),
            (f"refinesynth show {run} --refused", "the others"),
            (
                f"refinesynth verify {run} --rules 'agentrefine()'",
                "what other rules would say, for free; then run with --rules",
            ),
        ]
    hints.append(("--backend NAME", "another model, in a new folder; --backend player=NAME for one role alone"))
    hints.append((f"{continue_command(arguments, result.path)} --early-stop 0", "to go on to the end all the same"))
    width = max(len(command) for command, _ in hints if len(command) <= _MAX_COMMAND_WIDTH)
    listed = [
        Text.assemble("  ", styled(one_line(command).ljust(width), "bold"), "  ", styled(purpose, "dim"))
        for command, purpose in hints
    ]
    return Group(*parts, "", "What to try:", *listed)


_MIN_SHARE = 0.005
"""Smallest share that is shown."""


def amount(spent: Cost, *, whole: Cost) -> str:
    """`0.0242 USD`, or `12.3k tokens` if the whole has no price."""
    if whole.cost_usd:
        return dollars(spent.cost_usd or 0.0)
    return f"{compact(spent.tokens)} tokens"


def by_outcome(spending: Spending) -> str:
    """`93% on accepted trajectories, 5% on what rules refused, 2% on what was not needed or not finished`."""
    return _shares(
        {
            "on accepted trajectories": spending.kept,
            "on what rules refused": sum(spending.wasted.values(), Cost()),
            "on episodes that gave none": spending.fruitless,
            "on what was not needed or not finished": spending.unneeded,
        },
        whole=spending.total,
    )


def estimated(spending: Spending) -> str:
    """`tokens of 12 of 80 requests are estimated: no usage was reported`; empty without any."""
    count, total = spending.estimated.usage.requests, spending.total.usage.requests
    return f"tokens of {count:,} of {counted(total, 'request')} are estimated: no usage was reported" if count else ""


def _shares(parts: Mapping[str, Cost], *, whole: Cost) -> str:
    """`52% player, 40% dungeon master, 8% script writer`; empty for fewer than two parts."""
    total = whole.cost_usd or whole.tokens
    if not total:
        return ""
    shares = {
        name: (spent.cost_usd or 0.0 if whole.cost_usd else spent.tokens) / total for name, spent in parts.items()
    }
    shown = [name for name in sorted(shares, key=lambda name: -shares[name]) if shares[name] >= _MIN_SHARE]
    return ", ".join(f"{shares[name]:.0%} {one_line(name, size=40)}" for name in shown) if len(shown) > 1 else ""
