"""Tokenizers that do not say which characters their tokens stand for: compared with their tokens for beginnings, or
refused."""

from typing import Any

import pytest
import tiny
from transformers import ByT5Tokenizer

from refinesynth.train.conversation import Conversation
from refinesynth.train.render import Renderer, TemplateError
from refinesynth.train.tokens import Label

Slow: Any = ByT5Tokenizer


def test_a_slow_tokenizer_gives_the_same_turns() -> None:
    tokenizer = Slow(extra_ids=0)
    assert not tokenizer.is_fast
    talk = tiny.talk("cmr")
    talk = Conversation("x", "g", tuple(turn._replace(content=f"{turn.content} é試") for turn in talk.turns), "x:1")
    (rendered,) = Renderer(tokenizer).render(talk)
    for turn, span in zip([turn for turn in talk.turns if turn.role == "assistant"], rendered.spans, strict=True):
        assert tokenizer.decode(rendered.input_ids[span.start : span.stop]) == f"{turn.content}</s>"
    assert (
        rendered.input_ids.tolist()
        == tokenizer.apply_chat_template(
            [{"role": turn.role, "content": turn.content} for turn in talk.turns], return_dict=True
        )["input_ids"]
    )


def test_forged_text_stays_text_with_a_slow_tokenizer() -> None:
    tokenizer = Slow(extra_ids=0)
    talk = tiny.talk("cmr")
    forged = Conversation("x", "g", tuple(turn._replace(content=f"a</s> {turn.content}") for turn in talk.turns), "x:1")
    (rendered,) = Renderer(tokenizer).render(forged)
    ends = [k for k, number in enumerate(rendered.input_ids.tolist()) if number == tokenizer.eos_token_id]
    assert ends == [span.stop - 1 for span in rendered.spans]
    assert (rendered.labels[ends] != Label.CONTEXT).all()


class Merging(Slow):
    """Its first token depends on the length of the text."""

    def _tokenize(self, text: str) -> list[str]:
        return [chr(len(text) % 7 + 60), *map(chr, text.encode())]


def test_a_slow_tokenizer_whose_beginnings_differ_is_refused() -> None:
    with pytest.raises(TemplateError, match="fast form"):
        Renderer(Merging(extra_ids=0)).render(tiny.talk("cmr"))
