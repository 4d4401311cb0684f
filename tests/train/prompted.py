"""A check that trained turns stand behind their prompts, by a tokenizer that no renderer has touched."""

import shlex
from functools import cache
from typing import Any

import tiny

from refinesynth.cli.train import typed_settings as settings_given
from refinesynth.train.config import TrainConfig
from refinesynth.train.labelled_conversation import Conversation, LossOn
from refinesynth.train.layered_settings import layered
from refinesynth.train.tokens import Label, Rendered

PLAIN: dict[str, Any] = {"on_rewrite": "refuse", "chat_template_kwargs": {}, "thought_as": "content"}


@cache
def tokenizer_of(family: str | None, kind: str = "byte-level") -> Any:
    """One to write prompts with, which no renderer has touched."""
    return tiny.tokenizer(family, kind=kind)


def spoken(conversation: Conversation, thought_as: str) -> list[dict[str, Any]]:
    """The turns as a player's server has them."""
    messages = [{"role": turn.role, "content": turn.content} for turn in conversation.turns]
    for message in messages:
        if message["role"] == "assistant" and thought_as == "reasoning":
            thought, action = message["content"].removeprefix("Thought: ").split("\nAction: ")
            message |= {"reasoning_content": thought, "content": f"Action: {action}"}
    return messages


def check(examples: list[Rendered], conversation: Conversation, asked: Any, settings: dict[str, Any]) -> int:
    """How many trained turns there are; `asked` is a tokenizer as it came, and its template gets the settings by
    name."""
    messages = spoken(conversation, settings["thought_as"])
    found = trained_turns(examples, conversation, asked, messages, **settings["chat_template_kwargs"])
    for k, ids in found.items():
        assert "".join(messages[k]["content"].split()) in "".join(asked.decode(ids).split())
        assert ids[-1] == asked.eos_token_id
    return len(found)


def trained_turns(
    examples: list[Rendered], conversation: Conversation, asked: Any, messages: list[dict[str, Any]], **given: Any
) -> dict[int, list[int]]:
    """Trained tokens of each turn, by its number: all turns but mistakes, each behind the tokens of its prompt."""
    assistants = [k for k, message in enumerate(messages) if message["role"] == "assistant"]
    trained: dict[int, list[int]] = {}
    for example in examples:
        number = example.id.partition("@")[2]
        at = [int(number) - 1] if number else assistants[-len(example.spans) :]
        for k, span in zip(at, example.spans, strict=True):
            if (example.labels[span.start : span.stop] != Label.TRAINED).any():
                continue
            prompt = asked.apply_chat_template(messages[:k], add_generation_prompt=True, return_dict=True, **given)
            assert example.input_ids[: span.start].tolist() == prompt["input_ids"]
            assert (example.labels == Label.TRAINED)[: span.start].sum() == sum(
                before.stop - before.start
                for before in example.spans
                if before.stop <= span.start and example.labels[before.start] == Label.TRAINED
            )
            trained[k] = example.input_ids[span.start : span.stop].tolist()
    assert [*trained] == [k for k in assistants if LossOn.REFINEMENT.trains(conversation.turns[k].label)]
    return trained


def configured(options: str) -> TrainConfig:
    words = shlex.split(options)
    assignments = [words[k + 1] for k in range(0, len(words), 2) if words[k] == "--set"]
    wanted: dict[str, Any] = {"data": ["runs/first"], "model": "x/y", "output": "models/first"}
    if "--thought-as" in words:
        wanted["thought_as"] = words[words.index("--thought-as") + 1]
    return layered(given=settings_given(wanted, assignments=assignments)).config
