"""ScriptWriter: writes the script of an episode from its persona (paper, section 3.1), in grounded play with a
rulebook.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, ClassVar, cast

from pydantic import JsonValue

from refinesynth.prompts import Kind, Prompts, drawn
from refinesynth.prompts.data_blocks import Shown
from refinesynth.roles.actor import Actor, InvalidAnswer
from refinesynth.roles.output_forms import AnswerForm, object_form
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
            **self._more(),
        )
        if self.tools:
            tools = [{"action": one.name, **one.function} for one in self.tools if one.function]
            grounded = self._kind is Kind.GROUNDED
            request += "\n\n" + self.prompts.fill("given_tools", "request", tools=tools, grounded=grounded)
        if self.state is not None:
            request += "\n\n" + self.prompts.fill("tool_server", "writer", state=self.state)
        examples = drawn(_examples(self.prompts, self._kind), self._kind, self.seed)
        instructions = self.prompts.fill(self._template, "instructions", examples=examples)
        least = 0 if self.tools else self.prompts.required.get("ActionCount", {}).get("least", 0)
        form = _form(self._kind, least, given=bool(self.tools))
        return self._with_tools(await self.ask(form, request, instructions=instructions))

    def _with_tools(self, script: Script) -> Script:
        """Return the script with the given actions unchanged, each with the laws written under its name.

        Raises InvalidAnswer: a given action of an executed world has no laws.
        """
        laws = {action.name.partition(" ")[0]: {at: getattr(action, at) for at in _LAWS} for action in script.actions}
        given = {tool.name.partition(" ")[0]: tool for tool in self.tools}
        if script.grounded and (missing := given.keys() - laws.keys()):
            raise InvalidAnswer(f"actions: there are no laws for {', '.join(sorted(missing))}")
        actions = (tool.model_copy(update=laws.get(name)) for name, tool in given.items())
        return script.model_copy(update={"actions": tuple(actions)}) if given else script

    def _more(self) -> Mapping[str, object]:
        return {}


@dataclass
class RulebookWriter(ScriptWriter):
    """ScriptWriter of grounded play, whose scripts have rulebooks."""

    wanted: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Wishes besides the persona: `features`, and `actions`, the range of the shortest solution's length."""

    _template: ClassVar[str] = "rulebook_writer"
    _kind: ClassVar[Kind] = Kind.GROUNDED

    def _more(self) -> Mapping[str, object]:
        return {"wanted": {"step": "all", **self.wanted}}


@lru_cache(maxsize=8)
def _examples(prompts: Prompts, kind: Kind) -> tuple[Shown, ...]:
    """Examples by index, each encoded once because every episode shows some of them."""
    return tuple(map(Shown, getattr(prompts.examples, kind)))


@cache
def _form(kind: Kind, least: int, *, given: bool) -> AnswerForm[Script]:
    schema, read = (GROUNDED_SCRIPT, read_grounded) if kind is Kind.GROUNDED else (SCRIPT, Script.from_llm)
    if not given:
        return object_form(with_least(schema, "actions", least), name="script", read=read)
    of_tools = GROUNDED_OF_TOOLS if kind is Kind.GROUNDED else OF_TOOLS
    return object_form(of_tools, name="script", read=lambda answer: read(_with_laws_alone(answer)))


def _with_laws_alone(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer with only the names and laws of its actions, each with the placeholder pattern `.`."""
    actions = map(_object, _listed(answer.get("actions")))
    kept = [{at: one[at] for at in ("name", *_LAWS) if at in one} for one in actions]
    return {**answer, "actions": [{"pattern": ".", **one} for one in kept]}


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
    given = _repaired(answer)
    if given.get("rulebook") is None:
        raise ValueError("rulebook: Field required; an object with goal, sights, invariants and solution")
    return Script.from_llm(given)


def _repaired(answer: object) -> dict[str, Any]:
    given = _object(answer)
    actions = given.get("actions")
    if isinstance(actions, Mapping):  # the paper's form
        by_name = cast("Mapping[str, Any]", actions)
        given["actions"] = {name: _action(action) for name, action in by_name.items()}
    elif isinstance(actions, list):
        given["actions"] = [_action(action) for action in cast("list[Any]", actions)]
    if isinstance(given.get("rulebook"), Mapping):
        given["rulebook"] = _rulebook(_object(given["rulebook"]))
    return given


def _action(action: Any) -> Any:
    if not isinstance(action, Mapping):
        return action
    given = _object(cast("object", action))
    given["requires"] = [_requirement(item) for item in _listed(given.get("requires"))]
    given["effects"] = [_effect(item) for item in _listed(given.get("effects"))]
    given["reveals"] = given.get("reveals") or ""
    if isinstance(given["reveals"], list | dict):
        given["reveals"] = [_said(_named(item, "text")) for item in _listed(given["reveals"])]
    return given


def _requirement(item: Any) -> Any:
    given = _named(item, "condition")
    if isinstance(given, dict):
        found = cast("dict[str, Any]", given)
        kind = found.get("kind")
        if isinstance(kind, str):
            found["kind"] = kind.strip().casefold().removesuffix("_error").removesuffix(" error")
        found["effects"] = [_effect(item) for item in _listed(found.get("effects"))]
        return _said(found)
    return given


def _said(item: Any) -> Any:
    """Return an object without empty values."""
    if not isinstance(item, dict):
        return item
    return {name: value for name, value in cast("dict[str, Any]", item).items() if value not in (None, "")}


def _effect(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    given = _object(cast("object", item))
    op = given.get("op")
    if isinstance(op, str):
        word = op.strip().casefold()
        given["op"] = _OPS.get(word, word)
    given.setdefault("from_path", given.get("from"))
    for name in ("from_path", "when", "each"):
        given[name] = given[name] if given.get(name) not in (None, "") else None
    return given


def _rulebook(given: dict[str, Any]) -> dict[str, Any]:
    sights = [_named(item, "path") for item in _listed(given.get("sights"))]
    given["sights"] = [_said(sight) for sight in sights]
    given["each_step"] = [_effect(item) for item in _listed(given.get("each_step"))]
    if not _object(given.get("knows")).get("texts"):
        given["knows"] = None
    given["invariants"] = [_named(item, "condition") for item in _listed(given.get("invariants"))]
    if isinstance(given.get("goal"), str):
        given["goal"] = [given["goal"]]
    given["solution"] = [
        cast("Mapping[str, Any]", step).get("action", step) if isinstance(step, Mapping) else step
        for step in _listed(given.get("solution"))
    ]
    return given


def _named(item: Any, key: str) -> Any:
    """Return a text in the place of an object as that object, with the text under its one required key."""
    if isinstance(item, str):
        return {key: item}
    return _object(cast("object", item)) if isinstance(item, Mapping) else item


def _listed(value: Any) -> list[Any]:
    """Return a list unchanged, an empty list for None, and another value as the only item of a list."""
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _object(value: object) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}
