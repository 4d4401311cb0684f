"""Writes the script of an episode from its persona (paper, section 3.1), in grounded play with its rulebook."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import ClassVar

from pydantic import JsonValue

from refinesynth.prompts import Kind, Prompts, drawn
from refinesynth.prompts.blocks import Shown
from refinesynth.roles.answers import GROUNDED_SCRIPT, SCRIPT
from refinesynth.roles.asking import Actor
from refinesynth.roles.forms import AnswerForm, object_form
from refinesynth.roles.rulebooks import read_grounded
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import Persona, Script


@dataclass
class ScriptWriter(Actor):
    """One verb: `write`."""

    seed: int = 0
    """Draws the examples that are shown."""

    _template: ClassVar[str] = "script_writer"
    _kind: ClassVar[Kind] = Kind.SCRIPTS

    async def write(
        self, persona: Persona, *, violations: Sequence[Violation] = (), previous: Script | None = None
    ) -> Script:
        """A script for `persona`; `violations` say what was wrong with `previous`, or with one that could not be read.

        Nothing promises that it passes the script rules.

        Raises:
            InvalidAnswer: No answer was a script.
        """
        request = self.prompts.fill(
            self._template,
            "request",
            persona=persona.text,
            previous=previous,
            violations=[violation.message for violation in violations],
            **self._more(),
        )
        examples = drawn(_examples(self.prompts, self._kind), self._kind, self.seed)
        instructions = self.prompts.fill(self._template, "instructions", examples=examples)
        return await self.ask(_form(self._kind), request, instructions=instructions)

    def _more(self) -> Mapping[str, object]:
        return {}


@dataclass
class RulebookWriter(ScriptWriter):
    """The ScriptWriter of grounded play: a script comes with its rulebook."""

    wanted: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """What is asked of a script besides its persona: `features`, and `actions`, the fewest and most of its shortest
    solution."""

    _template: ClassVar[str] = "rulebook_writer"
    _kind: ClassVar[Kind] = Kind.GROUNDED

    def _more(self) -> Mapping[str, object]:
        return {"wanted": {"step": "all", **self.wanted}}


@lru_cache(maxsize=8)
def _examples(prompts: Prompts, kind: Kind) -> tuple[Shown, ...]:
    """Each encoded once: every episode shows some of them."""
    return tuple(map(Shown, getattr(prompts.examples, kind)))


@cache
def _form(kind: Kind) -> AnswerForm[Script]:
    schema, read = (GROUNDED_SCRIPT, read_grounded) if kind is Kind.GROUNDED else (SCRIPT, Script.from_llm)
    return object_form(schema, name="script", read=read)
