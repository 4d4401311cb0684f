"""Where an assistant's turn begins and ends: tokens that take blanks in, several end tokens, headers that only look
like ends."""

from typing import Any

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from refinesynth.errors import InputError
from refinesynth.train.labelled_conversation import Conversation, Turn, TurnLabel
from refinesynth.train.render import Renderer, TemplateError
from refinesynth.train.tokens import Label, Rendered


def saying(*texts: str) -> Conversation:
    turns = [
        Turn("assistant", text, TurnLabel.CORRECT) if at % 2 else Turn("user", text, None)
        for at, text in enumerate(texts)
    ]
    return Conversation("x", "g", tuple(turns), "x.jsonl:3")


TALK = saying("Find it.", "Action: go", "You see.", "Action: open")


def one(renderer: Renderer, conversation: Conversation = TALK) -> Rendered:
    (rendered,) = renderer.render(conversation)
    return rendered


def written(renderer: Renderer, conversation: Conversation = TALK) -> list[str]:
    """The text of each turn that is trained on."""
    rendered = one(renderer, conversation)
    assert all((rendered.labels[start:stop] == Label.TRAINED).all() for start, stop, _ in rendered.spans)
    assert rendered.trained == sum(stop - start for start, stop, _ in rendered.spans)
    return [renderer.tokenizer.decode(rendered.input_ids[start:stop]) for start, stop, _ in rendered.spans]


def with_tokens(*texts: str, eos: str, kind: str = "byte-level", normalizer: Any = None, **flags: bool) -> Any:
    made: Any = Tokenizer.from_str(tiny.tokenizer(None, kind=kind).backend_tokenizer.to_str())
    if normalizer is not None:
        made.normalizer = normalizer
    made.add_tokens([AddedToken(text, special=True, **{"normalized": False, **flags}) for text in texts])
    named = {"unk_token": "<unk>"} if kind != "byte-level" else {}
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=eos, **named)


BARS = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>\n' }}{% endfor %}"
ASKED = "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
BLANKS = st.text(" \n\t", max_size=3)


@given(BLANKS, BLANKS, st.sampled_from([(False, True), (True, False), (True, True)]))
def test_control_tokens_that_take_blanks_in_leave_turns_whole(left: str, right: str, takes: tuple[bool, bool]) -> None:
    tokens = ("<|user|>", "<|assistant|>", "<|end|>")
    renderer = Renderer(with_tokens(*tokens, eos="<|end|>", lstrip=takes[0], rstrip=takes[1]), template=BARS + ASKED)
    talk = saying("Find it.", f"{left}Action: go{right}", f"{right}You see.{left}", "Action: open")
    first, second = written(renderer, talk)
    assert first.strip().removesuffix("<|end|>").strip() == "Action: go"
    assert second == "Action: open<|end|>"


COHERE = (
    "{% for m in messages %}{{ '<|START|><|' + m.role + '|>' }}{% if m.role == 'assistant' %}{{ '<|RESPONSE|>' }}{% endif %}"
    "{{ m.content }}{% if m.role == 'assistant' %}{{ '<|END_RESPONSE|>' }}{% endif %}{{ '<|END_TURN|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|START|><|assistant|>' }}{% endif %}"
)


def test_an_end_of_turn_of_several_tokens_is_trained_to_the_one_that_stops_generation() -> None:
    tokens = ("<|START|>", "<|user|>", "<|assistant|>", "<|RESPONSE|>", "<|END_RESPONSE|>", "<|END_TURN|>")
    renderer = Renderer(with_tokens(*tokens, eos="<|END_TURN|>"), template=COHERE)
    ends = "<|END_RESPONSE|><|END_TURN|>"
    assert written(renderer) == [f"<|RESPONSE|>Action: go{ends}", f"<|RESPONSE|>Action: open{ends}"]


def test_an_end_of_sequence_token_apart_from_the_end_of_turn_is_not_trained() -> None:
    tokens = ("<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>")
    closed = ASKED.replace("{% endif %}", "{% else %}{{ eos_token }}{% endif %}")
    renderer = Renderer(with_tokens(*tokens, eos="<|endoftext|>"), template=BARS + closed)
    assert written(renderer) == ["Action: go<|end|>", "Action: open<|end|>"]


@pytest.mark.parametrize("asked", ["", ASKED])
def test_the_header_of_a_users_turn_is_no_end_of_turn(asked: str) -> None:
    # Only the last turn ends in a token of its own.
    headers = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"
    last = "{% if messages[-1].role == 'assistant' %}{{ eos_token }}{% endif %}"
    tokenizer = with_tokens("<|user|>", "<|assistant|>", "</s>", eos="</s>")
    with pytest.raises(TemplateError, match=r"x.jsonl:3: .*'<\|user\|>' after message 2, .*'</s>' after the last one"):
        Renderer(tokenizer, template=headers + last + asked).render(TALK)


