"""Write scripts until one passes (paper, section 3.1: a script that fails the action check is generated again)."""

from refinesynth.episode.record import Record
from refinesynth.episode.settings import EpisodeSettings
from refinesynth.roles import InvalidAnswer, ScriptWriter
from refinesynth.rules.rule import Rule, Verdict, Violation, all_of, rejects, verify
from refinesynth.tracing import ACCEPTED, span
from refinesynth.trajectory import Draft, Script


async def write_script(
    writer: ScriptWriter, record: Record, settings: EpisodeSettings, *, needs: Rule | None = None
) -> Script | None:
    """The first script that the script rules accept, or None when the attempts are used up.

    Each refused script goes back to the writer with what is wrong with it. What `needs` refuses is never accepted, whatever the
    script rules are.
    """
    previous: Script | None = None
    violations: tuple[Violation, ...] = ()
    while record.scripts < settings.attempts.scripts:
        record.begin_script()
        try:
            with span("attempt", stage="script", number=record.scripts):
                script = await writer.write(record.persona, violations=violations, previous=previous)
        except InvalidAnswer as error:
            previous, violations = None, (invalid_answer(0, error),)
            record.refuse_script(None, violations, text=str(error))
            continue
        verdict = _judged(script, settings.script_rules, all_of() if needs is None else needs)
        if verdict.accepted:
            return script
        record.refuse_script(script, verdict.violations)
        previous, violations = script, tuple(filter(rejects, verdict.violations))
    return None


def _judged(script: Script, rules: Rule, needs: Rule) -> Verdict:
    draft = Draft(script=script, finished=False)
    with span("verify", stage="script") as verifying:
        verdict = verify(draft, rules)
        if verdict.accepted:
            verdict = verify(draft, needs)
        verifying.set_attribute(ACCEPTED, verdict.accepted)
    return verdict


def invalid_answer(turn: int, error: InvalidAnswer) -> Violation:
    """An answer that stayed invalid, as a violation at the turn where it was wanted; counted as rule `Answer`."""
    return Violation(rule="Answer", turn=turn, code="invalid_answer", message=str(error))
