"""Which settings would let a conversation be trained on in the contexts that a model meets: they are tried on it."""

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final, NamedTuple

from refinesynth.chat import split_thought
from refinesynth.errors import InputError
from refinesynth.train.conversation import Conversation
from refinesynth.train.render.renderer import OnRewrite, Renderer, ThoughtAs

THINKING: Final[Mapping[str, tuple[bool, ...]]] = {"enable_thinking": (False, True), "thinking": (False,)}
"""Variables by which templates turn thinking on and off, with the values that are tried."""
KEEPING: Final[Mapping[str, tuple[bool, ...]]] = {
    "preserve_thinking": (True,),
    "truncate_history_thinking": (False,),
    "clear_thinking": (False,),
}
"""Variables by which templates keep or drop the thinking of earlier turns."""


class Remedy(NamedTuple):
    """Settings to add to those there are."""

    variables: tuple[tuple[str, bool], ...]
    thought_as: ThoughtAs | None
    on_rewrite: OnRewrite | None

    @property
    def mode(self) -> str:
        """Where the model will think."""
        if self.thought_as == "reasoning":
            return "apart"
        return "never" if any(name in THINKING and not value for name, value in self.variables) else "not said"

    @property
    def cost(self) -> tuple[bool, int]:
        """To sort by: expanding comes last, since it takes several times the tokens."""
        return self.on_rewrite is not None, len(self.variables)

    def as_options(self) -> list[str]:
        """As a person types it."""
        told = [f"--set chat_template_kwargs.{name}={json.dumps(value)}" for name, value in self.variables]
        if self.thought_as is not None:
            told.append(f"--set thought_as={self.thought_as}")
        if self.on_rewrite is not None:
            told.append(f"--set on_rewrite={self.on_rewrite}")
        return told


def find_remedies(renderer: Renderer, conversation: Conversation) -> list[Remedy]:
    """For each mode the cheapest that helps."""
    found: dict[str, Remedy] = {}
    kept = renderer.tokenizer.chat_template
    try:
        for remedy in sorted(_candidates(renderer, conversation), key=lambda each: each.cost):
            if remedy.mode not in found and _helps(remedy, renderer, conversation):
                found[remedy.mode] = remedy
    finally:
        renderer.tokenizer.chat_template = kept
    return sorted(found.values(), key=lambda each: (each.cost[0], each.mode))


def advice(renderer: Renderer, conversation: Conversation) -> str:
    """What to give, in a sentence."""
    found = [" ".join(remedy.as_options()) for remedy in find_remedies(renderer, conversation)]
    if found:
        expands = " (expand makes one example of each trained turn: exact, with several times the tokens)"
        return f"It would be given the same with {'; or with '.join(found)}{expands if 'expand' in ' '.join(found) else ''}"
    return (
        f"None of {', '.join((*THINKING, *KEEPING))}, thought_as and on_rewrite mends that; give as --chat-template a file with a template whose "
        "prompt for a turn is what it writes before one"
    )


def _candidates(renderer: Renderer, conversation: Conversation) -> Iterator[Remedy]:
    switches = [
        [None, *((name, value) for value in values if renderer.chat_template_kwargs.get(name) is not value)]
        for name, values in {**THINKING, **KEEPING}.items()
        if renderer.reads(name)
    ]
    thinks = any(turn.role == "assistant" and split_thought(turn.content)[0] for turn in conversation.turns)
    rewrites: list[OnRewrite | None] = [None, "expand"] if renderer.on_rewrite == "refuse" else [None]
    for chosen in product(*switches):
        variables = tuple(each for each in chosen if each is not None)
        for on_rewrite in rewrites:
            yield Remedy(variables, None, on_rewrite)
            if thinks and renderer.thought_as == "content":
                yield Remedy(variables, "reasoning", on_rewrite)


def _helps(remedy: Remedy, renderer: Renderer, conversation: Conversation) -> bool:
    variables: dict[str, Any] = {**renderer.chat_template_kwargs, **dict(remedy.variables)}
    try:
        Renderer(
            renderer.tokenizer,
            loss_on=renderer.loss_on,
            template=renderer.own_template,
            on_rewrite=remedy.on_rewrite or renderer.on_rewrite,
            chat_template_kwargs=variables,
            thought_as=remedy.thought_as or renderer.thought_as,
            advises=False,
        ).render(conversation)
    except InputError:
        return False
    return True
