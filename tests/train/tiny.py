"""Tiny tokenizers made on the spot, chat templates in the manner of the common families, and small conversations.

tiny.tokenizer("chatml")                      # byte-level BPE with ChatML's tokens and template
tiny.tokenizer("llama3", kind="metaspace")    # in SentencePiece's manner
tiny.tokenizer("chatml", markers=True)        # the template has {% generation %} markers
tiny.talk("cmr")                              # a conversation: a correct turn, a mistake, a refinement
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import thinking_templates
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from refinesynth.train.labelled_conversation import Conversation, Turn, TurnLabel

CORPUS = (
    "Thought: the goal names the mug, so I look for it first.\nAction: go to table 1",
    "Thought: that failed because the drawer is closed; open it first.\nAction: open drawer 3",
    "You are in a kitchen with a table, a shelf and a drawer.\n\nGoal: bring the mug to the shelf.\n\nAvailable actions:",
    "- take {item} from {place}: pick it up\n- go to {place}\n- open {place}\nEach time, think about what you know.",
    "You see a mug and a key on table 1. Nothing happens. Error: invalid command format. Task Succeed",
    "user assistant system model observation <think> </think> café Étape 試料 ### Instruction: ### Response:",
)
"""What tokenizers are trained on."""

KINDS = ("byte-level", "metaspace", "stripping")
"""Byte-level BPE; BPE after SentencePiece's manner, blanks being part of words; one that has no token for blanks."""


class Family(NamedTuple):
    """A chat template and the tokens that it needs."""

    template: str
    marked: str | None
    """The same with generation markers; None where no such form is made."""
    specials: tuple[str, ...]
    bos: str | None
    eos: str
    """The end-of-turn token."""
    added: tuple[str, ...] = ()
    """Added tokens that are not special."""


def _both(template: str) -> tuple[str, str]:
    """Without and with markers; in `template`, `(:` and `:)` stand around what an assistant writes."""
    marked = template.replace("(:", "{% generation %}").replace(":)", "{% endgeneration %}")
    return template.replace("(:", "").replace(":)", ""), marked


_CHATML = _both(
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}"
    "(:{{ m.content + '<|im_end|>' }}:){{ '\\n' }}"
    "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_LLAMA3 = _both(
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}"
    "{% if m.role == 'assistant' %}(:{{ m.content | trim + '<|eot_id|>' }}:)"
    "{% else %}{{ m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
_MISTRAL = _both(
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% elif m.role == 'assistant' %}(:{{ ' ' + m.content + eos_token }}:)"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
_GEMMA = _both(
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
    "{% if m.role == 'assistant' %}(:{{ m.content | trim + '<end_of_turn>' }}:){% else %}"
    "{{ m.content | trim + '<end_of_turn>' }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
_DEEPSEEK = _both(
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}{{ '<\uff5cUser\uff5c>' + m.content }}"
    "{% else %}{{ '<\uff5cAssistant\uff5c>' }}(:{{ m.content + eos_token }}:){% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<\uff5cAssistant\uff5c>' }}{% endif %}"
)
_ZEPHYR = _both(
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}{% if m.role == 'assistant' %}"
    "(:{{ m.content + eos_token }}:){% else %}{{ m.content + eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
_ALPACA = _both(
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}"
    "{% elif m.role == 'user' %}{{ '### Instruction:\\n' + m.content + '\\n\\n' }}"
    "{% else %}{{ '### Response:\\n' }}(:{{ m.content + eos_token }}:){{ '\\n\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}"
)
_DEEPSEEK_TOKENS = (
    (
        "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<\uff5cUser\uff5c>",
        "<\uff5cAssistant\uff5c>",
    ),
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
_CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "chatml": Family(*_CHATML, _CHATML_TOKENS, None, "<|im_end|>"),
        "llama3": Family(
            *_LLAMA3,
            ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
            "<|begin_of_text|>",
            "<|eot_id|>",
        ),
        "mistral": Family(*_MISTRAL, ("<s>", "</s>", "[INST]", "[/INST]"), "<s>", "</s>"),
        "gemma": Family(
            *_GEMMA, ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"), "<bos>", "<end_of_turn>"
        ),
        "deepseek": Family(*_DEEPSEEK, *_DEEPSEEK_TOKENS),
        "zephyr": Family(*_ZEPHYR, ("<s>", "</s>"), "<s>", "</s>"),
        "alpaca": Family(*_ALPACA, ("<s>", "</s>"), "<s>", "</s>"),
    }
)
"""Families that write a turn as they ask for it, by name."""

