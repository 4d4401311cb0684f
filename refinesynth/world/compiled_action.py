"""Compiled actions and knowledge record of a rulebook; the ruling on an action, with the changes of the state."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

from pydantic import JsonValue

from refinesynth.actions.matching import action_form
from refinesynth.errors import Inapplicable, RulebookError, error_prefix
from refinesynth.trajectory import ActionSpec, ConditionalText, Effect, Knowledge, MistakeKind
from refinesynth.trajectory.turns import MAX_OBSERVATION
from refinesynth.world.condition import BEFORE, RESERVED
from refinesynth.world.effects import ELSE, CompiledEffect, Trace, compile_effect
from refinesynth.world.expression import NO_TYPES, Expression, Types, compile_expression, current_limit, json_bytes
from refinesynth.world.json_pointer import change, json_equal, pointer_text
from refinesynth.world.text_template import (
    Pointer,
    Template,
    Visible,
    enumerated,
    parse_pointer,
    parse_template,
    require_text,
)

MAX_CHANGES = 32
"""Maximum number of changes in a ruling."""

MAX_CHANGE_BYTES = 1_000
"""Largest value that a change shows, in bytes of JSON; a larger one is described by its size."""

MAX_LISTED_NAMES = 40
"""Maximum number of names in a sentence; the others are counted."""

MAX_SEARCHED = 20_000
"""Number of characters at the beginning of an observation that are searched for names."""

_MAX_COMPARED = 10 * MAX_SEARCHED
"""Maximum length of all examined occurrences of a name, in characters; reached only if they overlap."""


@dataclass(frozen=True, slots=True)
class Change:
    """A changed place of the state."""

    path: str
    """JSON Pointer."""
    before: JsonValue
    """Value before the action; null if there was none. A value that is too large is described in parentheses."""
    after: JsonValue
    """Value after the action, in the same form; null if there is none."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """Outcome of an action."""

    state: JsonValue
    """State after it; the given object if nothing changed."""
    kind: MistakeKind | None
    """Kind of the mistake; None for an accepted action."""
    text: str
    """Observation, hint of the unmet requirement, or message about a text that is no action. With sights, it ends with
    the names that appeared and that it does not mention; a refusal with effects can show names too."""
    action: str | None
    """Name template of the action; None for a text that is no action."""
    values: Mapping[str, str]
    """Its parameters in the script's spelling."""
    done: bool
    """True if the goal is reached."""
    progress: float
    """Share of the goal's conditions that hold, 0 to 1; 1 exactly if done."""
    problem: str | None = None
    """Fault of the rulebook or state, addressed to its author: a condition without an answer, an effect that cannot be
    applied, a broken invariant. Such an action counts as a logic mistake and changes nothing. Other mistakes change the
    state by the effects of the unmet requirement, if it has any."""
    visible: tuple[str, ...] = ()
    """Names that are visible after it."""
    appeared: tuple[str, ...] = ()
    """Names that are visible after it and were not before."""
    changed: tuple[Change, ...] = ()
    """Changes of the state, at most `MAX_CHANGES`."""


def state_changes(before: JsonValue, after: JsonValue) -> tuple[Change, ...]:
    """Return the differences between two states, in the order of the newer one's keys, at most `MAX_CHANGES`.

    Objects are compared by key. Lists of the same length that hold only objects and lists are compared by item.
    All other values are compared as a whole.
    """
    return tuple(islice(_changes((), before, after), MAX_CHANGES))


def with_appeared(text: str, appeared: tuple[str, ...]) -> str:
    """Return the observation with a sentence about appeared names that it does not mention."""
    unmentioned = [name for name in appeared if not mentions(text, name)]
    if len(unmentioned) > MAX_LISTED_NAMES:
        count = len(unmentioned) - MAX_LISTED_NAMES
        unmentioned = [*unmentioned[:MAX_LISTED_NAMES], f"{count} other things"]
    return f"{text} In sight: {enumerated(unmentioned)}." if unmentioned else text


def shown_part(observation: str) -> str:
    """Return the observation as the player reads it, at most `MAX_OBSERVATION` characters."""
    is_short = len(observation) <= MAX_OBSERVATION
    return observation if is_short else f"{observation[: MAX_OBSERVATION - 3].rstrip()}..."


