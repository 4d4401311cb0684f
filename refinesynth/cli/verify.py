"""`refinesynth verify`: repeated verification of the records on disk, without the LLM judge."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from refinesynth.cli.exit_codes import ExitCode
from refinesynth.cli.field_options import option
from refinesynth.cli.rules import read_chain
from refinesynth.cli.run_records import REFUSED, RunOrFile, episode_id, file_of, is_run, records
from refinesynth.cli.status import AsJson
from refinesynth.cli.terminal import note, output, print_json, say, styled
from refinesynth.diversity import CURATING
from refinesynth.errors import RefinesynthError
from refinesynth.outcome import Refused
from refinesynth.rules import Rule, Violation, rejects
from refinesynth.rules import verify as verdict_of
from refinesynth.run import RunConfig
from refinesynth.text.formatting import one_line
from refinesynth.trajectory import MalformedTurn, Trajectory

JUDGE = "Judge"
"""Name of the rule by which the LLM judge refuses."""

_Stage = Literal["trajectory", "script", "draft"]


def verify(
    source: RunOrFile,
    *,
    rules: Annotated[str | None, option(metavar="CHAIN")] = None,
    script_rules: Annotated[str | None, option(metavar="CHAIN")] = None,
    json: AsJson = False,
) -> None:
    """Check all kept and refused records on disk again. Needs no model and costs nothing.

    Exits with 1 when a trajectory that was kept fails now, or a line cannot be read.

    Options:
        rules: Check drafts by these; by default those of the run, else strict().
        script_rules: Check scripts by these; by default the run's, else script().
    """
    files = [file_of(source), *([source / REFUSED] if is_run(source) else [])]
    draft_chain, script_chain = _rules_for(source, rules, script_rules)
    recount, changes = _Recount(), list[dict[str, Any]]()

    def unreadable(error: RefinesynthError) -> None:
        recount.unreadable += 1
        note(str(error))

    for record in (record for path in files for record in records(path, unreadable)):
        checked = _checked(record, draft_chain, script_chain)
        recount.add(checked)
        if checked.accepted_then != checked.accepted_now:
            if json:
                violations = [violation.model_dump(mode="json") for violation in checked.violations]
                changes.append({**vars(checked), "violations": violations})
            else:
                say(_change(checked))
    if json:
        print_json({**vars(recount), "changes": changes, "rules": repr(draft_chain)})
    else:
        output().print(_table(recount))
        say(f"checked by {draft_chain!r}", "dim")
    if recount.changed["trajectory"] or recount.unreadable:
        raise typer.Exit(ExitCode.INCOMPLETE)


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
        return _Checked(episode_id(record), record.stage, False, False, record.violations)
    verdict = verdict_of(evidence, rules if record.stage == "draft" else script_rules)
    judged = tuple(item for item in record.violations if item.rule == JUDGE or item.rule in CURATING)
    # An incomplete draft may pass the rules, but cannot be a trajectory.
    complete = evidence.finished and evidence.text_error is None and bool(evidence.turns)
    complete = complete and not any(isinstance(turn, MalformedTurn) for turn in evidence.turns)
    accepted = verdict.accepted and not judged and (record.stage == "script" or complete)
    return _Checked(episode_id(record), record.stage, False, accepted, (*verdict.violations, *judged))


def _rules_for(source: Path, rules: str | None, script_rules: str | None) -> tuple[Rule, Rule]:
    """The given rules, else those of the run, else the defaults."""
    config = (source if source.is_dir() else source.parent) / "config.json"
    if (rules is None or script_rules is None) and config.is_file():
        run_config = RunConfig.load(config)
        option = f"the rules in {str(config)!r} (give others with --rules)"
        rules_text, script_text = run_config.rules, run_config.script_rules
    else:
        option, rules_text, script_text = "", "strict()", "script()"
    return (
        read_chain("--rules", rules) if rules is not None else read_chain(option, rules_text),
        read_chain("--script-rules", script_rules) if script_rules is not None else read_chain(option, script_text),
    )


def _change(checked: _Checked) -> str:
    if checked.accepted_now:
        return one_line(f"{checked.id}  {checked.stage}: refused then, accepted now")
    reasons = (f"{item.rule} ({item.code}) at turn {item.turn + 1}" for item in checked.violations if rejects(item))
    return one_line(f"{checked.id}  {checked.stage}: accepted then, refused now: {', '.join(dict.fromkeys(reasons))}")


def _table(recount: _Recount) -> Table:
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right"):
        table.add_column(justify=justify)
    table.add_row("", styled("then", "dim"), styled("now", "dim"))
    labels: dict[_Stage, str] = {
        "trajectory": "trajectories kept",
        "script": "scripts refused",
        "draft": "drafts refused",
    }
    for stage, label in labels.items():
        table.add_row(label, f"{recount.seen[stage]:,}", f"{recount.seen[stage] - recount.changed[stage]:,}")
    for sign, counts in (("✗", recount.by_rule), ("!", recount.warnings)):
        for rule, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            table.add_row(styled(f"  {sign} by {rule}", "dim"), "", styled(f"{number:,}", "dim"))
    if recount.unreadable:
        table.add_row("lines that cannot be read", "", f"{recount.unreadable:,}")
    return table
