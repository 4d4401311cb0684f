"""The shape of a script: how many actions, their names and parameters, the environment's size.

Script rules look at `draft.script` alone. What they find is at turn 0 and keeps no prefix: a script is regenerated as a
whole.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, product
from math import prod
from typing import Annotated, cast

from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass

from refinesynth.actions.matching import (
    MAX_ACTION_CHARACTERS,
    action_form,
    match_action,
    match_pattern,
    other_patterns,
)
from refinesynth.actions.patterns import Pattern, PatternSet, to_utf8
from refinesynth.actions.wording import folded, quoted
from refinesynth.rules.rule import FIELDS, BaseRule, Violation, all_of, verify
from refinesynth.text.json_reader import depth, write_json
from refinesynth.text.printable import control_character
from refinesynth.trajectory import ActionSpec, Draft, Script

SAMPLES = (
    "something", "two words", "7", "3.5", "50%", "notes.txt", "/home/user/notes.txt", "14:30", "2024-05-13", "A1",
    "user@example.org", "https://example.org/", "+44 20 7946 0000", "mode=on", "true", "x",
)  # fmt: skip
"""Values tried for a parameter that takes any."""

EXHAUSTIVE = 64
"""Up to so many combinations of values, all are tried; beyond, a covering set."""


def fillings(action: ActionSpec, *, most: int) -> Iterator[dict[str, str]]:
    """Values by placeholder, at most `most` times.

    All combinations up to `EXHAUSTIVE`, a parameter that takes any value counting as one. Else as many rows as the
    longest list, so that every allowed value occurs, and then the same lists shifted against each other, so that values
    meet others. Parameters that take any value get `SAMPLES` in turn, one for each row.
    """
    names = action.placeholders
    lists = [_samples(action, name) for name in names]
    rows = _rows([values for values in lists if values], most)
    if all(lists):
        yield from (dict(zip(names, row, strict=True)) for row in rows)
        return
    for number, row in enumerate(rows):
        given = iter(row)
        sample = SAMPLES[number % len(SAMPLES)]
        yield {name: next(given) if values else sample for name, values in zip(names, lists, strict=True)}


def with_samples(action: ActionSpec, values: dict[str, str]) -> Sequence[dict[str, str]]:
    """`values` again, once for each of `SAMPLES` in the parameters that take any value; once, if there are none."""
    free = [name for name in values if not _samples(action, name)]
    return [{**values, **dict.fromkeys(free, sample)} for sample in SAMPLES] if free else (values,)


def _samples(action: ActionSpec, name: str) -> tuple[str, ...]:
    """Return the values that a parameter may take, or some of its type; none where it takes any text."""
    kind = action.type_of(name)
    found = action.choices(name)
    if found or kind.type == "string":
        return found
    bounds = [bound for bound in (kind.minimum, kind.maximum) if bound is not None] or [3, 12.5]
    return tuple(filter(None, (kind.spelled(f"{bound:.15g}") for bound in bounds)))


def _rows(lists: list[tuple[str, ...]], most: int) -> Iterator[tuple[str, ...]]:
    if prod(map(len, lists)) <= min(EXHAUSTIVE, most):
        yield from product(*lists)
        return
    longest = max(map(len, lists))
    for row in range(min(most, 2 * longest)):
        shift = row // longest
        yield tuple(values[(row + shift * at) % len(values)] for at, values in enumerate(lists))


MAX_ACTIONS_READ = 100
"""Most actions of a script that are examined. `ActionCount` refuses scripts long before; this bounds the work on
one."""


class ScriptRule(BaseRule):
    """A rule about the script alone."""

    def fault(self, code: str, message: str) -> Violation:
        """A violation of the whole script."""
        return self.violation(0, code, message, keeps_prefix=False)

    def actions(self, draft: Draft) -> tuple[ActionSpec, ...]:
        """The script's actions, the first `MAX_ACTIONS_READ` of them."""
        return draft.script.actions[:MAX_ACTIONS_READ]


@dataclass(frozen=True, config=FIELDS)
class ActionCount(ScriptRule, built_in=True):
    """Neither too few nor too many actions; else code `too_few_actions` or `too_many_actions`."""

    least: Annotated[int, Field(ge=0)] = 3
    most: Annotated[int, Field(ge=1)] = 40

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        count = len(draft.script.actions)
        wanted = f"write {self.least} to {self.most}"
        if count < self.least:
            yield self.fault("too_few_actions", f"The script has {count} available actions; {wanted}.")
        elif count > self.most:
            yield self.fault("too_many_actions", f"The script has {count} available actions; {wanted}.")


