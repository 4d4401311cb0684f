"""Terminal layout of a trajectory or a refused draft. Signs carry the meaning of the colours.

`✗` is a mistake or a refusal, `✓` a refinement, `>` an action, `+` a parallel one, `!` a warning.
"""

from collections.abc import Iterator, Mapping, Sequence

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from refinesynth.cli.terminal import labelled, styled
from refinesynth.outcome import Refused
from refinesynth.rules import Severity, Violation
from refinesynth.rules.repairs import Mark, marks, refinements
from refinesynth.text.formatting import counted, dollars, one_line
from refinesynth.text.json_reader import write_json
from refinesynth.trajectory import (
    ActionSpec,
    Draft,
    DraftTurn,
    DungeonMasterTurn,
    PlayerTurn,
    Provenance,
    Script,
    Trajectory,
)

_MAX_VALUES = 12
"""Most allowed values of a parameter that are listed."""


def layout(record: Trajectory | Refused) -> RenderableType:
    """The record, without what only the DungeonMaster knows: environment, thoughts, patterns."""
    return _accepted(record) if isinstance(record, Trajectory) else _refused(record)


def summary_line(record: Trajectory | Refused) -> str:
    if isinstance(record, Trajectory):
        counts = f"{counted(len(record.turns), 'turn')}, {counted(len(record.mistakes()), 'mistake')}"
        return one_line(f"{record.id}  {counts}: {record.script.goal}")
    turns = f", {counted(len(record.draft.turns), 'turn')}" if record.draft is not None else ""
    rules = ", ".join(dict.fromkeys(f"{violation.rule} ({violation.code})" for violation in record.violations))
    reason = rules or record.text or "no violation"
    return one_line(f"{record.episode}  {record.stage} {record.attempt}{turns}: {reason}")


def indented(value: object) -> str:
    return write_json(value, option=orjson.OPT_INDENT_2).decode()


def _accepted(trajectory: Trajectory) -> RenderableType:
    repairs, mistakes = refinements(trajectory), len(trajectory.mistakes())
    others = {"abandoned": repairs.abandoned, "unanswered": repairs.unanswered}
    title = Text.assemble(
        styled(one_line(trajectory.id), "bold"),
        "  accepted · ",
        f"{counted(len(trajectory.turns), 'turn')} · {counted(mistakes, 'mistake')} · {repairs.answered:,} answered",
        *(f" · {count:,} {outcome}" for outcome, count in others.items() if count),
    )
    return Group(
        title,
        "",
        _script(trajectory.script, trajectory.persona.text),
        "",
        _turns(trajectory.draft(), {}),
        "",
        _provenance(trajectory.provenance),
    )


def _refused(item: Refused) -> RenderableType:
    title = Text.assemble(styled(one_line(item.episode), "bold"), f"  refused · {item.stage}, attempt {item.attempt}")
    parts: list[RenderableType] = [title, ""]
    evidence = item.evidence()
    if evidence is None:
        parts += [_labelled([("persona", item.persona.text), ("answer", item.text or "could not be read")]), ""]
        parts += map(_violation, item.violations)
    else:
        parts += [_script(evidence.script, item.persona.text), ""]
        parts.append(_turns(evidence, _by_turn(item.violations, len(evidence.turns))))
    if item.draft is not None and item.draft.text_error is not None:
        parts += ["", styled(f"the text after these turns could not be read: {item.draft.text_error}", "red")]
    return Group(*parts)


def _script(script: Script, persona: str) -> Table:
    rows: list[tuple[str, str]] = [("persona", persona)]
    if script.introduction.strip():
        rows.append(("place", script.introduction.strip()))
    rows.append(("goal", script.goal))
    rows += [("done when" if row == 0 else "", text) for row, text in enumerate(script.completion_conditions)]
    common = _common_values(script.actions)
    rows += [("actions" if row == 0 else "", _action(action, common)) for row, action in enumerate(script.actions)]
    rows += [("values" if row == 0 else "", _values(name, common[name])) for row, name in enumerate(common)]
    return _labelled(rows)


def _common_values(actions: Sequence[ActionSpec]) -> dict[str, tuple[str, ...]]:
    """Placeholders with the same values in all actions that have them; these values are listed once."""
    by_name: dict[str, set[tuple[str, ...]]] = {}
    for action in actions:
        for name, values in action.parameters.items():
            by_name.setdefault(name, set()).add(values)
    return {name: values.pop() for name, values in by_name.items() if len(values) == 1}


