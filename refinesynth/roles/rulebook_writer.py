"""Writes scripts whose worlds can be executed, from a persona."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

from pydantic import JsonValue
from pydantic_ai.models import Model

from refinesynth.prompts import Kind, Prompts, drawn
from refinesynth.prompts.blocks import Shown
from refinesynth.roles.answers import GROUNDED_SCRIPT
from refinesynth.roles.asking import Calls, ask
from refinesynth.roles.forms import AnswerForm, object_form
from refinesynth.roles.rulebooks import read_grounded
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import Persona, Script

Wanted = Mapping[str, JsonValue]
"""What is asked of a script besides its persona: `features`, and `actions`, the fewest and most of its shortest solution."""


@dataclass
class RulebookWriter:
    """The ScriptWriter of grounded play.

    Nothing promises that what comes passes the script rules. `write` raises `InvalidAnswer` if no answer could be read.
    """

    model: Model
    prompts: Prompts
    answers: int = 2
    """How often an invalid answer goes back to the model."""
    seed: int = 0
    """Draws the examples that are shown."""
    calls: Calls = field(default_factory=Calls)

    async def write(
        self,
        persona: Persona,
        *,
        wanted: Wanted,
        violations: Sequence[Violation] = (),
        previous: Script | None = None,
    ) -> Script:
        """A grounded script; `violations` say what was wrong with `previous`, or with one that could not be read."""
        request = self.prompts.fill(
            "rulebook_writer",
            "request",
            persona=persona.text,
            wanted={"step": "all", **wanted},
            previous=previous,
            violations=[violation.message for violation in violations],
        )
        examples = drawn(_scripts(self.prompts), Kind.GROUNDED, self.seed)
        return await ask(
            _script_form(),
            request,
            model=self.model,
            calls=self.calls,
            answers=self.answers,
            instructions=self.prompts.fill("rulebook_writer", "instructions", examples=examples),
        )


@lru_cache(maxsize=4)
def _scripts(prompts: Prompts) -> tuple[Shown, ...]:
    """Each encoded once: every episode shows some of them."""
    return tuple(map(Shown, prompts.examples.grounded))


@cache
def _script_form() -> AnswerForm[Script]:
    return object_form(GROUNDED_SCRIPT, name="script", read=read_grounded)
