"""An accepted trajectory, or a refused script or draft, as a sample of an Inspect log.

The messages are the task and the turns. A thought stands as reasoning before what was done or seen; below that stand the
DungeonMaster's flags, what the turn is (`✗` a mistake, `✓` a refinement) and what rules found there. All of it is made
printable.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from inspect_ai.log import EvalSample
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

from refinesynth.chat import render_task
from refinesynth.outcome import Refused
from refinesynth.rules import Severity, Violation
from refinesynth.rules.marks import Mark, Mistake, Refinement, marks
from refinesynth.rules.repairs import refinements
from refinesynth.text.printable import printable
from refinesynth.trajectory import Draft, DraftTurn, DungeonMasterTurn, MalformedTurn, PlayerTurn, Trajectory, Usage

VERDICT = "verdict"


def sample_of(record: Trajectory | Refused, *, id_: str, models: str) -> EvalSample:
    """The record under an id that no other sample of its log has; `models` is what the log says of the models."""
    accepted = isinstance(record, Trajectory)
    draft = record.draft() if accepted else record.evidence()
    scores = _accepted(record) if accepted else _refused(record)
    took, cost = (record.provenance.usage, record.provenance.cost_usd) if accepted else (record.usage, record.cost_usd)
    violations = () if accepted else record.violations
    about = {"provenance"} if accepted else {"episode", "stage", "attempt"}
    sample: dict[str, Any] = {
        "id": id_,
        "epoch": 1,
        "input": printable(draft.script.goal) if draft else "no script that could be read",
        "target": [*map(printable, draft.script.completion_conditions)] if draft else "",
        "messages": list(_messages(draft, violations)) if draft else _unreadable(scores[VERDICT]),
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


def _accepted(trajectory: Trajectory) -> dict[str, Score]:
    found = refinements(trajectory)
    return {
        VERDICT: Score(value="accepted", explanation=printable(f"by {trajectory.provenance.rules}")),
        **_counts(trajectory.draft()),
        "refinements": Score(
            value=found.answered,
            explanation=f"mistakes that a later action answers; {found.unrelated} only followed by unrelated ones",
        ),
    }


def _refused(item: Refused) -> dict[str, Score]:
    """The verdict is the first rule that refused it; each rule that found something has a score beside."""
    by_rule: dict[str, list[Violation]] = {}
    for violation in item.violations:
        by_rule.setdefault(printable(violation.rule), []).append(violation)
    refusal = next(iter(item.rejecting), "unreadable" if item.evidence() is None else "broken off")
    why = "\n".join([*filter(None, [item.text]), *map(_told, item.violations)]) or "neither accepted nor refused"
    return {
        **{
            rule: Score(value=_codes(found), explanation="\n".join(map(_told, found)))
            for rule, found in by_rule.items()
        },
        VERDICT: Score(value=printable(refusal), explanation=printable(why)),
        "stage": Score(value=f"{item.stage} {item.attempt}", explanation="what was refused, and the how-many-th of it"),
        **(_counts(item.draft) if item.draft else {}),
    }


def _codes(found: Sequence[Violation]) -> str:
    return printable(", ".join(dict.fromkeys(one.code for one in found)))


def _told(violation: Violation) -> str:
    warns = " warns" if violation.severity is Severity.WARN else ""
    text = f"{violation.rule} ({violation.code}){warns}, turn {violation.turn + 1}: {violation.message}"
    return printable(f"{'!' if warns else '✗'} {text}")


def _counts(draft: Draft) -> dict[str, Score]:
    mistakes = {at: mark for at, mark in marks(draft).items() if isinstance(mark, Mistake)}
    told = "; ".join(f"turn {at + 1}: {mark.kind.value}" for at, mark in mistakes.items())
    return {
        "mistakes": Score(value=len(mistakes), explanation=told or "none"),
        "turns": Score(value=len(draft.turns), explanation="of the player and the DungeonMaster"),
    }


def _messages(draft: Draft, violations: Sequence[Violation]) -> Iterator[ChatMessage]:
    yield ChatMessageUser(content=printable(render_task(draft.script)))
    marked, end = marks(draft), len(draft.turns)
    for at, turn in enumerate(draft.turns):
        found = [_told(one) for one in violations if one.turn == at]
        blocks = _blocks(turn, [*_marked(at + 1, marked.get(at)), *found])
        yield ChatMessageAssistant(content=blocks) if isinstance(turn, PlayerTurn) else ChatMessageUser(content=blocks)
    rest = [_told(one) for one in violations if one.turn >= end]
    if draft.text_error is not None:
        rest.insert(0, f"✗ the text after these turns could not be read: {draft.text_error}")
    if rest:
        yield ChatMessageUser(content=printable("\n".join(rest)))


def _unreadable(verdict: Score) -> list[ChatMessage]:
    return [ChatMessageUser(content=verdict.explanation or "")]


def _blocks(turn: DraftTurn, notes: Sequence[str]) -> list[Content]:
    """What was thought, and what was said with the notes below."""
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
    elif mark is not None:
        yield f"! turn {number}, unrelated to {_numbers(mark.after)}, which nothing answers"


def _numbers(turns: Sequence[int]) -> str:
    return f"turn{'s' if len(turns) > 1 else ''} {', '.join(str(at + 1) for at in turns)}"
