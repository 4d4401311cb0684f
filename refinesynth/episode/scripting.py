"""Write scripts until one passes (paper, section 3.1: a script that fails the action check is generated again)."""

from collections.abc import Awaitable, Callable, Sequence

from refinesynth.episode.record import Record
from refinesynth.episode.settings import EpisodeSettings
from refinesynth.roles import InvalidAnswer
from refinesynth.rules.rule import Verdict, Violation, rejects
from refinesynth.tracing import ACCEPTED, span
from refinesynth.trajectory import Script

Write = Callable[[Sequence[Violation], Script | None], Awaitable[Script]]
"""Writes a script, told what was wrong with the last one and which that was."""


async def until_accepted(
    write: Write, judge: Callable[[Script], Verdict], record: Record, settings: EpisodeSettings
) -> Script | None:
    """The first script that `judge` accepts, each refused one being told to the next `write`; None when the attempts are used up."""
    previous: Script | None = None
    violations: tuple[Violation, ...] = ()
    while record.scripts < settings.attempts.scripts:
        record.begin_script()
        try:
            script = await traced(write, violations, previous, record)
        except InvalidAnswer as error:
            previous, violations = None, (invalid_answer(0, error),)
            record.refuse_script(None, violations, text=str(error))
            continue
        verdict = judged(script, judge)
        if verdict.accepted:
            return script
        record.refuse_script(script, verdict.violations)
        previous, violations = script, tuple(filter(rejects, verdict.violations))
    return None


async def traced(write: Write, violations: Sequence[Violation], previous: Script | None, record: Record) -> Script:
    """One script, as an attempt of its episode's trace."""
    with span("attempt", stage="script", number=record.scripts):
        return await write(violations, previous)


def judged(script: Script, judge: Callable[[Script], Verdict]) -> Verdict:
    """The verdict on a script, as part of its episode's trace."""
    with span("verify", stage="script") as verifying:
        verdict = judge(script)
        verifying.set_attribute(ACCEPTED, verdict.accepted)
    return verdict


def invalid_answer(turn: int, error: InvalidAnswer) -> Violation:
    """An answer that stayed invalid, as a violation at the turn where it was wanted; counted as rule `Answer`."""
    return Violation(rule="Answer", turn=turn, code="invalid_answer", message=str(error))
