"""`refinesynth verify`: check again what is on disk."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from refinesynth.cli.exits import ExitCode
from refinesynth.cli.options import chain
from refinesynth.cli.recheck import Checked, RecordKind, Recount, recheck
from refinesynth.cli.show import RunOrFile
from refinesynth.cli.status import AsJson
from refinesynth.cli.stored import REFUSED, Unreadable, file_of, is_run, lines
from refinesynth.cli.terminal import notes, output, print_json, styled
from refinesynth.rules import Rule, rejects
from refinesynth.run import RunConfig
from refinesynth.text.printable import one_line

DraftRules = Annotated[
    str | None,
    typer.Option("--rules", metavar="CHAIN", help="Check drafts by these; by default those of the run, else strict()."),
]
ScriptRules = Annotated[
    str | None,
    typer.Option(
        "--script-rules", metavar="CHAIN", help="Check scripts by these; by default the run's, else script()."
    ),
]


def verify(
    source: RunOrFile, *, rules: DraftRules = None, script_rules: ScriptRules = None, json: AsJson = False
) -> None:
    """Check again what is on disk, kept and refused alike. Needs no model and costs nothing.

    Exits with 1 when a trajectory that was kept fails now, or a line cannot be read.
    """
    files = [file_of(source), *([source / REFUSED] if is_run(source) else [])]
    drafts_by, scripts_by = _rules_for(source, rules, script_rules)
    console, count, changes = output(), Recount(), list[dict[str, Any]]()
    for path in files:
        for item in recheck(lines(path), rules=drafts_by, script_rules=scripts_by, count=count):
            if isinstance(item, Unreadable):
                notes().print(str(item), soft_wrap=True)
            elif item.changed and json:
                changes.append(_as_object(item))
            elif item.changed:
                console.print(_change(item), soft_wrap=True)
    if json:
        print_json(_report(count, changes, drafts_by))
    else:
        console.print(_table(count))
        console.print(f"checked by {drafts_by!r}", style="dim", soft_wrap=True)
    if count.kept_and_fail:
        raise typer.Exit(ExitCode.FELL_SHORT)


def _rules_for(source: Path, rules: str | None, script_rules: str | None) -> tuple[Rule, Rule]:
    """What the user asks for, else what the run was made with, else the defaults of a run."""
    config = (source if source.is_dir() else source.parent) / "config.json"
    if (rules is None or script_rules is None) and config.is_file():
        made_with = RunConfig.load(config)
        option = f"the rules in {str(config)!r} (give others with --rules)"
        rules_text, script_text = made_with.rules, made_with.script_rules
    else:
        option, rules_text, script_text = "", "strict()", "script()"
    return (
        chain("--rules", rules) if rules is not None else chain(option, rules_text),
        chain("--script-rules", script_rules) if script_rules is not None else chain(option, script_text),
    )


def _change(item: Checked) -> str:
    if item.accepted_now:
        return one_line(f"{item.id}  {item.stage}: refused then, accepted now")
    why = ", ".join(
        dict.fromkeys(
            f"{found.rule} ({found.code}) at turn {found.turn + 1}" for found in item.violations if rejects(found)
        )
    )
    return one_line(f"{item.id}  {item.stage}: accepted then, refused now: {why}")


def _as_object(item: Checked) -> dict[str, Any]:
    return {
        "id": item.id,
        "stage": item.stage,
        "accepted_then": item.accepted_then,
        "accepted_now": item.accepted_now,
        "violations": [found.model_dump(mode="json") for found in item.violations],
    }


def _report(count: Recount, changes: list[dict[str, Any]], rules: Rule) -> dict[str, Any]:
    return {
        "seen": count.seen,
        "changed": count.changed,
        "by_rule": count.by_rule,
        "warnings": count.warnings,
        "unreadable": count.unreadable,
        "changes": changes,
        "rules": repr(rules),
    }


def _table(count: Recount) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_row("", styled("then", "dim"), styled("now", "dim"))
    stages: tuple[tuple[str, RecordKind], ...] = (
        ("trajectories kept", "trajectory"),
        ("scripts refused", "script"),
        ("drafts refused", "draft"),
    )
    for label, stage in stages:
        table.add_row(label, f"{count.seen[stage]:,}", f"{count.seen[stage] - count.changed[stage]:,}")
    for sign, found in (("✗", count.by_rule), ("!", count.warnings)):
        for rule, number in sorted(found.items(), key=lambda item: (-item[1], item[0])):
            table.add_row(styled(f"  {sign} by {rule}", "dim"), "", styled(f"{number:,}", "dim"))
    if count.unreadable:
        table.add_row("lines that cannot be read", "", f"{count.unreadable:,}")
    return table
