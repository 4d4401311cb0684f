"""ScriptWriter: writes the script of an episode from its persona (paper, section 3.1), in grounded play with a
rulebook.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, TypeGuard, cast

from pydantic import JsonValue

from refinesynth.prompts import Kind, drawn
from refinesynth.roles.actor import Actor, AnswerForm, InvalidAnswer, object_form
from refinesynth.roles.schemas import GROUNDED_OF_TOOLS, GROUNDED_SCRIPT, OF_TOOLS, SCRIPT, with_least
from refinesynth.rules.rule import Violation
from refinesynth.trajectory import ActionSpec, Persona, Script


@dataclass
class ScriptWriter(Actor):
    """Role with one verb, `write`."""

    seed: int = 0
    """Seed for the choice of examples."""
    tools: tuple[ActionSpec, ...] = ()
    """Given actions, which the script must use unchanged."""

    state: str | None = None
    """State of the program that executes the tools, may be empty; None without such a program."""

    _template: ClassVar[str] = "script_writer"
    _kind: ClassVar[Kind] = Kind.SCRIPTS

    async def write(
        self, persona: Persona, *, violations: Sequence[Violation] = (), previous: Script | None = None
    ) -> Script:
        """Write a script for `persona`; `violations` are feedback about `previous` or about an unreadable answer.

        The script rules may still refuse the result.

        Raises:
            InvalidAnswer: No answer was a script.
        """
        request = self.prompts.fill(
            self._template,
            "request",
            persona=persona.text,
            previous=previous,
            violations=[violation.message for violation in violations],
            **self._extra_data(),
        )
        if self.tools:
            tools = [{"action": tool.name, **tool.function} for tool in self.tools if tool.function]
            grounded = self._kind is Kind.GROUNDED
            request += "\n\n" + self.prompts.fill("given_tools", "request", tools=tools, grounded=grounded)
        if self.state is not None:
            request += "\n\n" + self.prompts.fill("tool_server", "writer", state=self.state)
        examples = drawn(getattr(self.prompts.examples, self._kind), self._kind, self.seed)
        instructions = self.prompts.fill(self._template, "instructions", examples=examples)
        min_actions = 0 if self.tools else self.prompts.required.get("ActionCount", {}).get("least", 0)
        form = _form(self._kind, min_actions, given_tools=bool(self.tools))
        return self._with_tools(await self.ask(form, request, instructions=instructions))

    def _with_tools(self, script: Script) -> Script:
        """Return the script with the given actions unchanged, each with the laws written under its name.

        Raises InvalidAnswer: a given action of an executed world has no laws.
        """
        laws = {
            action.name.partition(" ")[0]: {field: getattr(action, field) for field in _LAWS}
            for action in script.actions
        }
        tools = {tool.name.partition(" ")[0]: tool for tool in self.tools}
        if script.grounded and (missing := tools.keys() - laws.keys()):
            raise InvalidAnswer(f"actions: there are no laws for {', '.join(sorted(missing))}")
        actions = (tool.model_copy(update=laws.get(name)) for name, tool in tools.items())
        return script.model_copy(update={"actions": tuple(actions)}) if tools else script

    def _extra_data(self) -> Mapping[str, object]:
        return {}


@dataclass
class RulebookWriter(ScriptWriter):
    """ScriptWriter of grounded play, whose scripts have rulebooks."""

    wanted: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Wishes besides the persona: `features`, and `actions`, the range of the shortest solution's length."""

    _template: ClassVar[str] = "rulebook_writer"
    _kind: ClassVar[Kind] = Kind.GROUNDED

    def _extra_data(self) -> Mapping[str, object]:
        return {"wanted": {"step": "all", **self.wanted}}


@cache
def _form(kind: Kind, min_actions: int, *, given_tools: bool) -> AnswerForm[Script]:
    schema, read = (GROUNDED_SCRIPT, read_grounded) if kind is Kind.GROUNDED else (SCRIPT, Script.from_llm)
    if not given_tools:
        return object_form(with_least(schema, "actions", min_actions), name="script", read=read)
    of_tools = GROUNDED_OF_TOOLS if kind is Kind.GROUNDED else OF_TOOLS
    return object_form(of_tools, name="script", read=lambda answer: read(_only_laws(answer)))


def _only_laws(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer with only the names and laws of its actions, each with the placeholder pattern `.`. Other items
    become actions without a name, which are refused.
    """
    actions: object = answer.get("actions")
    listed = cast("list[object]", actions) if isinstance(actions, list) else []
    objects = (action if _is_object(action) else {} for action in listed)
    reduced = [{field: action[field] for field in ("name", *_LAWS) if field in action} for action in objects]
    return {**answer, "actions": [{"pattern": ".", **action} for action in reduced]}


_LAWS = ("requires", "effects", "reveals")

_OPTIONAL = frozenset({"from_path", "when", "each", "hint", "sentence", "each_step", "knows", *_LAWS})


def read_grounded(answer: object) -> Script:
    """Read a grounded script from a model's answer. Unknown keys are dropped, and so are optional ones that are null or
    an empty text; the laws are not checked.

    Raises:
        pydantic.ValidationError: A required value is missing or of the wrong kind.
        ValueError: There is no rulebook.
    """
    if not _is_object(answer) or answer.get("rulebook") is None:
        raise ValueError("rulebook: Field required; an object with goal, sights, invariants and solution")
    laws = {name: _without_empty(answer[name]) for name in ("actions", "rulebook") if name in answer}
    return Script.from_llm({**answer, **laws})


def _without_empty(part: Any) -> Any:
    """Return a part of a script without empty optional keys, except within the value of an effect."""
    if isinstance(part, list):
        return [*map(_without_empty, cast("list[Any]", part))]
    if not _is_object(part):
        return part
    kept = ((name, value) for name, value in part.items() if name not in _OPTIONAL or value not in (None, ""))
    return {name: value if name == "value" else _without_empty(value) for name, value in kept}


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