def test_a_start_token_that_every_turn_begins_with_is_no_end_of_turn() -> None:
    starts = "{% for m in messages %}{{ '<|start|>' + m.role + '<|message|>' + m.content }}{% endfor %}"
    last = "{% if messages[-1].role == 'assistant' %}{{ eos_token }}{% endif %}"
    asked = "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
    tokenizer = with_tokens("<|start|>", "<|message|>", "</s>", eos="</s>")
    with pytest.raises(TemplateError, match="header of the next turn"):
        Renderer(tokenizer, template=starts + last + asked).render(TALK)


def test_a_last_turn_may_end_in_a_token_of_its_own_where_earlier_ones_end_as_users_do() -> None:
    harmony = (
        "{% for m in messages %}{{ '<|start|>' + m.role + '<|message|>' + m.content }}"
        "{{ '<|return|>' if loop.last and m.role == 'assistant' else '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
    )
    renderer = Renderer(
        with_tokens("<|start|>", "<|message|>", "<|end|>", "<|return|>", eos="<|return|>"), template=harmony
    )
    assert written(renderer) == ["<|message|>Action: go<|end|>", "<|message|>Action: open<|return|>"]


def test_an_end_of_turn_that_the_normalizer_hides_from_the_tokenizer_is_refused() -> None:
    # As in tokenizers of SentencePiece's older manner: the token is looked for with a blank before it.
    normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokens = ("<|user|>", "<|assistant|>", "<|end|>")
    hidden = with_tokens(*tokens, eos="<|end|>", kind="metaspace", normalizer=normalizer, normalized=True)
    with pytest.raises(TemplateError, match=r"x.jsonl:3: .*no control token of what ends message 2"):
        Renderer(hidden, template=BARS + ASKED).render(TALK)
    seen = with_tokens(*tokens, eos="<|end|>", kind="metaspace", normalizer=normalizer)
    assert one(Renderer(seen, template=BARS + ASKED)).spans


def test_an_end_of_sequence_token_that_is_the_unknown_one_too_ends_turns() -> None:
    # As GPT-2 has it.
    tokenizer = tiny.tokenizer(None)
    tokenizer.unk_token = tokenizer.eos_token
    assert tokenizer.unk_token_id == tokenizer.eos_token_id
    assert written(Renderer(tokenizer)) == ["Action: go</s>", "Action: open</s>"]


OPENED = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><think>' }}{% endif %}"
)


def test_what_the_prompt_writes_of_a_turn_is_not_trained() -> None:
    tokenizer = with_tokens("<|user|>", "<|assistant|>", "<|end|>", eos="<|end|>")
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    renderer = Renderer(tokenizer, template=OPENED)
    talk = saying("Find it.", "<think>hm</think>Action: go", "You see.", "<think></think>Action: open")
    assert written(renderer, talk) == ["hm</think>Action: go<|end|>", "</think>Action: open<|end|>"]
    for texts in (("<think>hm</think>Action: go", "Action: open"), ("Action: go", "<think>hm</think>Action: open")):
        with pytest.raises(TemplateError, match="behind other text than it is given"):
            one(renderer, saying("Find it.", texts[0], "You see.", texts[1]))


@pytest.mark.parametrize("at", [0, 1, 3])
def test_half_a_character_is_refused(at: int) -> None:
    texts = ["Find it.", "Action: go", "You see.", "Action: open"]
    texts[at] += "\ud83d"
    with pytest.raises(InputError, match=rf"x.jsonl:3: message {at + 1} holds half a character"):
        Renderer(tiny.tokenizer()).render(saying(*texts))


@given(
    st.sampled_from([*tiny.FAMILIES, None]),
    st.sampled_from(["go", "assistant", "user", "model", "word1", "0", "\ue000"]),
)
def test_turns_that_say_the_same_are_told_apart(family: str | None, text: str) -> None:
    renderer = Renderer(tiny.tokenizer(family))
    told = [part.strip() for part in written(renderer, saying(*[text] * 6))]
    assert told == [text + renderer.tokenizer.eos_token] * 3


def test_a_slow_tokenizer_is_refused_with_a_way_out() -> None:
    slow: Any = ByT5Tokenizer
    with pytest.raises(TemplateError, match=r"fast form.*tokenizer\.json"):
        Renderer(slow(extra_ids=0))
