"""What a template is given besides messages: its variables, and thoughts apart."""

from dataclasses import replace
from typing import Any

import pytest
import tiny
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from prompted import PLAIN, configured, spoken, tokenizer_of

from refinesynth.errors import InputError
from refinesynth.train.labelled_conversation import Conversation, Turn, TurnLabel
from refinesynth.train.render import Renderer, TemplateError
from refinesynth.train.tokens import Label
from refinesynth.train.trainer import preview


def test_a_thought_is_given_apart_and_nothing_of_a_message_is_lost() -> None:
    settings: dict[str, Any] = {**PLAIN, "thought_as": "reasoning", "on_rewrite": "expand"}
    tokenizer = tiny.tokenizer("qwen3")
    turns = (
        Turn("user", "Go.", None),
        Turn("assistant", "**Thought:** it is\nfar\nAction: `walk`\n\nquickly", TurnLabel.CORRECT),
    )
    (example,) = Renderer(tokenizer, **settings).render(Conversation("x", "g", turns, "x:1"))
    written = tokenizer.decode(example.input_ids[example.labels == Label.TRAINED])
    assert written == "<think>\nit is\nfar\n</think>\n\nAction: `walk`\n\nquickly<|im_end|>"
    shown = preview(example, tokenizer)
    assert [segment.text for segment in shown.segments] == [
        "<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n",
        written,
        "\n",
    ]


_TURN = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}THINK{{ m.content + '<|im_end|>\\n' }}{% endfor %}"
_PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
_SAID = (
    "{% if m.role == 'assistant' %}{{ '<think>\\n' ~ (m.reasoning_content or '') ~ '\\n</think>\\n\\n' }}{% endif %}"
)
_CHANNEL = "{% if m.thinking %}{{ '<|im_start|>analysis\\n' ~ m.thinking ~ '<|im_end|>' }}{% endif %}"
_PARSED = (
    "{% if '</think>' in m.content %}{% set m = {'role': m.role, 'reasoning_content': m.content.split('</think>')[0]"
    ".split('<think>')[-1].strip(), 'content': m.content.split('</think>')[-1].strip()} %}{% endif %}"
    "{% if m.reasoning_content %}{{ '<think>\\n' ~ m.reasoning_content ~ '\\n</think>\\n\\n' }}{% endif %}"
)
THINKING = {
    "reads none": ("", False),
    "always writes a block": (_SAID, True),
    "writes another form": (_CHANNEL, True),
    "reads both": (_PARSED, True),
}
"""What a template does about thoughts, and whether it reads them apart."""


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", THINKING)
@pytest.mark.parametrize(
    "said",
    [
        Turn("assistant", "Six.", TurnLabel.CORRECT, thinking="Two hens."),
        Turn("assistant", "<think>\nTwo hens.\n</think>\n\nSix.", TurnLabel.CORRECT),
        Turn("assistant", "\n<think>Two hens.</think>Six.", TurnLabel.CORRECT),
        Turn("assistant", "Two hens.\n</think>\n\nSix.", TurnLabel.CORRECT),
        Turn("assistant", "[THINK]Two hens.[/THINK]Six.", TurnLabel.CORRECT),
    ],
)
def test_a_thought_is_trained_once_or_refused(said: Turn, name: str, special: bool) -> None:
    think, reads = THINKING[name]
    conversation = Conversation("x", "g", (Turn("user", "How many?", None), said), "x:1")
    marks = ("<think>", "</think>")
    tokens = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(marks if special else ()))
    trained: dict[str, str] = {}
    for setting in ("content", "reasoning", "omit"):
        made = tiny.made(tokens, () if special else marks, _TURN.replace("THINK", think) + _PROMPT, eos="<|im_end|>")
        given: Any = setting
        try:
            (example,) = Renderer(made, thought_as=given).render(conversation)
        except TemplateError as error:
            assert "thought" in str(error)  # noqa: PT017
            continue
        trained[setting] = made.decode(example.input_ids[example.labels == Label.TRAINED])
        assert trained[setting].count("Two hens.") == (setting != "omit")
        assert trained[setting].count("Six.") == 1
        assert trained[setting].count("</think>") + trained[setting].count("[/THINK]") <= 1
        assert trained[setting].count("<think>") <= 1
    assert ("reasoning" in trained) == reads
    assert "omit" in trained
    assert "content" in trained or reads or special


