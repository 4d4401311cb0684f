"""`refinesynth verify`: repeated verification of the records on disk, without the LLM judge."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.rules import read_chain
from refinesynth.cli.run_records import REFUSED, RunOrFile, file_of, is_run, key, records
from refinesynth.cli.status import AsJson
from refinesynth.cli.terminal import note, output, print_json, say, styled
from refinesynth.diversity import CURATING
from refinesynth.errors import RefinesynthError
from refinesynth.outcome import Refused
from refinesynth.rules import Rule, Violation, rejects
from refinesynth.rules import verify as verdict_of
from refinesynth.run import RunConfig
from refinesynth.text.printable import one_line
from refinesynth.trajectory import MalformedTurn, Trajectory

JUDGE = "Judge"
"""Name of the rule by which the LLM judge refuses."""

_Stage = Literal["trajectory", "script", "draft"]


def verify(
    source: RunOrFile,
    *,
    rules: Annotated[str | None, typer.Option("--rules", metavar="CHAIN")] = None,
    script_rules: Annotated[str | None, typer.Option("--script-rules", metavar="CHAIN")] = None,
    json: AsJson = False,
) -> None:
    """Check all kept and refused records on disk again. Needs no model and costs nothing.

    Exits with 1 when a trajectory that was kept fails now, or a line cannot be read.

    Options:
        rules: Check drafts by these; by default those of the run, else strict().
        script_rules: Check scripts by these; by default the run's, else script().
    """
    files = [file_of(source), *([source / REFUSED] if is_run(source) else [])]
    drafts_by, scripts_by = _rules_for(source, rules, script_rules)
    count, changes = _Recount(), list[dict[str, Any]]()

    def unreadable(error: RefinesynthError) -> None:
        count.unreadable += 1
        note(str(error))

    for record in (record for path in files for record in records(path, unreadable)):
        checked = _checked(record, drafts_by, scripts_by)
        count.add(checked)
        if checked.accepted_then != checked.accepted_now:
            if json:
                violations = [violation.model_dump(mode="json") for violation in checked.violations]
                changes.append({**vars(checked), "violations": violations})
            else:
                say(_change(checked))
    if json:
        print_json({**vars(count), "changes": changes, "rules": repr(drafts_by)})
    else:
        output().print(_table(count))
        say(f"checked by {drafts_by!r}", "dim")
    if count.changed["trajectory"] or count.unreadable:
        raise typer.Exit(ExitCode.FELL_SHORT)


@dataclass(frozen=True)
class _Checked:
    id: str
    stage: _Stage
    accepted_then: bool
    accepted_now: bool
    violations: tuple[Violation, ...]
    """Violations found now, warnings included."""


@dataclass
class _Recount:
    seen: Counter[_Stage] = field(default_factory=Counter[_Stage])
    changed: Counter[_Stage] = field(default_factory=Counter[_Stage])
    """Records by stage with another verdict now."""
    by_rule: Counter[str] = field(default_factory=Counter[str])
    """Rule name to the number of records that it rejects now."""
    warnings: Counter[str] = field(default_factory=Counter[str])
    """Rule name to the number of records that it warns of now."""
    unreadable: int = 0

    def add(self, checked: _Checked) -> None:
        self.seen[checked.stage] += 1
        self.changed[checked.stage] += checked.accepted_then != checked.accepted_now
        self.by_rule.update({violation.rule for violation in checked.violations if rejects(violation)})
        self.warnings.update({violation.rule for violation in checked.violations if not rejects(violation)})


def _checked(record: Trajectory | Refused, rules: Rule, script_rules: Rule) -> _Checked:
    if isinstance(record, Trajectory):
        verdict = verdict_of(record.draft(), rules)
        return _Checked(record.id, "trajectory", True, verdict.accepted, verdict.violations)
    evidence = record.evidence()
    if evidence is None:
        return _Checked(key(record), record.stage, False, False, record.violations)
    verdict = verdict_of(evidence, rules if record.stage == "draft" else script_rules)
    judged = tuple(found for found in record.violations if found.rule == JUDGE or found.rule in CURATING)
    # An incomplete draft may pass the rules, but cannot be a trajectory.
    complete = evidence.finished and evidence.text_error is None and bool(evidence.turns)
    complete = complete and not any(isinstance(turn, MalformedTurn) for turn in evidence.turns)
    accepted = verdict.accepted and not judged and (record.stage == "script" or complete)
    return _Checked(key(record), record.stage, False, accepted, (*verdict.violations, *judged))


def _rules_for(source: Path, rules: str | None, script_rules: str | None) -> tuple[Rule, Rule]:
    """The given rules, else those of the run, else the defaults."""
    config = (source if source.is_dir() else source.parent) / "config.json"
    if (rules is None or script_rules is None) and config.is_file():
        made_with = RunConfig.load(config)
        option = f"the rules in {str(config)!r} (give others with --rules)"
        rules_text, script_text = made_with.rules, made_with.script_rules
    else:
        option, rules_text, script_text = "", "strict()", "script()"
    return (
        read_chain("--rules", rules) if rules is not None else read_chain(option, rules_text),
        read_chain("--script-rules", script_rules) if script_rules is not None else read_chain(option, script_text),
    )


def _change(item: _Checked) -> str:
    if item.accepted_now:
        return one_line(f"{item.id}  {item.stage}: refused then, accepted now")
    reasons = (f"{one.rule} ({one.code}) at turn {one.turn + 1}" for one in item.violations if rejects(one))
    return one_line(f"{item.id}  {item.stage}: accepted then, refused now: {', '.join(dict.fromkeys(reasons))}")


def _table(count: _Recount) -> Table:
    table = Table.grid(padding=(0, 2))
    for side in ("left", "right", "right"):
        table.add_column(justify=side)
    table.add_row("", styled("then", "dim"), styled("now", "dim"))
    labels: dict[_Stage, str] = {
        "trajectory": "trajectories kept",
        "script": "scripts refused",
        "draft": "drafts refused",
    }
    for stage, label in labels.items():
        table.add_row(label, f"{count.seen[stage]:,}", f"{count.seen[stage] - count.changed[stage]:,}")
    for sign, counts in (("✗", count.by_rule), ("!", count.warnings)):
        for rule, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            table.add_row(styled(f"  {sign} by {rule}", "dim"), "", styled(f"{number:,}", "dim"))
    if count.unreadable:
        table.add_row("lines that cannot be read", "", f"{count.unreadable:,}")
    return table