def _action(action: ActionSpec, common: Mapping[str, tuple[str, ...]]) -> str:
    lines = [f"{action.name}: {action.description}" if action.description else action.name]
    lines += [f"  {_values(name, values)}" for name, values in action.parameters.items() if name not in common]
    return "\n".join(lines)


def _values(name: str, values: Sequence[str]) -> str:
    listed = values[:_MAX_VALUES]
    rest = f" and {len(values) - len(listed)} more" if len(values) > len(listed) else ""
    return f"{{{name}}} = {', '.join(listed) + rest if values else 'anything'}"


def _turns(draft: Draft, violations: Mapping[int, Sequence[Violation]]) -> Table:
    marked, turns = marks(draft), draft.turns
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", width=3, style="dim")
    table.add_column(width=6, style="dim")
    table.add_column(overflow="fold", ratio=1)
    for index, turn in enumerate(turns):
        mark = marked.get(index)
        speaker, *lines = _turn(turn, mark)
        for row, line in enumerate(lines):
            table.add_row(str(index + 1) if row == 0 else "", speaker if row == 0 else "", line)
        for violation in violations.get(index, ()):
            table.add_row("", "", _violation(violation))
    for violation in violations.get(len(turns), ()):
        table.add_row("", "", _violation(violation))
    return table


def _turn(turn: DraftTurn, mark: Mark | None) -> Iterator[Text | str]:
    if isinstance(turn, PlayerTurn):
        label = mark.label if mark else ""
        style = {"mistake": "red", "refinement": "green"}.get(label, "")
        yield "player" if turn.by is None else "repair"
        if not turn.parallel:
            yield styled(turn.thought)
        yield styled(f"{'+' if turn.parallel else '>'} {turn.action}", f"bold {style}".strip())
        if mark is not None and mark.kind is not None:
            yield styled(f"✗ mistake ({mark.kind.value}): kept as context, never trained on", style)
        elif mark is not None and mark.label == "refinement":
            yield styled(f"✓ refinement of {_numbers(mark.mistakes)}", style)
        elif mark is not None and mark.label == "abandoned":
            yield styled(f"✓ goes on without {_numbers(mark.mistakes)}", "green")
        elif mark is not None:
            yield styled(f"! {_numbers(mark.mistakes)} stays unanswered", "yellow")
    elif isinstance(turn, DungeonMasterTurn):
        yield "dm"
        yield styled(turn.observation, "cyan")
    else:
        yield "?"
        yield styled(f"✗ malformed turn: {turn.problem}", "red")
        yield styled(turn.raw, "dim")


def _numbers(turns: Sequence[int]) -> str:
    numbers = [str(turn + 1) for turn in turns]
    return f"turn {numbers[0]}" if len(numbers) == 1 else f"turns {', '.join(numbers[:-1])} and {numbers[-1]}"


def _violation(violation: Violation) -> Text:
    if violation.severity is Severity.WARN:
        return styled(f"! {violation.rule} ({violation.code}) warns: {violation.message}", "yellow")
    return styled(f"✗ {violation.rule} ({violation.code}): {violation.message}", "red")


def _by_turn(violations: Sequence[Violation], turns: int) -> dict[int, list[Violation]]:
    by_turn: dict[int, list[Violation]] = {}
    for violation in violations:
        by_turn.setdefault(min(violation.turn, turns), []).append(violation)
    return by_turn


def _provenance(provenance: Provenance) -> Table:
    roles: dict[str, list[str]] = {}
    for role, model in provenance.models.items():
        roles.setdefault(model, []).append(role.replace("_", " "))
    model_roles = "; ".join(f"{model} ({', '.join(names)})" for model, names in roles.items())
    usage = provenance.usage
    cost = "" if provenance.cost_usd is None else f", {dollars(provenance.cost_usd)}"
    usage_text = (
        f"{counted(provenance.script_attempts, 'script')}, {counted(provenance.attempts, 'draft')}, "
        f"{counted(usage.requests, 'request')}, {usage.input_tokens:,} + {usage.output_tokens:,} tokens{cost}"
    )
    form = ", player by tool calls" if provenance.player_form == "tools" else ""
    models = f", {model_roles}" if model_roles else ""
    origin = f"{provenance.play} play{form}{models}, seed {provenance.seed}, refinesynth {provenance.package_version}"
    return _labelled([("made by", origin), ("took", usage_text), ("rules", provenance.rules)], style="dim")


def _labelled(rows: Sequence[tuple[str, str]], *, style: str = "") -> Table:
    return labelled(((label, styled(text, style)) for label, text in rows), width=10)
