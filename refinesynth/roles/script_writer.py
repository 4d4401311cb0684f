"""Writes the script of an episode from its persona (paper, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models import Model

from refinesynth.prompts import Prompts
from refinesynth.roles.answers import SCRIPT
from refinesynth.roles.asking import Calls, ask, structured
from refinesynth.roles.feedback import PlainFeedback
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import Persona, Script


@dataclass
class ScriptWriter:
    """One verb: `write`."""

    model: Model
    prompts: Prompts
    answers: int = 2
    """How often an invalid answer goes back to the model."""
    calls: Calls = field(default_factory=Calls)
    _agent: Agent[object, dict[str, Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        instructions = self.prompts.fill("script_writer", "instructions", examples=self.prompts.examples.scripts)
        self._agent = structured(
            schema=SCRIPT, name="script", instructions=instructions, answers=self.answers, check=Script.from_llm
        )

    async def write(
        self, persona: Persona, *, violations: Sequence[Violation] = (), previous: Script | None = None
    ) -> Script:
        """A script for `persona`; `violations` say what was wrong with `previous`, or with one that could not be read.

        Nothing promises that it passes the script rules.

        Raises:
            InvalidAnswer: No answer was a script.
        """
        request = self.prompts.fill(
            "script_writer",
            "request",
            persona=persona.text,
            previous=previous,
            violations=[violation.message for violation in violations],
        )
        return Script.from_llm(await ask(self._agent, request, model=PlainFeedback(self.model), calls=self.calls))
