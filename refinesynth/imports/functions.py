"""Functions that others' agents call, as actions: `search({query}, {count})`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from refinesynth.actions.matching import match_action
from refinesynth.imports.tasks import MOST_ACTIONS, pattern_of, properties_of
from refinesynth.text.jsontext import write_json
from refinesynth.train.conversation import ToolCall
from refinesynth.trajectory import ActionSpec

_SEPARATORS = (", ", " | ", " ;; ", " ¦ ")
"""What stands between arguments; the first with which every call can be read back."""

ANSWER = ActionSpec(
    name="answer {text}", description="Say this; no function is called.", pattern=pattern_of("answer {text}")
)
"""What a message without a call does, where others call functions."""


class Functions:
    """The functions of one record, each an action whose text can be read back.

    Arguments are text, JSON where they are something else; one that a call leaves out is empty.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]], calls: Sequence[ToolCall], *, answers: bool) -> None:
        """Those of `tools`, and those that the right calls show beside; `answers`: there are messages without a call.

        Raises:
            ValueError: A call, written as text, would be another one; or there are too many functions.
        """
        self._properties = {tool["function"]["name"]: properties_of(tool["function"]) for tool in tools}
        self._descriptions = {tool["function"]["name"]: tool["function"].get("description") for tool in tools}
        for call in calls:
            properties = self._properties.setdefault(call.name, {})
            # What is left out somewhere may be empty.
            properties.update({name: () for name in properties if name not in call.arguments})
            properties.update({name: () for name in call.arguments if name not in properties})
        self._answers = answers
        if len(self._properties) > MOST_ACTIONS:
            raise ValueError(f"there are {len(self._properties):,} functions; {MOST_ACTIONS} are taken")
        for separator in _SEPARATORS:
            self._actions = dict(self._specified(separator))
            if self._misread(calls) is None:
                return
        if wrong := self._misread(calls):
            raise ValueError(
                f"the call of {wrong.name!r} with {_shown(wrong.arguments)} cannot be written as an action's text and be read back: "
                "an argument is not among the values of its function, or too long"
            )

    @property
    def actions(self) -> Iterator[ActionSpec]:
        """One for each function, in their order."""
        yield from self._actions.values()
        if self._answers or not self._actions:
            yield ANSWER

    def text_of(self, call: ToolCall) -> str:
        """What a call does. Of a function that there is not: its name, and what its arguments hold."""
        action = self._actions.get(call.name)
        if action is None:
            return " ".join((call.name, *map(_text, call.arguments.values())))
        return action.fill(self._values(call))

    def _values(self, call: ToolCall) -> dict[str, str]:
        return {_placeholder(name): _text(call.arguments.get(name, "")) for name in self._properties[call.name]}

    def _misread(self, calls: Sequence[ToolCall]) -> ToolCall | None:
        """The first call whose text is none, or another one; blanks around an argument do not count."""
        actions = tuple(self.actions)
        for call in calls:
            found = match_action(actions, self.text_of(call))
            values = {name: value.strip() for name, value in self._values(call).items()}
            if found is None or found.action != self._actions[call.name] or found.values != values:
                return call
        return None

    def _specified(self, separator: str) -> Iterable[tuple[str, ActionSpec]]:
        for name, properties in self._properties.items():
            places = {_placeholder(each): values for each, values in properties.items()}
            arguments = separator.join(f"{{{place}}}" for place in places)
            template = f"{re.sub(r'[^0-9A-Za-z_.-]', '_', name)}({arguments})"
            said = self._descriptions.get(name)
            described = said if isinstance(said, str) else ""
            yield (
                name,
                ActionSpec(name=template, description=described, pattern=pattern_of(template), parameters=places),
            )


def _placeholder(name: str) -> str:
    return re.sub(r"[{}]", "_", name)


def _text(value: object) -> str:
    return value if isinstance(value, str) else write_json(value, exact=True).decode()


def _shown(arguments: Mapping[str, Any]) -> str:
    return write_json(dict(arguments)).decode(errors="replace")[:200]
