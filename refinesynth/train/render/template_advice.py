"""Which settings would let a conversation be trained on in the contexts that a model meets: they are tried on it."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Final

VARIABLES: Final[Mapping[str, tuple[bool, ...]]] = {
    "enable_thinking": (False, True),
    "thinking": (False,),
    "preserve_thinking": (True,),
    "truncate_history_thinking": (False,),
    "clear_thinking": (False,),
}
"""Variables by which templates turn thinking on and off, and keep or drop that of earlier turns, with the values that
are tried."""
KWARGS: Final = "chat_template_kwargs."
"""What the names of a template's variables begin with among settings."""
_NO_THINKING: Final = {f"{KWARGS}enable_thinking", f"{KWARGS}thinking"}

RenderSettings = Mapping[str, object]
"""`thought_as`, `on_rewrite` and variables of the template, by the names under which a user gives them."""


def advice(
    now: RenderSettings,
    *,
    reads: Callable[[str], bool],
    has_thoughts: bool,
    helps: Callable[[RenderSettings], bool],
) -> str:
    """What to give, in a sentence: of the settings that help, the cheapest for each place where the model would think.

    Args:
        now: The settings of the renderer that refuses a conversation.
        reads: Whether its template mentions a variable of this name.
        has_thoughts: Whether a turn of the conversation has a thought before its action.
        helps: Whether the conversation can be rendered with these settings in addition; called for several, cheapest
            first.
    """
    found: dict[str, RenderSettings] = {}
    for settings in sorted(_candidates(now, reads, has_thoughts=has_thoughts), key=_cost):
        if _thinks(settings) not in found and helps(settings):
            found[_thinks(settings)] = settings
    if not found:
        omitted = ({**settings, "thought_as": "omit"} for settings in _candidates(now, reads, has_thoughts=False))
        without = next(filter(helps, sorted(omitted, key=_cost)), None) if has_thoughts else None
        if without is not None and now["thought_as"] != "omit":
            return (
                f"It would be given the same without what is thought, with {' '.join(_as_typed(without))}: the model then learns to act "
                "and to answer without a word before it"
            )
        return (
            f"None of {', '.join(VARIABLES)}, thought_as and on_rewrite fixes that; give as --chat-template a file with a template whose prompt "
            "for a turn is what it writes before one"
        )
    ways = [found[where] for where in sorted(found, key=lambda where: ("on_rewrite" in found[where], where))]
    expands = " (expand makes one example of each trained turn: exact, with several times the tokens)"
    alternatives = "; or with ".join(" ".join(_as_typed(settings)) for settings in ways)
    return f"It would be given the same with {alternatives}{expands if 'on_rewrite' in ways[-1] else ''}"


def _candidates(now: RenderSettings, reads: Callable[[str], bool], *, has_thoughts: bool) -> Iterator[RenderSettings]:
    switches: list[list[RenderSettings]] = [
        [{}, *({KWARGS + name: value} for value in values if now.get(KWARGS + name) is not value)]
        for name, values in VARIABLES.items()
        if reads(name)
    ]
    apart: list[RenderSettings] = [
        {},
        *([{"thought_as": "reasoning"}] if has_thoughts and now["thought_as"] == "content" else []),
    ]
    rewrites: list[RenderSettings] = [{}, *([{"on_rewrite": "expand"}] if now["on_rewrite"] == "refuse" else [])]
    for *variables, thought, rewrite in product(*switches, apart, rewrites):
        yield {name: value for some in (*variables, thought, rewrite) for name, value in some.items()}


def _cost(settings: RenderSettings) -> tuple[bool, int]:
    """To sort by: expanding comes last, since it takes several times the tokens."""
    return "on_rewrite" in settings, sum(name.startswith(KWARGS) for name in settings)


def _thinks(settings: RenderSettings) -> str:
    """Where the model will think."""
    if "thought_as" in settings:
        return "apart"
    return "never" if any(settings.get(name) is False for name in _NO_THINKING) else "not said"


def _as_typed(settings: RenderSettings) -> Iterator[str]:
    for name, value in settings.items():
        yield f"--set {name}={value if isinstance(value, str) else json.dumps(value)}"
