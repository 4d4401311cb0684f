"""Labels for any chat template: the ids are the template's, and what is trained is what a model would write."""

from functools import cache
from typing import Any

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.errors import InputError
from refinesynth.train.labelled_conversation import Conversation, LossOn, TurnLabel
from refinesynth.train.render import Renderer, TemplateError
from refinesynth.train.tokens import Label, Rendered

CASES = [
    (family, kind, family is not None and (at + number) % 2 == 1)
    for at, family in enumerate((*tiny.FAMILIES, None))
    for number, kind in enumerate(tiny.KINDS)
]
"""Family, kind of tokenizer, and whether the template has generation markers: each pair of values of two of them."""
TALK = tiny.talk("cmrcmmr", closing=True)
Chat = list[dict[str, str]]


def chat(conversation: Conversation, *, turns: int | None = None) -> Chat:
    """The turns as `apply_chat_template` takes them, up to the last assistant's."""
    spoken = [{"role": turn.role, "content": turn.content} for turn in conversation.turns]
    while spoken[-1]["role"] != "assistant":
        spoken.pop()
    return spoken[:turns]


def ids_of(tokenizer: Any, messages: Chat, *, prompt: bool = False) -> list[int]:
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=True)["input_ids"])


def one(renderer: Renderer, conversation: Conversation) -> Rendered:
    (rendered,) = renderer.render(conversation)
    return rendered


@pytest.mark.long
def test_for_every_family_of_templates_and_kind_of_tokenizer_ids_spans_and_labels_are_right() -> None:
    failures: dict[tuple[str | None, str, bool], str] = {}
    for family, kind, markers in CASES:
        tokenizer = tiny.tokenizer(family, kind=kind, markers=markers)
        try:
            check_ids_and_spans(tokenizer)
            for loss_on in LossOn:
                check_labels(Renderer(tokenizer, loss_on=loss_on))
        except (AssertionError, InputError) as error:
            failures[family, kind, markers] = str(error)
    assert failures == {}


def check_ids_and_spans(tokenizer: Any) -> None:
    """The ids are the chat template's; a span is what a model writes after its prompt, and ends its turn."""
    rendered = one(Renderer(tokenizer), TALK)
    assert rendered.input_ids.tolist() == ids_of(tokenizer, chat(TALK))
    at = [k for k, turn in enumerate(TALK.turns) if turn.role == "assistant"]
    assert [span.label for span in rendered.spans] == [TALK.turns[k].label for k in at]
    for k, span in zip(at, rendered.spans, strict=True):
        written = rendered.input_ids[span.start : span.stop].tolist()
        assert rendered.input_ids[: span.start].tolist() == ids_of(tokenizer, chat(TALK, turns=k), prompt=True)
        assert written[-1] == tokenizer.eos_token_id
        assert written.count(tokenizer.eos_token_id) == 1
        squeezed = "".join(tokenizer.decode(written[:-1]).split())
        known = "".join(tokenizer.decode(tokenizer(TALK.turns[k].content)["input_ids"]).split())
        assert squeezed == known


def check_labels(renderer: Renderer) -> None:
    """Labels are by turn, and all else is context."""
    rendered = one(renderer, TALK)
    expected = [Label.CONTEXT] * len(rendered)
    for start, stop, turn_label in rendered.spans:
        label = Label.MISTAKE if turn_label is TurnLabel.MISTAKE else Label.CONTEXT
        expected[start:stop] = [Label.TRAINED if renderer.loss_on.trains(turn_label) else label] * (stop - start)
    assert rendered.labels.tolist() == expected
    assert rendered.trained == sum(label is Label.TRAINED for label in expected)


def test_two_bos_are_refused() -> None:
    tokenizer = tiny.tokenizer("llama3")
    with pytest.raises(TemplateError, match="two beginning-of-sequence"):
        Renderer(tokenizer, template="{{ bos_token }}" + str(tokenizer.chat_template)).render(TALK)


@pytest.mark.parametrize("family", ["chatml", "zephyr", "gemma"])
def test_generation_markers_change_no_label(family: str) -> None:
    marked = str(tiny.FAMILIES[family].marked)
    around = marked.replace("{% endgeneration %}{{ '\\n' }}", "{{ '\\n' }}{% endgeneration %}")
    narrow = marked.replace(" + '<|im_end|>' }}{% endgeneration %}", " }}{% endgeneration %}{{ '<|im_end|>' }}")
    for template in (marked, around, narrow):
        example = one(Renderer(tiny.tokenizer(family), template=template), TALK)
        assert example.spans == one(Renderer(tiny.tokenizer(family)), TALK).spans


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}",
        "{% for m in messages %}{{ m.role + ': ' + m.content + ' END <|im_end|>' }}{% endfor %}",
    ],
)
def test_a_template_without_an_end_of_turn_is_refused(template: str) -> None:
    with pytest.raises(TemplateError, match="end-of-turn token"):
        Renderer(tiny.tokenizer(), template=template).render(TALK)


