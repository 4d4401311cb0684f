"""Every trained turn stands behind the tokens of its prompt: by default, under settings, or not at all."""

import re
from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from prompted import PLAIN, check, configured, tokenizer_of
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from refinesynth.train.config import TrainConfig
from refinesynth.train.labelled_conversation import Conversation
from refinesynth.train.render import Renderer, RewritesHistoryError, TemplateError
from refinesynth.train.render.template import REACT_TEMPLATE

DOCS = Path(__file__).parents[2] / "docs" / "training.md"


# The table in the docs.


def rows() -> list[tuple[str, str, str]]:
    table = re.search(r"^\| chat template \|.*?\n\n", DOCS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert table is not None
    found = [tuple(cell.strip() for cell in line.strip("|\n").split("|")) for line in table[0].splitlines()[2:] if line]
    return [(name, default, ways) for name, default, ways in found]


FAMILIES_OF = {
    "ChatML, Qwen2.5, Qwen3-Instruct-2507": "chatml",
    "Llama 3": "llama3",
    "Mistral": "mistral",
    "Gemma 2 and 3": "gemma",
    "DeepSeek-V3": "deepseek-v3",
    "DeepSeek-V3.1": "deepseek-v3.1",
    "Nemotron 3": "nemotron-3",
    "Qwen3.6": "qwen3.6",
    "Gemma 4, as Axolotl has it": "gemma-4",
    "Qwen3 (thinking can be turned off)": "qwen3",
    "Qwen3-Thinking-2507": "qwen3-thinking",
    "Qwen3.5": "qwen3.5",
    "Qwen3, as Axolotl has it": "axolotl-qwen3",
    "DeepSeek-R1 distills": "deepseek-r1",
}


def settings_of(config: TrainConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in PLAIN}


def test_the_table_has_every_family() -> None:
    assert [name for name, _, _ in rows()] == list(FAMILIES_OF)
    assert {*tiny.THINKING} <= {*FAMILIES_OF.values()}


@pytest.mark.parametrize(("name", "default", "ways"), rows())
def test_the_table_is_true(name: str, default: str, ways: str) -> None:
    family = FAMILIES_OF[name]
    talk = tiny.talk("cmrc")
    if default == "equal":
        (example,) = Renderer(tiny.tokenizer(family)).render(talk)
        assert check([example], talk, tokenizer_of(family), PLAIN) == 3
        assert ways == ""
        return
    assert default == "refused"
    with pytest.raises(RewritesHistoryError) as refused:
        Renderer(tiny.tokenizer(family)).render(talk)
    told = re.findall(r"`(--(?!chat-template)[^`]*)`", ways)
    for options in told:
        assert all(option.partition("=")[0] in str(refused.value) for option in re.findall(r"--\S+ [\w.]+", options))
        settings = settings_of(configured(options))
        examples = Renderer(tiny.tokenizer(family), **settings).render(talk)
        assert check(examples, talk, tokenizer_of(family), settings) == 3
        assert len(examples) == (3 if settings["on_rewrite"] == "expand" else 1)
    if not told:
        assert "--chat-template" in ways
        mended = tiny.THINKING[family].template.replace("{{ '<think>\\n' }}", "")
        examples = Renderer(tiny.tokenizer(family), template=mended).render(talk)
        asked = tiny.tokenizer(family)
        asked.chat_template = mended
        assert check(examples, talk, asked, PLAIN) == 3


# Laws.

WORDS = st.lists(
    st.sampled_from(["go", "mug", "why?", "é", "<b>", "1.", "試", "a:b", "thinking"]), min_size=1, max_size=5
)
LINES = st.lists(WORDS.map(" ".join), min_size=1, max_size=3).map("\n\n".join)
VARIABLES = st.fixed_dictionaries(
    {},
    optional={
        "enable_thinking": st.booleans(),
        "thinking": st.booleans(),
        "preserve_thinking": st.booleans(),
        "truncate_history_thinking": st.booleans(),
    },
)


@st.composite
def talks(draw: st.DrawFn) -> Conversation:
    plain = tiny.talk(draw(st.sampled_from(["c", "cc", "mr", "cmrc", "crmm"])))
    turns = [
        turn._replace(
            content=f"Thought: {draw(WORDS.map(' '.join))}\nAction: {draw(WORDS.map(' '.join))}"
            if turn.role == "assistant"
            else draw(LINES)
        )
        for turn in plain.turns
    ]
    return Conversation("x", "g", tuple(turns), "x.jsonl:1")


@given(
    st.sampled_from([*tiny.EVERY]),
    st.sampled_from(["byte-level", "metaspace"]),
    st.fixed_dictionaries(
        {
            "on_rewrite": st.sampled_from(["refuse", "expand"]),
            "thought_as": st.sampled_from(["content", "reasoning"]),
            "chat_template_kwargs": VARIABLES,
        }
    ),
    st.lists(talks(), min_size=1, max_size=3),
)
def test_whatever_is_rendered_stands_behind_its_prompt(
    family: str, kind: str, settings: dict[str, Any], conversations: list[Conversation]
) -> None:
    template = tiny.EVERY[family].template
    used = {
        name: value for name, value in settings["chat_template_kwargs"].items() if re.search(rf"\b{name}\b", template)
    }
    settings = {**settings, "chat_template_kwargs": used}
    try:
        renderer = Renderer(tiny.tokenizer(family, kind=kind), **settings)
        made = list(renderer.render_many(conversations))
    except TemplateError:
        return
    for conversation, examples in zip(conversations, made, strict=True):
        check(examples, conversation, tokenizer_of(family, kind), settings)


# Templates that look into messages.


def test_a_prompt_that_depends_on_a_message_is_looked_at_in_every_conversation() -> None:
    looks = tiny.FAMILIES["chatml"].template.replace(
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}",
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' + ('Hm. ' if 'hard' in messages[-1].content else '') }}",
    )
    renderer = Renderer(tiny.tokenizer(), template=looks)
    talk = tiny.talk("ccc")
    assert len(renderer.render(talk)) == 1
    for at in (0, 2, 4):
        turns = list(talk.turns)
        turns[at] = turns[at]._replace(content="It is hard.")
        with pytest.raises(RewritesHistoryError, match=rf"asked for message {at + 2} is given .*Hm\. "):
            renderer.render(Conversation("x", "g", tuple(turns), "x:1"))


