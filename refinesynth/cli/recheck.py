"""Verify again what is on disk. Spends nothing: rules are pure, and the judge is not asked."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from refinesynth.cli.stored import Line, Unreadable, key
from refinesynth.diversity import CURATING
from refinesynth.outcome import Refused
from refinesynth.rules import Rule, Violation, rejects, verify
from refinesynth.trajectory import Draft, MalformedTurn, Trajectory

JUDGE = "Judge"
"""The rule in whose name the LLM judge refuses."""

RecordKind = Literal["trajectory", "script", "draft"]


@dataclass(frozen=True)
class Checked:
    """One record, then and now."""

    id: str
    """Of its episode."""
    stage: RecordKind
    accepted_then: bool
    accepted_now: bool
    violations: tuple[Violation, ...]
    """Those of now, warnings included."""

    @property
    def changed(self) -> bool:
        """Whether the answer is another one now."""
        return self.accepted_then != self.accepted_now


@dataclass
class Recount:
    """Counts over everything that was checked; their size does not depend on how much that is."""

    seen: Counter[RecordKind] = field(default_factory=Counter[RecordKind])
    """Records of each stage."""
    changed: Counter[RecordKind] = field(default_factory=Counter[RecordKind])
    """Of those, the ones about which the answer is another one now."""
    by_rule: Counter[str] = field(default_factory=Counter[str])
    """Rule name to the records that it rejects now, each counted once for a rule."""
    warnings: Counter[str] = field(default_factory=Counter[str])
    """Rule name to the records that it warns of now."""
    unreadable: int = 0
    """Lines that are no record, and so neither accepted nor refused."""

    @property
    def kept_and_fail(self) -> bool:
        """Whether something that was kept does not hold: refused now, or not readable any more."""
        return self.changed["trajectory"] > 0 or self.unreadable > 0

    def add(self, checked: Checked) -> None:
        """Count one more record."""
        self.seen[checked.stage] += 1
        self.changed[checked.stage] += checked.changed
        self.by_rule.update({found.rule for found in checked.violations if rejects(found)})
        self.warnings.update({found.rule for found in checked.violations if not rejects(found)})


def recheck(
    lines: Iterable[Line], *, rules: Rule, script_rules: Rule, count: Recount
) -> Iterator[Checked | Unreadable]:
    """Check line after line, lazily, and count it."""
    for line in lines:
        record = line.read()
        if isinstance(record, Unreadable):
            count.unreadable += 1
            yield record
            continue
        checked = _checked(record, rules, script_rules)
        count.add(checked)
        yield checked


def _checked(record: Trajectory | Refused, rules: Rule, script_rules: Rule) -> Checked:
    if isinstance(record, Trajectory):
        verdict = verify(record.draft(), rules)
        return Checked(
            key(record), "trajectory", accepted_then=True, accepted_now=verdict.accepted, violations=verdict.violations
        )
    evidence = record.evidence()
    if evidence is None:
        return Checked(key(record), record.stage, accepted_then=False, accepted_now=False, violations=record.violations)
    verdict = verify(evidence, rules if record.stage == "draft" else script_rules)
    judged = tuple(found for found in record.violations if found.rule == JUDGE or found.rule in CURATING)
    accepted = verdict.accepted and not judged and (record.stage == "script" or _is_whole(evidence))
    return Checked(
        key(record),
        record.stage,
        accepted_then=False,
        accepted_now=accepted,
        violations=(*verdict.violations, *judged),
    )


def _is_whole(draft: Draft) -> bool:
    """Whether a draft could be kept as a trajectory at all: a part of one passes the rules, but is none."""
    return (
        draft.finished
        and draft.text_error is None
        and bool(draft.turns)
        and not any(isinstance(turn, MalformedTurn) for turn in draft.turns)
    )
