"""Rules about the shape of a script: number of actions, their names and parameters, size of the environment.

Script rules read `draft.script` only. Their violations are at turn 0 and keep no prefix, because a script is
regenerated as a whole.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, count, product
from math import prod
from typing import Annotated, cast

from pydantic import Field, JsonValue

from refinesynth.actions.matching import MAX_ACTION_CHARACTERS, action_form, match_action, match_pattern, other_patterns
from refinesynth.actions.patterns import Pattern, to_utf8
from refinesynth.rules.rule import BaseRule, BuiltInRule, Violation, all_of, verify
from refinesynth.text.formatting import control_character, folded, quoted
from refinesynth.text.json_reader import depth, write_json
from refinesynth.trajectory import ActionSpec, Draft, Script

SAMPLES = (
    "something", "two words", "7", "3.5", "50%", "notes.txt", "/home/user/notes.txt", "14:30", "2024-05-13", "A1",
    "user@example.org", "https://example.org/", "+44 20 7946 0000", "mode=on", "true", "x",
)  # fmt: skip
"""Sample values of a parameter with open values."""

MAX_EXHAUSTIVE = 64
"""Maximum number of value combinations that are all tried; beyond it, a covering set is used."""


def fillings(action: ActionSpec, *, limit: int) -> Iterator[list[dict[str, str]]]:
    """Yield at most `limit` assignments of values to placeholders, each once per item of `SAMPLES` in open parameters;
    once if there are none.

    All combinations if there are at most `MAX_EXHAUSTIVE`. Otherwise as many rows as the longest list, so every allowed
    value occurs, and then the lists shifted against each other, so values are combined differently.
    """
    # A type has sample values; open text has none.
    lists = {name: action.choices(name) or action.type_of(name).samples() for name in action.placeholders}
    open_names = [name for name, values in lists.items() if not values]
    closed = {name: values for name, values in lists.items() if values}
    for row in _rows([*closed.values()], limit):
        values = dict(zip(closed, row, strict=True))
        yield [{**values, **dict.fromkeys(open_names, sample)} for sample in SAMPLES] if open_names else [values]


def _rows(lists: list[tuple[str, ...]], most: int) -> Iterator[tuple[str, ...]]:
    if prod(map(len, lists)) <= min(MAX_EXHAUSTIVE, most):
        yield from product(*lists)
        return
    max_length = max(map(len, lists))
    for row in range(min(most, 2 * max_length)):
        shift = row // max_length
        yield tuple(values[(row + shift * column) % len(values)] for column, values in enumerate(lists))


MAX_ACTIONS_READ = 100
"""Maximum number of written actions that are examined, which bounds the work; `ActionCount` refuses larger scripts
anyway."""


class ScriptRule(BaseRule):
    """Base class of rules about the script only."""

    def fault(self, code: str, message: str) -> Violation:
        """Return a violation of the whole script."""
        return self.violation(0, code, message, keeps_prefix=False)

    def actions(self, draft: Draft) -> tuple[ActionSpec, ...]:
        """Return the script's actions: all functions of a user, and at most `MAX_ACTIONS_READ` written ones."""
        written = count()
        return tuple(action for action in draft.script.actions if action.function or next(written) < MAX_ACTIONS_READ)


class ActionCount(BuiltInRule, ScriptRule):
    """The number of written actions is within limits; else code `too_few_actions` or `too_many_actions`. A user's
    functions do not count, and beside them there may be few.
    """

    least: Annotated[int, Field(ge=0)] = 3
    most: Annotated[int, Field(ge=1)] = 40

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        actions = draft.script.actions
        written = sum(action.function is None for action in actions)
        problem = f"The script has {written} available actions; write {self.least} to {self.most}."
        if written > self.most:
            yield self.fault("too_many_actions", problem)
        elif written < self.least and written == len(actions):
            yield self.fault("too_few_actions", problem)