def mentions(text: str, name: str) -> bool:
    """Return whether a name occurs in a text as whole words, without regard to case, within the first `MAX_SEARCHED`
    characters; an empty name never occurs.
    """
    # Not with a regular expression, which is slow for a long name that repeats itself.
    text, name = text[:MAX_SEARCHED].casefold(), name.casefold()
    start = text.find(name) if name else -1
    remaining = _MAX_COMPARED
    while start >= 0 and remaining > 0:
        end = start + len(name)
        starts_word = not (text[start - 1 : start].isalnum() and name[0].isalnum())
        ends_word = not (name[-1].isalnum() and text[end : end + 1].isalnum())
        if starts_word and ends_word:
            return True
        start, remaining = text.find(name, start + 1), remaining - len(name)
    return False


def _changes(keys: tuple[str, ...], before: JsonValue, after: JsonValue) -> Iterator[Change]:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in (*after, *(removed for removed in before if removed not in after)):
            if key not in before or key not in after:
                yield Change(pointer_text((*keys, key)), _abbreviated(before.get(key)), _abbreviated(after.get(key)))
            else:
                yield from _changes((*keys, key), before[key], after[key])
    elif (
        isinstance(before, list)
        and isinstance(after, list)
        and len(before) == len(after)
        and all(isinstance(item, dict | list) for item in (*before, *after))
    ):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changes((*keys, str(index)), old, new)
    elif not json_equal(before, after):
        yield Change(pointer_text(keys), _abbreviated(before), _abbreviated(after))


def _abbreviated(value: JsonValue) -> JsonValue:
    encoded = json_bytes(value)
    if encoded is not None and len(encoded) <= MAX_CHANGE_BYTES:
        return value
    if isinstance(value, dict | list):
        return f"({'an object' if isinstance(value, dict) else 'a list'} of {len(value):,})"
    return f"(a text of {len(str(value)):,} characters)"


DONE = "Done."
"""Default observation of an accepted action."""


@dataclass(frozen=True, slots=True)
class CompiledRequirement:
    """A requirement with a compiled condition."""

    condition: Expression
    kind: MistakeKind
    hint: Template
    effects: tuple[CompiledEffect, ...] = ()
    """Effects if this requirement refuses the action."""


@dataclass(frozen=True, slots=True)
class Unmet:
    """The first requirement that does not hold."""

    index: int
    """Its index."""
    requirement: CompiledRequirement
    problem: str | None
    """Reason why the condition has no answer; None if it is false."""


@dataclass(frozen=True, slots=True)
class CompiledAction:
    """A compiled action of a rulebook."""

    spec: ActionSpec
    requires: tuple[CompiledRequirement, ...]
    effects: tuple[CompiledEffect, ...]
    """Its own effects, then those of each step."""
    reveals: tuple[tuple[Expression | None, Template], ...]
    """Observations with their conditions; the last one has none."""

    def first_unmet(self, state: JsonValue, values: Mapping[str, str]) -> Unmet | None:
        """Return the first requirement that does not hold, if any."""
        for index, requirement in enumerate(self.requires):
            answer = requirement.condition.answer(state, values)
            if answer is not True:
                fault = f"requirement {index + 1} of {self.spec.name!r}: {answer}" if isinstance(answer, str) else None
                return Unmet(index, requirement, fault)
        return None

    def observation(
        self, before: JsonValue, new: JsonValue, values: Mapping[str, str], trace: Trace | None = None
    ) -> Template:
        """Return the template of the observation of a step: the first one whose condition holds after it."""
        variables, (*conditional, default) = {BEFORE: before, **values}, self.reveals
        for number, (when, text) in enumerate(conditional, 1):
            answer = when is None or when.answer(new, variables)
            if trace is not None:
                trace(f"text {number} of reveals of {self.spec.name!r}", answer)
            if answer is True:
                return text
        return default[1]


