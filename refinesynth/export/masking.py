"""How mistakes are kept out of training, for trainers with and without a flag per message.

A mistake stays in the context and gives no loss (paper, equation 1). A trainer that reads a flag per message gets
flags; for one that does not, a conversation is split at its correct turns, or its mistakes are left out.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TypeVar

from refinesynth.chat import Message, ToolMessage


class Masking(StrEnum):
    """What an export does about the mistakes of a conversation."""

    FLAG = "flag"
    """One record a conversation; each message says whether it is trained on."""
    SPLIT = "split"
    """One record a correct turn: the conversation up to it, of which only the last message is to be trained on. Exact,
    at several times the tokens."""
    DROP = "drop"
    """One record a conversation, mistakes and the answers to them left out. What is left shows no refinement, and a
    later thought may speak of an answer that is no longer there."""
    PAIR = "pair"
    """One record a mistake that is repaired: what came before it, and the two turns, the one to choose and the one to
    reject."""
    WORLD = "world"
    """One record a world: its task, and nobody's turns."""


_M = TypeVar("_M", Message, ToolMessage)


def conversations(messages: Sequence[_M], masking: Masking) -> Iterator[tuple[_M, ...]]:
    """The records' messages, in order; none if nothing in `messages` is to be trained on.

    `messages` alternate, a user's first, as `chat.to_messages` and `chat.to_tool_messages` give them. Each conversation ends with an assistant
    message: nothing after the last one can be trained on, and several trainers refuse or skip a conversation that ends
    otherwise.
    """
    if masking is Masking.SPLIT:
        for at, message in enumerate(messages):
            if message.loss:
                yield (*(earlier._replace(loss=False) for earlier in messages[:at]), message)
        return
    kept = list(messages) if masking is Masking.FLAG else _without_mistakes(messages)
    while kept and kept[-1].role != "assistant":
        kept.pop()
    if any(message.loss for message in kept):
        yield tuple(kept)


def _without_mistakes(messages: Sequence[_M]) -> list[_M]:
    kept: list[_M] = []
    for message in messages:
        is_mistake = message.role == "assistant" and not message.loss
        answers_mistake = message.role != "assistant" and bool(kept) and kept[-1].role != "assistant"
        if not is_mistake and not answers_mistake:
            kept.append(message)
    return kept