_TAGS = ("<think>", "</think>")
_GEMMA_4 = ("<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>")
THINKING: Mapping[str, Family] = MappingProxyType(
    {
        **{
            name: Family(template, None, _CHATML_TOKENS, None, "<|im_end|>", _TAGS)
            for name, template in (
                ("qwen3", thinking_templates.QWEN3),
                ("qwen3-thinking", thinking_templates.QWEN3_THINKING),
                ("qwen3.5", thinking_templates.QWEN3_5),
                ("qwen3.6", thinking_templates.QWEN3_6),
                ("axolotl-qwen3", thinking_templates.AXOLOTL_QWEN3),
                ("nemotron-3", thinking_templates.NEMOTRON_3),
            )
        },
        **{
            name: Family(template, None, *_DEEPSEEK_TOKENS, _TAGS)
            for name, template in (
                ("deepseek-r1", thinking_templates.DEEPSEEK_R1),
                ("deepseek-v3", thinking_templates.DEEPSEEK_V3),
                ("deepseek-v3.1", thinking_templates.DEEPSEEK_V3_1),
            )
        },
        "gemma-4": Family(thinking_templates.GEMMA_4, None, _GEMMA_4, "<bos>", "<turn|>"),
    }
)
"""Families that think, by name; most write a turn otherwise than they ask for it."""
EVERY: Mapping[str, Family] = MappingProxyType({**FAMILIES, **THINKING})


@cache
def _trained(kind: str, vocabulary: int) -> str:
    """A tokenizer's JSON, without special tokens."""
    made = Tokenizer(models.BPE(byte_fallback=kind == "metaspace", unk_token="<unk>" if kind != "byte-level" else None))
    alphabet: list[str] = []
    specials: list[str | AddedToken] = ["<unk>"] if kind != "byte-level" else []
    if kind == "byte-level":
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    elif kind == "metaspace":
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
        made.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        specials += [f"<0x{byte:02X}>" for byte in range(256)]
    else:
        made.normalizer = normalizers.Strip()
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
        made.decoder = decoders.BPEDecoder()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, show_progress=False, initial_alphabet=alphabet, special_tokens=specials
    )
    made.train_from_iterator(CORPUS * 4, trainer)
    plain = json.loads(made.to_str())
    # Bytes are ordinary entries of a vocabulary, as in stock tokenizers; the trainer makes added tokens of them.
    plain["added_tokens"] = [token for token in plain["added_tokens"] if not token["content"].startswith("<0x")]
    return json.dumps(plain)


def tokenizer(
    family: str | None = "chatml", *, kind: str = "byte-level", markers: bool = False, vocabulary: int = 700
) -> Any:
    """A new `PreTrainedTokenizerFast` with the tokens and the template of `family`; None: a base model's, with no
    template.

    At least 260 entries; padding is the end-of-text token, as in many stock tokenizers.
    """
    if family is None:
        bos, eos, specials, template, added = "<s>", "</s>", ("<s>", "</s>"), None, ()
    else:
        made_of = EVERY[family]
        bos, eos, specials, added = made_of.bos, made_of.eos, made_of.specials, made_of.added
        template = made_of.marked if markers else made_of.template
    return made(specials, added, template, bos=bos, eos=eos, kind=kind, vocabulary=vocabulary)


def made(
    specials: Sequence[str],
    added: Sequence[str],
    template: str | None,
    *,
    eos: str,
    bos: str | None = None,
    kind: str = "byte-level",
    vocabulary: int = 700,
) -> Any:
    """A new tokenizer with these tokens, special ones and others, and this template."""
    trained = Tokenizer.from_str(_trained(kind, vocabulary))
    every = [AddedToken(text, special=True, normalized=False) for text in specials]
    every += [AddedToken(text, special=False, normalized=False) for text in added]
    cast("Any", trained).add_tokens(every)
    named = {"bos_token": bos} if bos is not None else {}
    named |= {"unk_token": "<unk>"} if kind != "byte-level" else {}
    wrapped: Any = PreTrainedTokenizerFast(tokenizer_object=trained, eos_token=eos, pad_token=eos, **named)
    wrapped.chat_template = template
    return wrapped


_TURN_LABELS = {"c": TurnLabel.CORRECT, "m": TurnLabel.MISTAKE, "r": TurnLabel.REFINEMENT, "h": TurnLabel.HISTORY}
_SAYS = {
    TurnLabel.CORRECT: "Thought: next is step {n}.\nAction: go to table {n}",
    TurnLabel.MISTAKE: "Thought: perhaps {n} is open.\nAction: fly to shelf {n}",
    TurnLabel.REFINEMENT: "Thought: that failed; I walk.\nAction: open drawer {n}",
    TurnLabel.HISTORY: "Thought: earlier, {n}.\nAction: take mug {n}",
}


def talk(labels: str = "cmr", *, system: str | None = None, closing: bool = False, id: str = "talk") -> Conversation:  # noqa: A002
    """One conversation with a turn for each letter: correct, mistake, refinement, history.

    `closing`: an observation follows the last of them.
    """
    turns: list[Turn] = [Turn("system", system, None)] if system is not None else []
    turns.append(Turn("user", "You are in a kitchen.\n\nGoal: bring the mug to the shelf.", None))
    for n, letter in enumerate(labels, start=1):
        turn_label = _TURN_LABELS[letter]
        turns.append(Turn("assistant", _SAYS[turn_label].format(n=n), turn_label))
        turns.append(Turn("user", f"Nothing happens at {n}." if letter == "m" else f"You see thing {n}.", None))
    return Conversation(id, f"group of {id}", tuple(turns if closing else turns[:-1]), f"{id}.jsonl:1")