def test_a_turn_that_has_thinking_keeps_what_it_says_beside_a_call_or_before_an_action() -> None:
    turn = Turn("assistant", "Thought: so\nAction: go", TurnLabel.CORRECT, thinking="Far.")
    made = tiny.tokenizer("qwen3")
    conversation = Conversation("x", "g", (Turn("user", "Go.", None), turn), "x:1")
    (example,) = Renderer(made, thought_as="reasoning").render(conversation)
    written = made.decode(example.input_ids[example.labels == Label.TRAINED])
    assert written == "<think>\nFar.\n</think>\n\nThought: so\nAction: go<|im_end|>"
    said = replace(
        conversation, turns=(conversation.turns[0], turn._replace(content="Thought: a </think>\nAction: go"))
    )
    made = tiny.made(("<|im_end|>", "<|im_start|>"), (), _TURN.replace("THINK", _CHANNEL) + _PROMPT, eos="<|im_end|>")
    own = replace(said, turns=(said.turns[0], said.turns[1]._replace(thinking="")))
    (example,) = Renderer(made).render(own)
    assert made.decode(example.input_ids[example.labels == Label.TRAINED]) == f"{own.turns[1].content}<|im_end|>"
    made = tiny.tokenizer("chatml")
    (example,) = Renderer(made, thought_as="omit").render(conversation)
    assert made.decode(example.input_ids[example.labels == Label.TRAINED]) == "Action: go<|im_end|>"


def test_thoughts_apart_need_a_template_that_reads_them() -> None:
    with pytest.raises(TemplateError, match=r"reads no thought of a message \(reasoning_content, .*thought_as"):
        Renderer(tiny.tokenizer("llama3"), thought_as="reasoning")
    harmony = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role }}{% if m.thinking %}{{ '<think>' + m.thinking + '</think>' }}{% endif %}"
        "{{ m.content + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}"
    )
    tokenizer = tiny.tokenizer("qwen3")
    (example,) = Renderer(tokenizer, template=harmony, thought_as="reasoning").render(tiny.talk("cmr"))
    written = [tokenizer.decode(example.input_ids[start:stop]) for start, stop, _ in example.spans]
    assert written[0] == "<think>next is step 1.</think>Action: go to table 1<|im_end|>"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.long
@limits(max_examples=30)
@given(VALUES, st.sampled_from(["", "\n", "  {% if true %}\n", " x"]))
def test_variables_are_the_templates_own_defaults(value: Any, beginning: str) -> None:
    template = (
        f"{beginning}{{{{ flavour | tojson }}}}{'{% endif %}' * ('if' in beginning)}{tiny.FAMILIES['chatml'].template}"
    )
    asked, tokenizer = tokenizer_of("chatml"), tiny.tokenizer()
    talk = tiny.talk("cr")
    (example,) = Renderer(tokenizer, template=template, chat_template_kwargs={"flavour": value}).render(talk)
    messages = spoken(talk, "content")
    for prompt in (False, True):
        wanted = asked.apply_chat_template(
            messages, chat_template=template, tokenize=False, add_generation_prompt=prompt, flavour=value
        )
        assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt) == wanted
    other = tokenizer.apply_chat_template(messages, tokenize=False, flavour="other")
    assert other == asked.apply_chat_template(messages, chat_template=template, tokenize=False, flavour="other")
    again = tiny.tokenizer()
    again.chat_template = tokenizer.chat_template
    (same,) = Renderer(again, chat_template_kwargs={"flavour": value}).render(talk)
    assert same.input_ids.tolist() == example.input_ids.tolist()
    assert again.chat_template == tokenizer.chat_template


def test_variables_that_a_template_does_not_read_are_refused() -> None:
    for name in ("enable_thought", "reasoning_content"):
        with pytest.raises(
            TemplateError, match=rf"chat_template_kwargs gives '{name}', and the chat template reads nothing"
        ):
            Renderer(tiny.tokenizer("qwen3"), chat_template_kwargs={name: False})
    with pytest.raises(InputError, match=r"chat_template_kwargs.tools is 'tools'.*name of a variable"):
        configured("--set chat_template_kwargs.tools=[]")


def test_the_other_templates_of_a_tokenizer_are_kept() -> None:
    tokenizer = tiny.tokenizer("qwen3")
    tokenizer.chat_template = {"default": tiny.THINKING["qwen3"].template, "tools": "x"}
    renderer = Renderer(tokenizer, chat_template_kwargs={"enable_thinking": False})
    assert tokenizer.chat_template == {"default": renderer.template, "tools": "x"}
