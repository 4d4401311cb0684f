"""The patterns of a script: that RE2 takes them, and that each means its own action and no other.

Actions whose pattern does not compile, or whose groups do not fit, are reported by the first two rules and passed over by the
others.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from refinesynth.rules.fillings import fillings, with_samples
from refinesynth.rules.matching import MAX_ACTION_CHARACTERS, action_form, match_action
from refinesynth.rules.patterns import encode
from refinesynth.rules.rule import FIELDS, Violation
from refinesynth.rules.script_shape import ScriptRule
from refinesynth.rules.wording import folded, quoted
from refinesynth.trajectory import ActionSpec, Draft


@dataclass(frozen=True, config=FIELDS)
class PatternsCompile(ScriptRule):
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
class GroupsFitPlaceholders(ScriptRule):
    """Each pattern captures each placeholder once, by name or in order; else code `groups_do_not_fit`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            form = action_form(action)
            if form.pattern is not None and not form.fits:
                yield self.fault("groups_do_not_fit", f"In {quoted(action.name)}, {form.problem}.")


@dataclass(frozen=True, config=FIELDS)
class PatternsMatchTheirTemplates(ScriptRule):
    """Each pattern matches its own template, filled with each allowed value, and captures these; else `misses_template`.

    Where a parameter takes any value, it is enough that one of a number of samples matches. One violation per action.
    """

    fillings: Annotated[int, Field(ge=1)] = 1_000
    """Most combinations of values tried for one action; see `fillings.fillings`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            if not action_form(action).fits:
                continue
            for values in fillings(action, most=self.fillings):
                if not any(_reads_back(action, tried) for tried in with_samples(action, values)):
                    message = (
                        f"The pattern {quoted(action.pattern)} does not match its own action {quoted(action.fill(values))}, "
                        "or captures other values than those filled in. Mend the pattern of "
                        f"{quoted(action.name)}: the whole text must match, each group one value."
                    )
                    yield self.fault("misses_template", message)
                    break


@dataclass(frozen=True, config=FIELDS)
class PatternsAreUnambiguous(ScriptRule):
    """No pattern matches another action's filled template, whatever the values; else code `ambiguous`.

    One violation per pair of actions.
    """

    fillings: Annotated[int, Field(ge=1)] = 40
    """Most combinations of values tried for one action; with 40 actions, 1,560 times as many matches."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        usable = [action for action in self.actions(draft) if action_form(action).fits]
        texts = [(action, _texts(action, self.fillings)) for action in usable]
        for other in usable:
            pattern = action_form(other).pattern
            for action, filled in texts:
                if action is other or pattern is None:
                    continue
                found = next((text for text in filled if pattern.fullmatch(text) is not None), None)
                if found is not None:
                    message = (
                        f"The pattern of {quoted(other.name)} also matches {quoted(found.decode(errors='replace'))}, which is "
                        f"{quoted(action.name)}. Make the patterns tell the two apart."
                    )
                    yield self.fault("ambiguous", message)


@dataclass(frozen=True, config=FIELDS)
class PatternsNeedText(ScriptRule):
    """No pattern matches the empty string; else code `matches_nothing`."""

    def __call__(self, draft: Draft, /) -> Iterator[Violation]:
        for action in self.actions(draft):
            pattern = action_form(action).pattern
            if pattern is not None and pattern.fullmatch(b"") is not None:
                message = f"The pattern of {quoted(action.name)} matches an empty action. Make it ask for text."
                yield self.fault("matches_nothing", message)


def _reads_back(action: ActionSpec, values: dict[str, str]) -> bool:
    found = match_action((action,), action.fill(values))
    return found is not None and all(folded(found.values[name]) == folded(value) for name, value in values.items())


def _texts(action: ActionSpec, most: int) -> list[bytes]:
    """At most `most` fillings of the template: those that its own pattern matches, or all, if it matches none."""
    filled = [
        encode(action.fill(tried).strip()[:MAX_ACTION_CHARACTERS])
        for values in fillings(action, most=most)
        for tried in with_samples(action, values)
    ]
    pattern = action_form(action).pattern
    own = [text for text in filled if pattern is not None and pattern.fullmatch(text) is not None]
    return (own or filled)[:most]