@dataclass(frozen=True, config=FIELDS)
class UniqueNames(ScriptRule, built_in=True):
    """No two actions have one name, without regard to case and white space; else code `same_name`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        seen: set[str] = set()
        for action in self.actions(draft):
            name = folded(action.name)
            if name in seen:
                yield self.fault("same_name", f"Two actions are called {quoted(action.name)}. Rename or merge them.")
            seen.add(name)


@dataclass(frozen=True, config=FIELDS)
class PlaceholdersHaveParameters(ScriptRule, built_in=True):
    """Every placeholder has a parameter and the reverse, each once.

    Codes: `placeholder_without_parameter`, `parameter_without_placeholder`, `placeholder_repeated`, `too_many_values`,
    `type_does_not_fit`.
    """

    values: Annotated[int, Field(ge=1)] = 500
    """Most allowed values of one parameter: so many are read to the player and tried on the pattern."""

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
                found = kind.problems(action.parameters.get(parameter, ()))
                if parameter not in placeholders:
                    found = ["no placeholder has this name"]
                for problem in found[:1]:
                    yield self.fault(
                        "type_does_not_fit", f"In {name}, the type of {quoted(parameter)} does not fit: {problem}."
                    )


@dataclass(frozen=True, config=FIELDS)
class EnvironmentLimits(ScriptRule, built_in=True):
    """The environment says something, and not too much; what the player reads of the script holds no control character.

    Codes: `environment_empty`, `environment_too_deep`, `environment_too_large`, `control_character`.
    """

    characters: Annotated[int, Field(ge=1)] = 50_000
    """Length as JSON without white space, in bytes of UTF-8."""
    depth: Annotated[int, Field(ge=1, le=200)] = 12
    """Nesting levels; an object of scalars has one."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        script = draft.script
        for what, texts in (
            ("introduction", (script.introduction,)),
            ("goal", (script.goal,)),
            ("completion conditions", script.completion_conditions),
            ("available actions", _action_texts(self.actions(draft))),
        ):
            if found := control_character("".join(texts)):
                message = f"The script holds the control character {found} in its {what}. Write it without."
                yield self.fault("control_character", message)
        environment = script.environment
        if not environment:
            yield self.fault(
                "environment_empty", "The environment is empty. Describe places, things and the player's state."
            )
            return
        if depth(cast("JsonValue", environment), limit=self.depth + 1) > self.depth:
            message = f"The environment is nested deeper than {self.depth} levels. Make it flatter."
            yield self.fault("environment_too_deep", message)
            return
        size = len(write_json(environment))
        if size > self.characters:
            message = f"The environment has {size:,} characters as JSON; at most {self.characters:,} are allowed."
            yield self.fault("environment_too_large", message)


def _action_texts(actions: tuple[ActionSpec, ...]) -> Iterator[str]:
    for action in actions:
        yield from (action.name, action.description, *chain.from_iterable(action.parameters.values()))


@dataclass(frozen=True, config=FIELDS)
class PatternsCompile(ScriptRule, built_in=True):
    """RE2 takes each pattern, within the limit of length; else code `pattern_refused`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            form = action_form(action)
            if form.pattern is None:
                message = (
                    f"The pattern of {quoted(action.name)} cannot be used: {form.problem}. Write it in RE2 syntax, without "
                    "look-around and backreferences."
                )
                yield self.fault("pattern_refused", message)


@dataclass(frozen=True, config=FIELDS)
class GroupsFitPlaceholders(ScriptRule, built_in=True):
    """Each pattern captures each placeholder once, by name or in order; else code `groups_do_not_fit`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            form = action_form(action)
            if form.pattern is not None and not form.fits:
                yield self.fault("groups_do_not_fit", f"In {quoted(action.name)}, {form.problem}.")


