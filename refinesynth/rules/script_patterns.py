"""The patterns of a script: that RE2 takes them, and that each means its own action and no other.

Actions whose pattern does not compile, or whose groups do not fit, are reported by the first two rules and passed over
by the others.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from refinesynth.actions.fillings import fillings, with_samples
from refinesynth.actions.matching import MAX_ACTION_CHARACTERS, action_form, match_action, match_pattern
from refinesynth.actions.patterns import Pattern, PatternSet, to_utf8
from refinesynth.actions.wording import folded, quoted
from refinesynth.rules.rule import FIELDS, Violation
from refinesynth.rules.script_shape import ScriptRule
from refinesynth.trajectory import ActionSpec, Draft


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
