"""Whether a template looks into messages, or only writes them down."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, SupportsIndex

from refinesynth.train.render.template import ChatMessage, ChatTemplate

_GENERATION: Final = re.compile(r"(?<=[{%\-\s])(?:end)?generation(?=\s*-?%})")
_INSTEAD: Final = {"generation": "if true", "endgeneration": "endif"}
"""Marks of transformers' own, for blocks that plain Jinja knows."""
_KEEPS: Final = ("strip", "lstrip", "rstrip")
"""What a template does to blanks is found by comparing."""
_LOOKS: Final = frozenset(name for name in dir(str) if not name.startswith("__")) - {
    *_KEEPS,
    "format",
    "format_map",
} | {
    "__contains__",
    "__eq__",
    "__ge__",
    "__getitem__",
    "__gt__",
    "__iter__",
    "__le__",
    "__len__",
    "__lt__",
    "__ne__",
}


class _Watched(str):
    """A text that notes when somebody asks what is in it."""

    __slots__ = ("looked",)
    looked: list[str]

    def __bool__(self) -> bool:
        return True  # A template may ask whether there is a message, and there always is.

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __add__(self, other: str) -> str:
        return _watched(str.__add__(self, other), self.looked)

    def __radd__(self, other: str) -> str:
        return _watched(str.__add__(other, str(self)), self.looked)

    def __mul__(self, times: SupportsIndex) -> str:
        return _watched(str.__mul__(self, times), self.looked)


def _watched(text: str, looked: list[str]) -> _Watched:
    made = _Watched(text)
    made.looked = looked
    return made


def _noting(name: str) -> Callable[..., Any]:
    def noted(self: _Watched, *given: Any, **named: Any) -> Any:
        self.looked.append(name)
        return getattr(str, name)(self, *given, **named)

    return noted


def _keeping(name: str) -> Callable[..., Any]:
    def kept(self: _Watched, *given: Any) -> _Watched:
        return _watched(getattr(str, name)(self, *given), self.looked)

    return kept


for _name in _LOOKS:
    setattr(_Watched, _name, _noting(_name))
for _name in _KEEPS:
    setattr(_Watched, _name, _keeping(_name))


def looks_into(template: ChatTemplate, messages: Sequence[ChatMessage]) -> bool:
    """Whether what the template writes for messages of this shape, or as the prompt for one, may depend on what is in them.

    The library hands templates plain copies of texts, so the template runs here by itself; where it cannot, or writes something
    else, the answer is yes.
    """
    from jinja2.exceptions import TemplateError as JinjaError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    looked: list[str] = []
    watched = [
        {key: text if key == "role" else _watched(text, looked) for key, text in message.items()}
        for message in messages
    ]
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    prompts = [(at, True) for at, message in enumerate(messages) if at and message["role"] == "assistant"]
    try:
        run = environment.from_string(_GENERATION.sub(lambda found: _INSTEAD[found[0]], template.source))
        for count, prompt in [(len(messages), False), *prompts]:
            given = {**template.tokens, "messages": watched[:count], "add_generation_prompt": prompt}
            if run.render(given) != template.write(messages[:count], prompt=prompt):
                return True
    except (JinjaError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return True
    return bool(looked)
