"""Writes the script of an episode from its persona (paper, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from refinesynth.prompts import Kind, Prompts, drawn
from refinesynth.prompts.blocks import Shown
from refinesynth.roles.answers import SCRIPT
from refinesynth.roles.asking import Actor
from refinesynth.roles.forms import AnswerForm, object_form
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import Persona, Script


@dataclass
class ScriptWriter(Actor):
    """One verb: `write`."""

    seed: int = 0
    """Draws the examples that are shown."""

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
        examples = drawn(_examples(self.prompts), Kind.SCRIPTS, self.seed)
        instructions = self.prompts.fill("script_writer", "instructions", examples=examples)
        return await self.ask(_form(), request, instructions=instructions)


@lru_cache(maxsize=4)
def _examples(prompts: Prompts) -> tuple[Shown, ...]:
    """Each encoded once: every episode shows some of them."""
    return tuple(map(Shown, prompts.examples.scripts))


@cache
def _form() -> AnswerForm[Script]:
    return object_form(SCRIPT, name="script", read=Script.from_llm)