class UniqueNames(BuiltInRule, ScriptRule):
    """Action names are unique, without regard to case and white space; else code `same_name`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        seen: set[str] = set()
        for action in self.actions(draft):
            name = folded(action.name)
            if name in seen:
                yield self.fault("same_name", f"Two actions are called {quoted(action.name)}. Rename or merge them.")
            seen.add(name)


class PlaceholdersHaveParameters(BuiltInRule, ScriptRule):
    """Placeholders and parameters correspond one to one.

    Codes: `placeholder_without_parameter`, `parameter_without_placeholder`, `placeholder_repeated`, `too_many_values`,
    `type_does_not_fit`.
    """

    values: Annotated[int, Field(ge=1)] = 500
    """Maximum number of allowed values of a parameter; the player reads all of them, and the pattern is tried on each.
    """

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            name, placeholders = quoted(action.name), action.placeholders
            if len(set(placeholders)) < len(placeholders):
                message = f"{name} has a placeholder twice. Give each its own name."
                yield self.fault("placeholder_repeated", message)
            for placeholder in sorted(set(placeholders) - set(action.parameters)):
                message = f"In {name}, the placeholder {quoted(placeholder)} has no entry in the action's parameters."
                yield self.fault("placeholder_without_parameter", message)
            for parameter in sorted(set(action.parameters) - set(placeholders)):
                message = f"{name} has a parameter {quoted(parameter)}, but no placeholder in braces of that name."
                yield self.fault("parameter_without_placeholder", message)
            for parameter, values in action.parameters.items():
                if len(values) > self.values:
                    message = (
                        f"In {name}, the parameter {quoted(parameter)} has {len(values):,} allowed values. List at most "
                        f"{self.values}, or none if any value will do."
                    )
                    yield self.fault("too_many_values", message)
            for parameter, kind in action.types.items():
                unnamed = [] if parameter in placeholders else ["no placeholder has this name"]
                for problem in (*unnamed, *kind.problems(action.parameters.get(parameter, ())))[:1]:
                    message = f"In {name}, the type of {quoted(parameter)} does not fit: {problem}."
                    yield self.fault("type_does_not_fit", message)


class EnvironmentLimits(BuiltInRule, ScriptRule):
    """The environment is not empty, too deep or too large. Introduction, goal, completion conditions and actions hold
    no control characters.

    Codes: `environment_empty`, `environment_too_deep`, `environment_too_large`, `control_character`.
    """

    characters: Annotated[int, Field(ge=1)] = 50_000
    """Size as JSON without white space, in bytes of UTF-8."""
    depth: Annotated[int, Field(ge=1, le=200)] = 12
    """Nesting levels; an object of scalars has one."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        script, actions = draft.script, self.actions(draft)
        spoken = (text for one in actions for text in (one.name, one.description, *chain(*one.parameters.values())))
        for part, texts in (
            ("introduction", (script.introduction,)),
            ("goal", (script.goal,)),
            ("completion conditions", script.completion_conditions),
            ("available actions", spoken),
        ):
            if name := control_character("".join(texts)):
                message = f"The script holds the control character {name} in its {part}. Write it without."
                yield self.fault("control_character", message)
        environment = script.environment
        if not environment:
            message = "The environment is empty. Describe places, things and the player's state."
            yield self.fault("environment_empty", message)
        elif depth(cast("JsonValue", environment), limit=self.depth + 1) > self.depth:
            message = f"The environment is nested deeper than {self.depth} levels. Make it flatter."
            yield self.fault("environment_too_deep", message)
        elif (size := len(write_json(environment))) > self.characters:
            message = f"The environment has {size:,} bytes as JSON; at most {self.characters:,} are allowed."
            yield self.fault("environment_too_large", message)


class PatternsCompile(BuiltInRule, ScriptRule):
    """RE2 accepts each pattern within the length limit; else code `pattern_refused`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            form = action_form(action)
            if form.pattern is None:
                message = (
                    f"The pattern of {quoted(action.name)} cannot be used: {form.problem}. Write it in RE2 syntax, without "
                    "look-around and backreferences."
                )
                yield self.fault("pattern_refused", message)


class GroupsFitPlaceholders(BuiltInRule, ScriptRule):
    """Each pattern captures each placeholder once, by name or in order; else code `groups_do_not_fit`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            form = action_form(action)
            if form.pattern is not None and form.problem is not None:
                yield self.fault("groups_do_not_fit", f"In {quoted(action.name)}, {form.problem}.")