@dataclass(frozen=True, config=FIELDS)
class PatternsMatchTheirTemplates(ScriptRule, built_in=True):
    """Each pattern matches its own template, filled with each allowed value, and captures these; else
    `misses_template`.

    Where a parameter takes any value, it is enough that one of a number of samples matches. One violation per action.
    """

    fillings: Annotated[int, Field(ge=1)] = 1_000
    """Most combinations of values tried for one action; see `fillings.fillings`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            if not action_form(action).fits:
                continue
            for values in fillings(action, most=self.fillings):
                if not any(map(partial(_reads_back, action), with_samples(action, values))):
                    message = (
                        f"The pattern {quoted(action.pattern)} does not match its own action {quoted(action.fill(values))}, "
                        "or captures other values than those filled in. Mend the pattern of "
                        f"{quoted(action.name)}: the whole text must match, each group one value."
                    )
                    yield self.fault("misses_template", message)
                    break


@dataclass(frozen=True, config=FIELDS)
class PatternsAreUnambiguous(ScriptRule, built_in=True):
    """No pattern matches another action's filled template, with any values; else code `ambiguous`.

    One violation per pair of actions.
    """

    fillings: Annotated[int, Field(ge=1)] = 40
    """Most combinations of values tried for one action; with 40 actions, 1,560 times as many matches."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        forms = [(action, action_form(action)) for action in self.actions(draft)]
        usable = [(action, form.pattern) for action, form in forms if form.pattern is not None and form.fits]
        matched = _also_matched(usable, most=self.fillings)
        for other, one in product(range(len(usable)), range(len(usable))):
            text = matched.get((other, one))
            if other != one and text is not None:
                message = (
                    f"The pattern of {quoted(usable[other][0].name)} also matches {quoted(text.decode(errors='replace'))}, "
                    f"which is {quoted(usable[one][0].name)}. Make the patterns tell the two apart."
                )
                yield self.fault("ambiguous", message)


@dataclass(frozen=True, config=FIELDS)
class PatternsNeedText(ScriptRule, built_in=True):
    """No pattern matches the empty string; else code `matches_nothing`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            pattern = action_form(action).pattern
            if pattern is not None and pattern.fullmatch(b"") is not None:
                message = f"The pattern of {quoted(action.name)} matches an empty action. Make it ask for text."
                yield self.fault("matches_nothing", message)


_OF_ONE_PATTERN = all_of(PatternsCompile(), GroupsFitPlaceholders(), PatternsMatchTheirTemplates(), PatternsNeedText())


def with_fitting_patterns(script: Script) -> tuple[Script, int]:
    """Return the script with another pattern for each action whose own fails the checks of one pattern and which has
    one that passes, and their number.
    """

    def passes(action: ActionSpec) -> bool:
        return verify(Draft(script=script.model_copy(update={"actions": (action,)})), _OF_ONE_PATTERN).accepted

    def fitting(action: ActionSpec) -> ActionSpec:
        others = (action.model_copy(update={"pattern": pattern}) for pattern in other_patterns(action))
        return next(filter(passes, (action, *others)), action)

    actions = tuple(map(fitting, script.actions[:MAX_ACTIONS_READ])) + script.actions[MAX_ACTIONS_READ:]
    changed = sum(one is not other for one, other in zip(actions, script.actions, strict=True))
    return (script.model_copy(update={"actions": actions}), changed) if changed else (script, 0)


def _reads_back(action: ActionSpec, values: dict[str, str]) -> bool:
    text = action.fill(values)
    if match_pattern(action, text) == values and text.strip():
        return True
    found = match_action((action,), text)
    return found is not None and all(folded(found.values[name]) == folded(value) for name, value in values.items())


def _also_matched(usable: Sequence[tuple[ActionSpec, Pattern]], *, most: int) -> dict[tuple[int, int], bytes]:
    """By the numbers of two actions, the first filled template of the second that the pattern of the first matches,
    too.

    Of an action's fillings, those count that its own pattern matches, or all, if it matches none; `most` at most.
    """
    together = PatternSet([pattern for _, pattern in usable])
    found: dict[tuple[int, int], bytes] = {}
    for number, (action, pattern) in enumerate(usable):
        read = [(text, together.at_once(text)) for text in _texts(action, most)]
        own = [(text, numbers) for text, numbers in read if number in numbers or pattern.matches(text)]
        for text, numbers in (own or read)[:most]:
            for other in numbers if number in numbers else together.one_by_one(text):
                found.setdefault((other, number), text)
    return found


def _texts(action: ActionSpec, most: int) -> list[bytes]:
    """Fillings of the template, `most` or as many for each of some samples."""
    return [
        to_utf8(action.fill(tried).strip()[:MAX_ACTION_CHARACTERS])
        for values in fillings(action, most=most)
        for tried in with_samples(action, values)
    ]
