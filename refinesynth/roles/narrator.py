"""Narrator: writes a whole trajectory with both voices in one answer (paper, section 3.2 and Algorithm 1; narrated
play).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from refinesynth.prompts import Kind, drawn
from refinesynth.roles.actor import Actor, AnswerForm, InvalidAnswer, object_form
from refinesynth.roles.schemas import TURNS, with_least
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import Answer, Draft, DungeonMasterTurn, PlayerTurn, Script, read_answer


@dataclass
class Narrator(Actor):
    """Role with one verb, `tell`."""

    minimum: int = 2
    """Minimum number of mistakes in the trajectory."""
    seed: int = 0
    """Seed for the choice of the example."""

    async def tell(
        self,
        script: Script,
        verified: Sequence[PlayerTurn | DungeonMasterTurn] = (),
        *,
        violations: Sequence[Violation] = (),
    ) -> Draft:
        """Return a whole draft that begins with `verified`; `violations` are feedback about an earlier draft.

        An unreadable turn becomes a `MalformedTurn`; an unreadable answer sets `text_error`. Rules check both.
        """
        request = self.prompts.fill(
            "narrator",
            "request",
            script=script,
            verified=list(verified),
            minimum=self.minimum,
            violations=[violation.message for violation in violations],
        )
        (example,) = drawn(self.prompts.examples.trajectories, Kind.TRAJECTORIES, self.seed, most=1)
        example_data = {"script": example.script, "answer": {"turns": example.turns}}
        instructions = self.prompts.fill("narrator", "instructions", minimum=self.minimum, example=example_data)
        try:
            # A continuation has at least one exchange; a complete draft has one more exchange per required mistake.
            form = _form(2 if verified else 2 * self.minimum + 2)
            answer = await self.ask(form, request, instructions=instructions)
        except InvalidAnswer as error:
            return Draft(script=script, turns=tuple(verified), text_error=error.problem)
        return Draft.continued(script, answer, prefix=verified)


@cache
def _form(min_turns: int) -> AnswerForm[Answer]:
    form = object_form(with_least(TURNS, "turns", min_turns), name="turns", read=read_answer, list_key="turns")

    def load(value: object) -> Answer:
        answer = form.load(value)
        return answer.with_text_form(value) if isinstance(value, str) else answer

    return replace(form, load=load)
