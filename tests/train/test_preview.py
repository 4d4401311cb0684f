"""The preview shows the tokens that the model sees, and what each is to the loss."""

from itertools import pairwise

import numpy as np
import pytest
import tiny

from refinesynth.train.labelled_conversation import LossOn
from refinesynth.train.render import Renderer
from refinesynth.train.tokens import Label, Rendered
from refinesynth.train.trainer import preview


@pytest.mark.parametrize("kind", ["byte-level", "metaspace"])
@pytest.mark.parametrize("family", [*tiny.FAMILIES, None])
def test_the_segments_are_the_text_of_the_tokens(family: str | None, kind: str) -> None:
    tokenizer = tiny.tokenizer(family, kind=kind)
    (rendered,) = Renderer(tokenizer).render(tiny.talk("cmrc"))
    shown = preview(rendered, tokenizer)
    assert "".join(segment.text for segment in shown.segments) == tokenizer.decode(rendered.input_ids)
    labels = [label for segment in shown.segments for label in [segment.label] * segment.tokens]
    assert labels == rendered.labels.tolist()
    assert all(one.label is not other.label for one, other in pairwise(shown.segments))
    assert (shown.tokens, shown.trained) == (len(rendered), rendered.trained)
    assert shown.mistakes == int((rendered.labels == Label.MISTAKE).sum())
    (every,) = Renderer(tokenizer, loss_on=LossOn.ALL_TURNS).render(tiny.talk("cmrc"))
    assert preview(every, tokenizer).mistakes == shown.mistakes
    assert shown.trained_share == rendered.trained / len(rendered)


def test_a_character_across_an_edge_and_an_empty_example_are_shown_all_the_same() -> None:
    tokenizer = tiny.tokenizer()
    ids = np.array(tokenizer("試")["input_ids"], np.int32)
    labels = np.array([Label.TRAINED] + [Label.CONTEXT] * (len(ids) - 1), np.int8)
    shown = preview(Rendered("x", ids, labels, ()), tokenizer)
    assert [segment.tokens for segment in shown.segments] == [1, len(ids) - 1]
    # As tokenizers of old models have it: they write "n't" for " n't".
    tokenizer.clean_up_tokenization_spaces = True
    tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    ids = np.array(tokenizer("試 n't .")["input_ids"], np.int32)
    labels = np.array([Label.TRAINED] + [Label.CONTEXT] * (len(ids) - 1), np.int8)
    assert preview(Rendered("x", ids, labels, ()), tokenizer).segments[1].text.endswith(" n't .")
    empty = preview(Rendered("x", ids[:0], labels[:0], ()), tokenizer)
    assert (empty.segments, empty.trained_share) == ((), 0.0)