def test_a_block_that_is_written_before_the_last_turn_alone_is_not_trained_there_alone() -> None:
    with pytest.raises(
        RewritesHistoryError,
        match=r"model writes in a turn begins with '<think>\\n\\n</think>' in message 4, and with ''",
    ):
        Renderer(tiny.tokenizer("qwen3")).render(tiny.talk("cr"))
    (example,) = Renderer(tiny.tokenizer("qwen3")).render(tiny.talk("hc"))
    assert check([example], tiny.talk("hc"), tokenizer_of("qwen3"), PLAIN) == 1


def test_a_header_that_no_prompt_writes_is_one_text_for_all_turns() -> None:
    changes = "{% for m in messages %}{{ '<|im_start|>' + m.role + ' ' + (loop.index0 // 4) | string + '\n' + m.content + '<|im_end|>' }}{% endfor %}"
    assert Renderer(tiny.tokenizer(), template=changes).render(tiny.talk("cc"))
    with pytest.raises(RewritesHistoryError, match="header"):
        Renderer(tiny.tokenizer(), template=changes).render(tiny.talk("ccc"))


# Tokenizers that merge across a prompt's end.


def merging(family: str) -> Any:
    """In GPT-2's manner: two line feeds are one token at the end of a text, and two before a word."""
    made: Any = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    specials = list(tiny.FAMILIES[family].specials)
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=alphabet, special_tokens=specials
    )
    made.train_from_iterator(["go on\n\n", "Thought\n\n"] * 9, trainer)
    eos, bos = tiny.FAMILIES[family].eos, tiny.FAMILIES[family].bos
    wrapped: Any = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=eos, bos_token=bos)
    wrapped.chat_template = tiny.FAMILIES[family].template
    assert len(wrapped.encode("\n\n")) == 1
    assert len(wrapped.encode("\n\nThought")) > 2
    return wrapped


def test_a_tokenizer_that_merges_across_the_prompts_end_is_refused() -> None:
    talk = tiny.talk("cmr")
    for on_rewrite in ("refuse", "expand"):
        with pytest.raises(TemplateError, match=r"other tokens of the prompt for message 2 .* or react"):
            Renderer(merging("llama3"), on_rewrite=on_rewrite).render(talk)
    assert len(Renderer(merging("chatml")).render(talk)) == 1


def test_plain_react_text_is_one_record_for_a_base_model_with_such_a_tokenizer_too() -> None:
    talk = tiny.talk("cmr", system="Be brief.")
    base, asked = merging("chatml"), merging("chatml")
    base.chat_template, asked.chat_template = None, REACT_TEMPLATE
    examples = Renderer(base).render(talk)
    assert len(examples) == 1
    assert check(examples, talk, asked, PLAIN) == 2
