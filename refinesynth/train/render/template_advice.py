"""Which settings would let a conversation be trained on in the contexts that a model meets: they are tried on it."""

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

from refinesynth.chat import split_thought
from refinesynth.errors import InputError
from refinesynth.train.conversation import Conversation
from refinesynth.train.render.renderer import Renderer

VARIABLES: Final[Mapping[str, tuple[bool, ...]]] = {
    "enable_thinking": (False, True),
    "thinking": (False,),
    "preserve_thinking": (True,),
    "truncate_history_thinking": (False,),
    "clear_thinking": (False,),
}
"""Variables by which templates turn thinking on and off, and keep or drop that of earlier turns, with the values that are tried."""
_KWARGS: Final = "chat_template_kwargs."
_NO_THINKING: Final = {f"{_KWARGS}enable_thinking", f"{_KWARGS}thinking"}

Settings = Mapping[str, bool | str]
"""Settings to add to those there are, by the names under which a person gives them."""


def advice(renderer: Renderer, conversation: Conversation) -> str:
    """What to give, in a sentence: of the settings that help, the cheapest for each place where the model would think."""
    found: dict[str, Settings] = {}
    kept = renderer.tokenizer.chat_template
    try:
        for settings in sorted(_candidates(renderer, conversation), key=_cost):
            if _thinks(settings) not in found and _helps(settings, renderer, conversation):
                found[_thinks(settings)] = settings
    finally:
        renderer.tokenizer.chat_template = kept
    if not found:
        return (
            f"None of {', '.join(VARIABLES)}, thought_as and on_rewrite fixes that; give as --chat-template a file with a template whose prompt "
            "for a turn is what it writes before one"
        )
    ways = [found[where] for where in sorted(found, key=lambda where: ("on_rewrite" in found[where], where))]
    expands = " (expand makes one example of each trained turn: exact, with several times the tokens)"
    alternatives = "; or with ".join(" ".join(_as_typed(settings)) for settings in ways)
    return f"It would be given the same with {alternatives}{expands if 'on_rewrite' in ways[-1] else ''}"


def _candidates(renderer: Renderer, conversation: Conversation) -> Iterator[Settings]:
    switches = [
        [{}, *({f"{_KWARGS}{name}": value} for value in values if renderer.chat_template_kwargs.get(name) is not value)]
        for name, values in VARIABLES.items()
        if renderer.reads(name)
    ]
    thinks = any(turn.role == "assistant" and split_thought(turn.content)[0] for turn in conversation.turns)
    apart: list[Settings] = [
        {},
        *([{"thought_as": "reasoning"}] if thinks and renderer.thought_as == "content" else []),
    ]
    rewrites: list[Settings] = [{}, *([{"on_rewrite": "expand"}] if renderer.on_rewrite == "refuse" else [])]
    for *variables, thought, rewrite in product(*switches, apart, rewrites):
        yield {name: value for some in (*variables, thought, rewrite) for name, value in some.items()}


def _cost(settings: Settings) -> tuple[bool, int]:
    """To sort by: expanding comes last, since it takes several times the tokens."""
    return "on_rewrite" in settings, sum(name.startswith(_KWARGS) for name in settings)


def _thinks(settings: Settings) -> str:
    """Where the model will think."""
    if "thought_as" in settings:
        return "apart"
    return "never" if any(settings.get(name) is False for name in _NO_THINKING) else "not said"


def _as_typed(settings: Settings) -> Iterator[str]:
    for name, value in settings.items():
        yield f"--set {name}={value if isinstance(value, str) else json.dumps(value)}"


def _helps(settings: Settings, renderer: Renderer, conversation: Conversation) -> bool:
    given: dict[str, Any] = {"on_rewrite": renderer.on_rewrite, "thought_as": renderer.thought_as}
    variables = dict(renderer.chat_template_kwargs)
    for name, value in settings.items():
        (variables if name.startswith(_KWARGS) else given)[name.removeprefix(_KWARGS)] = value
    try:
        Renderer(
            renderer.tokenizer,
            loss_on=renderer.loss_on,
            template=renderer.own_template,
            chat_template_kwargs=variables,
            advises=False,
            **given,
        ).render(conversation)
    except InputError:
        return False
    return True
