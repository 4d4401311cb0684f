"""Nothing is cut inside a turn, nothing is left out without being counted, and every example has something to learn."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.chat import PARALLEL_INSTRUCTIONS
from refinesynth.train.labelled_conversation import Conversation, LossOn
from refinesynth.train.prepare import fit, prepare
from refinesynth.train.render import Renderer
from refinesynth.train.tokens import Label

RENDERER = Renderer(tiny.tokenizer())
labels = st.text("cmr", min_size=1, max_size=8)


@given(labels, st.integers(1, 400))
def test_a_long_example_is_cut_behind_the_last_trained_turn_that_fits(letters: str, most: int) -> None:
    (whole,) = RENDERER.render(tiny.talk(letters))
    cut = fit(whole, most)
    ends = [span.stop for span in whole.spans if whole.labels[span.stop - 1] == Label.TRAINED]
    fitting = [end for end in ends if end <= most]
    if len(whole) <= most:
        assert cut is whole
    elif not fitting:
        assert cut is None
    else:
        assert cut is not None
        assert len(cut) == fitting[-1]
        assert cut.input_ids.tolist() == whole.input_ids[: len(cut)].tolist()
        assert cut.labels.tolist() == whole.labels[: len(cut)].tolist()
        assert cut.spans == tuple(span for span in whole.spans if span.stop <= len(cut))
        assert cut.spans[-1].stop == len(cut)


@pytest.mark.long
@given(st.lists(labels, max_size=12), st.integers(20, 300))
def test_every_conversation_is_kept_or_counted(letters: list[str], most: int) -> None:
    talks = [tiny.talk(each, id=f"t{k}") for k, each in enumerate(letters)]
    store, counts = prepare(iter(talks), RENDERER, most).store, prepare(talks, RENDERER, most).counts
    assert counts.conversations == len(talks)
    assert counts.records + counts.dropped_long + counts.dropped_untrained == len(talks)
    assert counts.records == len(store)
    assert counts.tokens == sum(map(len, store))
    assert counts.trained_tokens == sum(one.trained for one in store)
    assert counts.mistake_tokens == sum(int((one.labels == Label.MISTAKE).sum()) for one in store)
    assert all(len(one) <= most and one.trained for one in store)
    whole = {talk.id: len(RENDERER.render(talk)[0].spans) for talk in talks}
    assert sum(len(one.spans) < whole[one.id] for one in store) == counts.truncated
    assert counts.cut_turns == sum(whole[one.id] - len(one.spans) for one in store)


def test_what_is_lost_is_counted() -> None:
    talks = [tiny.talk("mm", id=f"m{k}") for k in range(15)] + [
        tiny.talk("c" * 9, id="long"),
        tiny.talk("c", id="short"),
    ]
    counts = prepare(talks, RENDERER, 120).counts
    assert (counts.dropped_untrained, counts.truncated, counts.dropped_long) == (15, 1, 0)
    assert prepare([tiny.talk("c", id="x")], RENDERER, 5).counts.dropped_long == 1


def test_mistakes_that_are_trained_on_are_counted_as_mistakes() -> None:
    talks = [tiny.talk("cmr"), tiny.talk("mrc", id="other")]
    masked, every = (
        prepare(talks, Renderer(tiny.tokenizer(), loss_on=loss_on), 200).counts
        for loss_on in (LossOn.REFINEMENT, LossOn.ALL_TURNS)
    )
    assert every.mistake_tokens == masked.mistake_tokens > 0
    assert every.trained_tokens == masked.trained_tokens + masked.mistake_tokens


def test_nothing_gives_nothing() -> None:
    found = prepare([], RENDERER, 10)
    assert (len(found.store), found.counts.tokens) == (0, 0)
    untaught = prepare([tiny.talk("", closing=True)], RENDERER, 10).counts
    assert (untaught.conversations, untaught.dropped_untrained) == (1, 1)


def test_conversations_are_read_as_they_are_needed() -> None:
    read: list[str] = []

    def source() -> Iterator[Conversation]:
        for k in range(1000):
            read.append(f"{k}")
            yield tiny.talk("c", id=f"{k}")

    made = RENDERER.render_many(source())
    next(made)
    assert len(read) < 200


@pytest.mark.long
@pytest.mark.parametrize("family", ["chatml", "qwen3"])
def test_many_are_rendered_as_each_is(family: str) -> None:
    renderer = Renderer(tiny.tokenizer(family), on_rewrite="expand")
    talks = [tiny.talk("cmr"[: k % 3 + 1] * (k % 5 + 1), id=f"t{k}") for k in range(150)]
    for talk, together in zip(talks, renderer.render_many(talks), strict=True):
        alone = renderer.render(talk)
        assert [each.id.partition("@")[0] for each in together] == [talk.id] * len(alone)
        for found, wanted in zip(together, alone, strict=True):
            assert (found.id, found.spans) == (wanted.id, wanted.spans)
            assert found.input_ids.tolist() == wanted.input_ids.tolist()


def test_tasks_that_allow_several_calls_are_counted() -> None:
    asked = tiny.talk("cmr")
    first = asked.turns[0]
    allowed = replace(asked, turns=(first._replace(content=f"Go. {PARALLEL_INSTRUCTIONS}"), *asked.turns[1:]))
    assert prepare([asked, allowed], RENDERER, 500).counts.parallel_tasks == 1