class PatternsMatchTheirTemplates(BuiltInRule, ScriptRule):
    """Each pattern matches its own template, filled with each allowed value, and captures these values; else code
    `misses_template`.

    For an open parameter, one matching sample is sufficient. One violation per action.
    """

    fillings: Annotated[int, Field(ge=1)] = 1_000
    """Maximum number of value combinations per action, see `fillings`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            if (text := _mismatch(action, self.fillings)) is not None:
                message = (
                    f"The pattern {quoted(action.pattern)} does not match its own action {quoted(text)}, "
                    "or captures other values than those filled in. Mend the pattern of "
                    f"{quoted(action.name)}: the whole text must match, each group one value."
                )
                yield self.fault("misses_template", message)


def _mismatch(action: ActionSpec, limit: int) -> str | None:
    """Return the first filled template that the action's pattern does not read back; None if there is none."""
    rows = fillings(action, limit=limit) if action_form(action).problem is None else ()
    failed = (row for row in rows if not any(map(partial(_round_trips, action), row)))
    return next((action.fill(row[0]) for row in failed), None)


class PatternsAreUnambiguous(BuiltInRule, ScriptRule):
    """No pattern matches another action's filled template; else code `ambiguous`.

    One violation per pair of actions.
    """

    fillings: Annotated[int, Field(ge=1)] = 40
    """Maximum number of value combinations per action; 40 actions need 1,560 times as many matches."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        forms = [(action, action_form(action)) for action in self.actions(draft)]
        usable = [(action, form.pattern) for action, form in forms if form.pattern is not None and form.problem is None]
        for (other, own), text in sorted(_also_matched(usable, limit=self.fillings).items()):
            if other != own:
                message = (
                    f"The pattern of {quoted(usable[other][0].name)} also matches {quoted(text.decode(errors='replace'))}, "
                    f"which is {quoted(usable[own][0].name)}. Make the patterns tell the two apart."
                )
                yield self.fault("ambiguous", message)


class PatternsNeedText(BuiltInRule, ScriptRule):
    """No pattern matches the empty text; else code `matches_nothing`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            pattern = action_form(action).pattern
            if pattern is not None and pattern.fullmatch(b"") is not None:
                message = f"The pattern of {quoted(action.name)} matches an empty action. Make it ask for text."
                yield self.fault("matches_nothing", message)


SHAPE: tuple[ScriptRule, ...] = (
    ActionCount(),
    UniqueNames(),
    PlaceholdersHaveParameters(),
    EnvironmentLimits(),
    PatternsCompile(),
    GroupsFitPlaceholders(),
    PatternsNeedText(),
    PatternsMatchTheirTemplates(),
    PatternsAreUnambiguous(),
)
"""Rules about the shape of a script, in the order of the chain `script`."""

_PATTERN_RULES = all_of(PatternsCompile(), GroupsFitPlaceholders(), PatternsMatchTheirTemplates(), PatternsNeedText())


def with_fitting_patterns(script: Script) -> tuple[Script, int]:
    """Return the script with a new pattern for each action whose own one fails the checks while the new one passes, and
    the number of replacements.
    """

    def passes(action: ActionSpec) -> bool:
        return verify(Draft(script=script.model_copy(update={"actions": (action,)})), _PATTERN_RULES).accepted

    def fitting(action: ActionSpec) -> ActionSpec:
        others = (action.model_copy(update={"pattern": pattern}) for pattern in other_patterns(action))
        return next(filter(passes, (action, *others)), action)

    actions = tuple(map(fitting, script.actions[:MAX_ACTIONS_READ])) + script.actions[MAX_ACTIONS_READ:]
    changed = sum(new is not old for new, old in zip(actions, script.actions, strict=True))
    return (script.model_copy(update={"actions": actions}), changed) if changed else (script, 0)


def _round_trips(action: ActionSpec, values: dict[str, str]) -> bool:
    text = action.fill(values)
    if match_pattern(action, text) == values and text.strip():
        return True
    match = match_action((action,), text)
    return match is not None and all(folded(match.values[name]) == folded(value) for name, value in values.items())


def _also_matched(usable: Sequence[tuple[ActionSpec, Pattern]], *, limit: int) -> dict[tuple[int, int], bytes]:
    """Return, by the numbers of two actions, the first filled template of the second that the pattern of the first
    matches.

    Only fillings that the action's own pattern matches are used, or all if it matches none; at most `limit` per action.
    """
    matched: dict[tuple[int, int], bytes] = {}
    for number, (action, pattern) in enumerate(usable):
        filled = (action.fill(values) for assignments in fillings(action, limit=limit) for values in assignments)
        texts = [to_utf8(text.strip()[:MAX_ACTION_CHARACTERS]) for text in filled]
        for text in (list(filter(pattern.matches, texts)) or texts)[:limit]:
            for other, (_, other_pattern) in enumerate(usable):
                if other_pattern.matches(text):
                    matched.setdefault((other, number), text)
    return matched
