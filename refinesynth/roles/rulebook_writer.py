"""Writes scripts whose worlds can be executed, from a persona: in one call, or the world first and then a goal for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from pydantic import JsonValue

from refinesynth.prompts import Kind, Prompts, drawn
from refinesynth.prompts.blocks import Shown
from refinesynth.roles.answers import GOAL, GROUNDED_SCRIPT, WORLD
from refinesynth.roles.asking import Actor
from refinesynth.roles.forms import AnswerForm, object_form
from refinesynth.roles.rulebooks import goal_part, read_goal, read_grounded, read_world, world_part
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import Persona, Script

Wanted = Mapping[str, JsonValue]
"""What is asked of a script besides its persona: `features`, and `actions`, the fewest and most of its shortest solution."""


@dataclass
class RulebookWriter(Actor):
    """The ScriptWriter of grounded play. One verb, `write`, for those who want a script at once; two steps for the others.

    Nothing promises that what comes passes the script rules. Each raises `InvalidAnswer` if no answer could be read.
    """

    seed: int = 0
    """Draws the examples that are shown."""

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
        return await self._ask(_script_form(), request, "rulebook_writer", examples)

    async def write_world(
        self,
        persona: Persona,
        *,
        wanted: Wanted,
        violations: Sequence[Violation] = (),
        previous: Script | None = None,
    ) -> Script:
        """The first step: a script whose goal is not written yet, see `rulebooks.read_world`."""
        request = self.prompts.fill(
            "world_writer",
            "request",
            persona=persona.text,
            wanted={"step": "world", **wanted},
            previous=None if previous is None else world_part(previous),
            violations=[violation.message for violation in violations],
        )
        examples = [world_part(script) for script in drawn(self.prompts.examples.grounded, Kind.GROUNDED, self.seed)]
        return await self._ask(_world_form(), request, "world_writer", examples)

    async def write_goal(
        self,
        persona: Persona,
        world: Script,
        reachable: Mapping[str, JsonValue],
        *,
        wanted: Wanted,
        violations: Sequence[Violation] = (),
        previous: Script | None = None,
    ) -> Script:
        """The second step: `world` with a goal. `reachable` says what can come about in it."""
        request = self.prompts.fill(
            "goal_writer",
            "request",
            persona=persona.text,
            world=world_part(world),
            reachable=reachable,
            wanted={"step": "goal", **wanted},
            previous=None if previous is None else goal_part(previous),
            violations=[violation.message for violation in violations],
        )
        # One is enough to show the form; with its world it is long.
        shown = drawn(self.prompts.examples.grounded, Kind.GROUNDED, self.seed, most=1)
        examples = [{"world": world_part(script), "answer": goal_part(script)} for script in shown]
        form = object_form(GOAL, name="goal", read=lambda answer: read_goal(answer, world))
        return await self._ask(form, request, "goal_writer", examples)

    async def _ask(self, form: AnswerForm[Script], request: str, template: str, examples: Sequence[object]) -> Script:
        return await self.ask(
            form, request, instructions=self.prompts.fill(template, "instructions", examples=examples)
        )


@lru_cache(maxsize=4)
def _scripts(prompts: Prompts) -> tuple[Shown, ...]:
    """Each encoded once: every episode shows some of them."""
    return tuple(map(Shown, prompts.examples.grounded))


@cache
def _script_form() -> AnswerForm[Script]:
    return object_form(GROUNDED_SCRIPT, name="script", read=read_grounded)


@cache
def _world_form() -> AnswerForm[Script]:
    return object_form(WORLD, name="world", read=read_world)
