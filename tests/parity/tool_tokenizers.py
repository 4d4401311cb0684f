"""Tokenizers with the control tokens and the chat template of a family of models, and nothing else of theirs."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from parity_cases import VENVS, trained_tokenizer

from refinesynth.trajectory import Trajectory

_CALLS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")


class Family(NamedTuple):
    """What makes its chats."""

    template: str
    """Of TRL's `chat_templates`."""
    special: tuple[str, ...]
    others: tuple[str, ...]
    eos: str


FAMILIES = {
    "qwen3": Family("qwen3_instruct_2507.jinja", ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), _CALLS, "<|im_end|>"),
    "glm-4.5": Family(
        "glm4moe.jinja",
        ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        (*_CALLS, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "/nothink"),
        "<|endoftext|>",
    ),
}


def tool_tokenizer(name: str, trajectories: Iterable[Trajectory]) -> Any:
    family = FAMILIES[name]
    (templates,) = (VENVS / "trl").glob("lib/python*/site-packages/trl/chat_templates")
    template = (templates / family.template).read_text(encoding="utf-8")
    return trained_tokenizer(
        trajectories, special=family.special, others=family.others, template=template, eos=family.eos
    )