def test_a_header_that_no_prompt_writes_is_not_trained() -> None:
    plain = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    assert one(Renderer(tiny.tokenizer(), template=plain), TALK).spans == one(Renderer(tiny.tokenizer()), TALK).spans


def test_a_refusing_template_names_the_conversation() -> None:
    told = tiny.talk("cmr", system="Be brief.")
    with pytest.raises(TemplateError, match=r"talk.jsonl:1: .*must alternate"):
        Renderer(tiny.tokenizer("gemma")).render(told)
    assert Renderer(tiny.tokenizer("llama3")).render(told)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages | nonsense }}",
        "{% for %}",
        "{{ messages[99].content }}",
        "{{ 1 / 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_broken_template_is_an_input_error(template: str) -> None:
    with pytest.raises(InputError):
        Renderer(tiny.tokenizer(), template=template).render(TALK)


@pytest.mark.parametrize(
    ("family", "given", "problem"),
    [
        ("chatml", {"chat_template": {"tools": "x"}}, "none is called 'default'"),
        (None, {"eos_token": None}, "neither a chat template nor an end-of-sequence token"),
    ],
)
def test_a_tokenizer_without_a_template_is_refused(family: str | None, given: dict[str, Any], problem: str) -> None:
    tokenizer = tiny.tokenizer(family)
    for name, value in given.items():
        setattr(tokenizer, name, value)
    with pytest.raises(TemplateError, match=problem):
        Renderer(tokenizer)


def test_a_base_model_reads_react_text_and_keeps_the_template() -> None:
    tokenizer = tiny.tokenizer(None)
    renderer = Renderer(tokenizer)
    told = tiny.talk("cr", system="Be brief.")
    assert tokenizer.decode(one(renderer, told).input_ids) == (
        "<s>Be brief.\n\nYou are in a kitchen.\n\nGoal: bring the mug to the shelf.\n"
        "Thought: next is step 1.\nAction: go to table 1</s>\n\n"
        "Observation: You see thing 1.\n"
        "Thought: that failed; I walk.\nAction: open drawer 2</s>"
    )
    assert renderer.tokenizer.chat_template == renderer.template


def test_history_of_split_records_gives_no_other_loss() -> None:
    talk = tiny.talk("hhc")
    rendered = one(Renderer(tiny.tokenizer()), talk)
    assert [bool((rendered.labels[a:b] == Label.TRAINED).all()) for a, b, _ in rendered.spans] == [False, False, True]
    assert not (rendered.labels == Label.MISTAKE).any()
    for loss_on in (LossOn.ALL_TURNS, LossOn.NO_REFINEMENT_TURNS):
        with pytest.raises(InputError, match="does not say which"):
            Renderer(tiny.tokenizer(), loss_on=loss_on).render(talk)


@cache
def cached(family: str | None, kind: str) -> Any:
    return tiny.tokenizer(family, kind=kind)


def laws_hold(tokenizer: Any, talk: Conversation) -> bool:
    """Checks them; gives whether the tokenizer merges across a prompt's end."""
    renderer = Renderer(tokenizer)
    at = [k for k, turn in enumerate(talk.turns) if turn.role == "assistant"]
    whole, prompts = ids_of(tokenizer, chat(talk)), [ids_of(tokenizer, chat(talk, turns=k), prompt=True) for k in at]
    trained = [talk.trained()[k] for k in at]
    if any(train and whole[: len(prompt)] != prompt for prompt, train in zip(prompts, trained, strict=True)):
        with pytest.raises(TemplateError, match="other tokens of the prompt"):
            renderer.render(talk)
        return True
    rendered = one(renderer, talk)
    assert rendered.input_ids.tolist() == whole
    for k, span in zip(at, rendered.spans, strict=True):
        assert rendered.input_ids[span.stop - 1] == tokenizer.eos_token_id
        text = tokenizer.decode(rendered.input_ids[span.start : span.stop])
        assert "".join(talk.turns[k].content.split()) in "".join(text.split())
    return False


@given(st.sampled_from([*tiny.FAMILIES, None]), st.sampled_from(["byte-level", "metaspace"]), st.data())
def test_laws_hold_for_any_texts(family: str | None, kind: str, data: st.DataObject) -> None:
    tokenizer = cached(family, kind)
    texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=30).filter(str.strip)
    labels = data.draw(st.sampled_from(["c", "mr", "cmmr"]))
    plain = tiny.talk(labels)
    talk = Conversation("x", "g", tuple(turn._replace(content=data.draw(texts)) for turn in plain.turns), "x:1")
    laws_hold(tokenizer, talk)


@pytest.mark.parametrize("labels", ["c", "mr", "cmmr"])
def test_laws_hold_where_a_prompts_end_and_a_turn_are_one_token(labels: str) -> None:
    # A tokenizer that splits at blanks alone has seen so many lines that begin with E that it has a token for it.
    turns = [turn._replace(content="E" if turn.role == "assistant" else "0") for turn in tiny.talk(labels).turns]
    assert laws_hold(cached("chatml", "metaspace"), Conversation("x", "g", tuple(turns), "x:1"))
