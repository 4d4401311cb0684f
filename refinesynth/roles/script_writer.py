"""Writes the script of an episode from its persona (paper, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic_ai.models import Model

from refinesynth.prompts import Prompts
from refinesynth.roles.answers import SCRIPT
from refinesynth.roles.asking import Calls, ask
from refinesynth.roles.forms import AnswerForm, object_form
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
        return await ask(_form(self.prompts), request, model=self.model, calls=self.calls, answers=self.answers)


@lru_cache(maxsize=4)
def _form(prompts: Prompts) -> AnswerForm[Script]:
    instructions = prompts.fill("script_writer", "instructions", examples=prompts.examples.scripts)
    return object_form(SCRIPT, name="script", instructions=instructions, read=Script.from_llm)
