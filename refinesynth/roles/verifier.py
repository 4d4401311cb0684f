"""Verifier: accepts or refuses a draft by rules, and optionally by an LLM judge."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from refinesynth.roles.actor import Actor, InvalidAnswer
from refinesynth.roles.schemas import Judgement
from refinesynth.rules.rule import BaseRule, Rule, Verdict, Violation, verify
from refinesynth.trajectory import Draft, MalformedTurn


@dataclass
class Judge(Actor):
    """LLM judge of facts that rules cannot check, for a draft (`opine`) or one turn (`rate`). Off by default, because
    the method is rule-based.
    """

    async def opine(self, draft: Draft) -> Violation | None:
        """Return the objection to a draft, or None. An invalid judgement counts as an objection."""
        try:
            judgement = await self.answer(
                "judge", Judgement, Judgement.read, script=draft.script, trajectory=draft.turns
            )
        except InvalidAnswer as error:
            return _objection("no_judgement", str(error))
        return None if judgement.accepted else _objection("unsound", judgement.reason)

    async def rate(self, task: object, history: object, turn: object) -> tuple[bool, str]:
        """Return whether the turn's action is right, and the reason; raises as `ask` does."""
        judgement = await self.answer("turn_judge", Judgement, Judgement.read, task=task, history=history, turn=turn)
        return judgement.accepted, judgement.reason


def _objection(code: str, reason: str) -> Violation:
    return Violation(rule="Judge", turn=0, code=code, message=reason, keeps_prefix=False)


@dataclass
class Verifier:
    """Role with one verb, `verify`."""

    rules: Rule
    judge: Judge | None = None
    accepted: Draft | None = field(default=None, init=False, repr=False)
    """The finished draft accepted last."""

    async def verify(self, draft: Draft) -> Verdict:
        """Return the verdict of the rules and, for an accepted finished draft, of the judge.

        Under any rules, a finished draft is refused if it has malformed turns, no turns, or text that cannot be read.
        """
        verdict = verify(draft, self.rules)
        if not verdict.accepted or not draft.finished:
            return verdict
        well_formed = verify(draft, WellFormed())
        if not well_formed.accepted:
            return well_formed.model_copy(update={"violations": (*verdict.violations, *well_formed.violations)})
        objection = None if self.judge is None else await self.judge.opine(draft)
        if objection is not None:
            return Verdict(accepted=False, violations=(*verdict.violations, objection), verified_turns=0)
        self.accepted = draft
        return verdict


@dataclass(frozen=True)
class WellFormed(BaseRule):
    """Requirements on every trajectory, independent of the rules."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for index, turn in enumerate(draft.turns):
            if isinstance(turn, MalformedTurn):
                yield self.violation(index, "wrong_keys", turn.problem)
        if draft.text_error is not None:
            yield self.violation(len(draft.turns), "not_json", draft.text_error)
        elif not draft.turns:
            yield self.violation(0, "no_turns", "There are no turns. Write the turns from the first one on.")
