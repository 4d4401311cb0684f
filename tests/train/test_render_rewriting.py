"""Templates that write earlier turns otherwise once later ones follow: refused, or one exact example of each trained
turn."""

import pytest
import tiny
from prompted import PLAIN, check

from refinesynth.train.labelled_conversation import Conversation, Turn, TurnLabel
from refinesynth.train.render import Renderer, RewritesHistoryError, TemplateError
from refinesynth.train.tokens import Label

MOVES_SYSTEM = (
    "{{ bos_token }}{% set told = messages[0].content if messages[0].role == 'system' else '' %}"
    "{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' }}"
    "{% if messages[loop.index0 + 1:] | selectattr('role', 'equalto', 'user') | list | length == 0 and told %}"
    "{{ told + '\\n\\n' }}{% endif %}{{ m.content + ' [/INST]' }}"
    "{% elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
)
"""The system message stands in the last user message, as in some of Mistral's."""


def thinking(labels: str = "cmr") -> Conversation:
    talk = tiny.talk(labels)
    turns = [
        turn._replace(content=f"<think>\nwhy {k}\n</think>\n\n{turn.content}") if turn.role == "assistant" else turn
        for k, turn in enumerate(talk.turns)
    ]
    return Conversation(talk.id, talk.group, tuple(turns), talk.location)


CASES = [
    pytest.param("qwen3", None, thinking(), id="reasoning is stripped"),
    pytest.param("mistral", MOVES_SYSTEM, tiny.talk("cmr", system="Be brief."), id="the system message moves"),
]


@pytest.mark.parametrize(("family", "template", "talk"), CASES)
def test_rewriting_is_refused_with_what_to_do(family: str, template: str | None, talk: Conversation) -> None:
    renderer = Renderer(tiny.tokenizer(family), template=template)
    with pytest.raises(
        RewritesHistoryError,
        match=r"talk.jsonl:1: .* behind other text than it is given when it plays: .* --set on_rewrite=expand \(",
    ):
        renderer.render(talk)


@pytest.mark.parametrize(("family", "template", "talk"), CASES)
def test_expanding_gives_each_trained_turn_as_a_model_meets_it(
    family: str, template: str | None, talk: Conversation
) -> None:
    examples = Renderer(tiny.tokenizer(family), template=template, on_rewrite="expand").render(talk)
    asked = tiny.tokenizer(family)
    asked.chat_template = template or asked.chat_template
    assert check(examples, talk, asked, {**PLAIN, "on_rewrite": "expand"}) == len(examples) == 2
    assert [example.id for example in examples] == ["talk@2", "talk@6"] if template is None else ["talk@3", "talk@7"]


def test_only_conversations_that_are_rewritten_are_expanded() -> None:
    renderer = Renderer(tiny.tokenizer("deepseek-v3"), on_rewrite="expand")
    assert [len(examples) for examples in renderer.render_many([tiny.talk("cmr"), tiny.talk("c")])] == [1, 1]
    renderer = Renderer(
        tiny.tokenizer("nemotron-3"), on_rewrite="expand", chat_template_kwargs={"enable_thinking": False}
    )
    assert [len(examples) for examples in renderer.render_many([tiny.talk("cmr"), tiny.talk("ccc")])] == [1, 1]
    moving = Renderer(tiny.tokenizer("mistral"), template=MOVES_SYSTEM, on_rewrite="expand")
    told = tiny.talk("cmr", system="Be brief.")
    assert [len(examples) for examples in moving.render_many([tiny.talk("cmr"), told])] == [1, 2]


def test_reasoning_is_never_dropped_in_silence() -> None:
    drops = tiny.FAMILIES["chatml"].template.replace(
        "m.content + '<|im_end|>' }}", "m.content.split('</think>')[-1] + '<|im_end|>' }}", 1
    )
    renderer = Renderer(tiny.tokenizer("qwen3"), template=drops, on_rewrite="expand")
    with pytest.raises(
        TemplateError, match="leaves out or changes part of an assistant turn even where it is the last"
    ):
        renderer.render(thinking())


def test_reasoning_that_is_only_laid_out_anew_is_kept() -> None:
    tokenizer = tiny.tokenizer("qwen3")
    turns = (Turn("user", "Go.", None), Turn("assistant", "<think>hm</think>Action: go", TurnLabel.CORRECT))
    (example,) = Renderer(tokenizer).render(Conversation("x", "g", turns, "x:1"))
    written = tokenizer.decode(example.input_ids[example.labels == Label.TRAINED])
    assert written == "<think>\nhm\n</think>\n\nAction: go<|im_end|>"


def test_a_prompt_that_differs_from_what_is_trained_is_refused() -> None:
    # The prompt opens a thought that no text holds, before a turn that is rewritten.
    template = tiny.THINKING["qwen3"].template.replace(
        "{{ '<|im_start|>assistant\\n' }}", "{{ '<|im_start|>assistant: ' }}"
    )
    assert template != tiny.THINKING["qwen3"].template
    with pytest.raises(
        TemplateError,
        match=r"asked for message 2 is given .*assistant: .*Try --set chat_template_kwargs.enable_thinking",
    ):
        Renderer(tiny.tokenizer("qwen3"), template=template, on_rewrite="expand").render(thinking())


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{% for m in messages[1:] %}{{ m.content + '<|im_end|>' }}{% endfor %}", "leaves out"),
        ("{% for m in messages %}{{ m.content + '<|im_end|>' + m.content }}{% endfor %}", "repeats"),
        ("{% for m in messages | reverse %}{{ m.content + '<|im_end|>' }}{% endfor %}", "changes the order"),
        ("{% for m in messages %}{{ m.content | upper }}<|im_end|>{% endfor %}", "changes part"),
        (
            "{{ messages | length }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}",
            "asked for message 2 is given",
        ),
        (
            "{{ messages[-1].content | length }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}",
            "depends on",
        ),
    ],
)
def test_other_ways_to_rewrite_are_found_by_comparing(template: str, problem: str) -> None:
    with pytest.raises(RewritesHistoryError, match=problem):
        Renderer(tiny.tokenizer(), template=template).render(tiny.talk("cmr"))
