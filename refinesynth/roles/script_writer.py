"""ScriptWriter: writes the script of an episode from its persona (paper, section 3.1), in grounded play with a
rulebook.
"""

from collections.abc import Callable, Mapping, Sequence
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
    actions = (action if _is_object(action) else {} for action in _objects(answer.get("actions")))
    reduced = [{field: action[field] for field in ("name", *_LAWS) if field in action} for action in actions]
    return {**answer, "actions": [{"pattern": ".", **action} for action in reduced]}


_LAWS = ("requires", "effects", "reveals")

_OPS = {
    word: op
    for op, words in {"add": "append push insert increment", "remove": "delete", "set": "replace put assign"}.items()
    for word in words.split()
}
"""Accepted synonyms of effect operations."""


def read_grounded(answer: object) -> Script:
    """Read a grounded script from a model's answer. Unknown keys are dropped and common errors of form repaired; the
    laws are not checked.

    Raises:
        pydantic.ValidationError: A required value is missing or of the wrong kind.
        ValueError: There is no rulebook.
    """
    [script] = _objects([answer], _repair_script)
    if not _is_object(script) or script.get("rulebook") is None:
        raise ValueError("rulebook: Field required; an object with goal, sights, invariants and solution")
    return Script.from_llm(script)


def _repair_script(script: dict[str, Any]) -> None:
    actions = script.get("actions")
    if _is_object(actions):  # the paper's form
        script["actions"] = dict(zip(actions, _objects([*actions.values()], _repair_action), strict=True))
    elif isinstance(actions, list):
        script["actions"] = _objects(actions, _repair_action)
    if _is_object(script.get("rulebook")):
        [script["rulebook"]] = _objects(script["rulebook"], _repair_rulebook)


def _repair_action(action: dict[str, Any]) -> None:
    action["requires"] = _objects(action.get("requires"), _repair_requirement, "condition")
    action["effects"] = _objects(action.get("effects"), _repair_effect)
    action["reveals"] = action.get("reveals") or ""
    if isinstance(action["reveals"], list | dict):
        action["reveals"] = _objects(action["reveals"], _drop_empty, "text")


def _repair_requirement(requirement: dict[str, Any]) -> None:
    kind = requirement.get("kind")
    if isinstance(kind, str):
        requirement["kind"] = kind.strip().casefold().removesuffix("_error").removesuffix(" error")
    requirement["effects"] = _objects(requirement.get("effects"), _repair_effect)
    _drop_empty(requirement)


def _repair_effect(effect: dict[str, Any]) -> None:
    if isinstance(effect.get("op"), str):
        word = effect["op"].strip().casefold()
        effect["op"] = _OPS.get(word, word)
    effect.setdefault("from_path", effect.get("from"))
    for name in ("from_path", "when", "each"):
        effect[name] = None if effect.get(name) == "" else effect.get(name)


def _repair_rulebook(rulebook: dict[str, Any]) -> None:
    rulebook["sights"] = _objects(rulebook.get("sights"), _drop_empty, "path")
    rulebook["each_step"] = _objects(rulebook.get("each_step"), _repair_effect)
    if not (_is_object(knows := rulebook.get("knows")) and knows.get("texts")):
        rulebook["knows"] = None
    rulebook["invariants"] = _objects(rulebook.get("invariants"), key="condition")
    if isinstance(rulebook.get("goal"), str):
        rulebook["goal"] = [rulebook["goal"]]
    solution = _objects(rulebook.get("solution"))
    rulebook["solution"] = [step.get("action", step) if _is_object(step) else step for step in solution]


def _drop_empty(fields: dict[str, Any]) -> None:
    for name in [name for name, value in fields.items() if value in (None, "")]:
        del fields[name]


def _objects(value: Any, repair: Callable[[dict[str, Any]], None] | None = None, key: str = "") -> list[Any]:
    """Return copies of the objects in a list, each repaired; a single value counts as a list of one, None as an empty
    list. With `key`, a text stands for the object with this text under its one required key. Other items stay.
    """
    objects: list[Any] = []
    for item in cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]:
        copy = {key: item} if key and isinstance(item, str) else item.copy() if _is_object(item) else item
        if repair is not None and _is_object(copy):
            repair(copy)
        objects.append(copy)
    return objects


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
