"""Writes a whole trajectory, both voices, in one answer (paper, section 3.2 and Algorithm 1; narrated play)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
from pydantic import JsonValue
from pydantic_ai import Agent
from pydantic_ai.models import Model

from refinesynth.prompts import Prompts
from refinesynth.roles.answers import TURNS
from refinesynth.roles.asking import Calls, InvalidAnswer, ask, structured
from refinesynth.roles.feedback import PlainFeedback
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import Draft, DungeonMasterTurn, PlayerTurn, Script, read_turns


@dataclass
class Narrator:
    """One verb: `tell`."""

    model: Model
    prompts: Prompts
    minimum: int = 2
    """How many mistakes a trajectory is to hold at least."""
    answers: int = 2
    """How often an answer that holds no list of turns goes back to the model."""
    calls: Calls = field(default_factory=Calls)
    _agent: Agent[object, dict[str, Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        example = self.prompts.examples.trajectory
        instructions = self.prompts.fill(
            "narrator",
            "instructions",
            minimum=self.minimum,
            example={"script": example.script, "turns": example.turns},
        )
        self._agent = structured(
            schema=TURNS, name="turns", instructions=instructions, answers=self.answers, check=_readable
        )

    async def tell(
        self,
        script: Script,
        verified: Sequence[PlayerTurn | DungeonMasterTurn] = (),
        *,
        violations: Sequence[Violation] = (),
    ) -> Draft:
        """A whole draft that begins with the turns `verified`; `violations` say what was wrong with an earlier one.

        A turn that cannot be read is in the draft as a `MalformedTurn`; an answer that cannot be read at all sets
        `text_error`. For both there are rules.
        """
        request = self.prompts.fill(
            "narrator",
            "request",
            script=script,
            verified=list(verified),
            minimum=self.minimum,
            violations=[violation.message for violation in violations],
        )
        try:
            answer = await ask(self._agent, request, model=PlainFeedback(self.model), calls=self.calls)
        except InvalidAnswer as error:
            return Draft(script=script, turns=tuple(verified), text_error=error.problem)
        return Draft.from_text(script, orjson.dumps(answer).decode(), prefix=verified)


def _readable(answer: object) -> None:
    read_turns(cast("JsonValue", answer))