@dataclass(frozen=True, slots=True)
class CompiledKnowledge:
    """Compiled record of texts that the player has read."""

    path: Pointer
    texts: tuple[str, ...]

    def update(self, state: JsonValue, observation: str, values: Mapping[str, str]) -> JsonValue:
        """Return the state with the texts added that the shown part of the observation mentions and no value of the
        action does.

        Raises:
            Inapplicable: There is no list at the path.
        """
        keys, observation = self.path.keys(state, {}), shown_part(observation)
        limit = current_limit()
        limit.charge(limit.state_bytes)

        def add_texts(known: JsonValue) -> JsonValue:
            if not isinstance(known, list):
                raise Inapplicable(f"what the player knows is no list at {pointer_text(keys)}")
            # A text in the action's own values is the player's guess, not read. It may be part of a longer value.
            learned = {
                text
                for text in self.texts
                if text not in known
                and mentions(observation, text)
                and not any(mentions(value, text) for value in values.values())
            }
            # In the record's order, not in order of reading, which is irrelevant to the world.
            others = [text for text in known if text not in self.texts]
            return [*others, *(text for text in self.texts if text in known or text in learned)] if learned else known

        return change(state, keys, add_texts)


def compile_effects(
    effects: Iterable[Effect], names: frozenset[str], visible: Visible, owner: str, types: Types = NO_TYPES
) -> tuple[CompiledEffect, ...]:
    """Compile effects; `owner` names theirs in messages. Raises RulebookError as `compile_effect` does."""
    compiled: list[CompiledEffect] = []
    for number, effect in enumerate(effects, 1):
        with error_prefix(f"effect {number}"):
            new = compile_effect(effect, names, visible, f"effect {number} of {owner}", types)
            last = compiled[-1] if compiled else None
            if new.is_else and (last is None or not (last.is_else or (last.when and last.each is None))):
                raise RulebookError(
                    f"`when` is {ELSE!r}, but the effect before it has no `when`, or has `each`; write a condition"
                )
            compiled.append(new)
    return tuple(compiled)


def compile_action(
    spec: ActionSpec, index: int, visible: Visible, each_step: tuple[CompiledEffect, ...] = ()
) -> CompiledAction:
    """Compile an action; raises RulebookError for a part that cannot be executed. `index` is for messages."""
    with error_prefix(f"action {index + 1}, {spec.name[:80]!r}"):
        if problem := action_form(spec).problem:
            raise RulebookError(problem)
        names = frozenset(spec.placeholders)
        if used := names & RESERVED:
            raise RulebookError(f"no parameter can be called {min(used)!r}, which has a meaning of its own; rename it")
        if BEFORE in names and any(effect.reads_before for effect in each_step):
            raise RulebookError(f"no parameter can be called {BEFORE!r}, which each_step asks for; rename it")
        requires: list[CompiledRequirement] = []
        for number, requirement in enumerate(spec.requires, 1):
            with error_prefix(f"requirement {number}"):
                condition = compile_expression(requirement.condition, names, visible=visible, types=spec.types)
                hint = parse_template(requirement.hint, names, visible)
                owner = f"requirement {number} of {spec.name!r}"
                refusal_effects = compile_effects(requirement.effects, names, visible, owner, spec.types)
                requires.append(CompiledRequirement(condition, requirement.kind, hint, refusal_effects))
        effects = compile_effects(spec.effects, names, visible, repr(spec.name), spec.types)
        with error_prefix("reveals"):
            reveals = tuple(_compile_observations(spec.reveals or DONE, names, visible, spec.types))
    return CompiledAction(spec, tuple(requires), (*effects, *each_step), reveals)


def _compile_observations(
    reveals: str | tuple[ConditionalText, ...], names: frozenset[str], visible: Visible, types: Types
) -> Iterator[tuple[Expression | None, Template]]:
    texts = (ConditionalText(text=reveals),) if isinstance(reveals, str) else reveals
    compiled = partial(compile_expression, parameters=names, visible=visible, before=True, types=types)
    for number, observation in enumerate(texts, 1):
        if (observation.when is None) != (number == len(texts)):
            raise RulebookError(f"text {number} of {len(texts)}: the last one, and it alone, has no `when`")
        when = None if observation.when is None else compiled(observation.when)
        yield when, parse_template(observation.text or DONE, names, visible)


def compile_knowledge(knows: Knowledge) -> CompiledKnowledge:
    """Compile a knowledge record; raises RulebookError if the path does not parse or a text is blank or no UTF-8."""
    with error_prefix("knows"):
        for text in knows.texts:
            require_text(text)
            if not text.strip():
                raise RulebookError("a text that is to be read is blank")
        return CompiledKnowledge(parse_pointer(knows.path, frozenset()), knows.texts)
