"""Many examples in flat arrays are the examples."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.train.conversation import TurnLabel
from refinesynth.train.tokens import Label, Rendered, Span, TokenStore


@st.composite
def examples(draw: st.DrawFn) -> Rendered:
    ids = draw(st.lists(st.integers(0, 2**31 - 1), max_size=12))
    labels = draw(st.lists(st.sampled_from(Label), min_size=len(ids), max_size=len(ids)))
    edges = sorted(draw(st.sets(st.integers(0, len(ids)), max_size=6)))
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    spans = tuple(Span(a, b, draw(st.sampled_from(TurnLabel))) for a, b in pairs)
    name = draw(st.text(max_size=4))
    return Rendered(name, np.array(ids, np.int32), np.array(labels, np.int8), spans)


def same(one: Rendered, other: Rendered) -> bool:
    return (
        (one.id, one.spans) == (other.id, other.spans)
        and one.input_ids.tolist() == other.input_ids.tolist()
        and one.labels.tolist() == other.labels.tolist()
    )


@given(st.lists(examples(), max_size=8))
def test_a_store_gives_back_what_it_was_made_of(many: list[Rendered]) -> None:
    store = TokenStore.of(iter(many))
    assert len(store) == len(many)
    assert all(same(one, other) for one, other in zip(store, many, strict=True))
    assert store.lengths.tolist() == [len(one) for one in many]
    again = pickle.loads(pickle.dumps(store))
    assert again.digest == store.digest
    for wrong in (len(many), -len(many) - 1):
        with pytest.raises(IndexError):
            store[wrong]
    if many:
        assert same(store[-1], many[-1])


@given(st.lists(examples(), min_size=1, max_size=5), st.data())
def test_the_digest_changes_with_any_token_label_span_or_order(many: list[Rendered], data: st.DataObject) -> None:
    def changed(at: int, one: Rendered) -> str:
        return TokenStore.of([one if k == at else other for k, other in enumerate(many)]).digest

    before = TokenStore.of(many).digest
    at = data.draw(st.integers(0, len(many) - 1))
    one = many[at]
    longer = np.append(one.input_ids, np.int32(1)), np.append(one.labels, np.int8(0))
    assert changed(at, Rendered(one.id, *longer, one.spans)) != before
    assert changed(at, Rendered("other", one.input_ids, one.labels, one.spans)) == before
    if len(one):
        assert (
            changed(at, Rendered("", (one.input_ids + 1) % 7 + 8, one.labels, one.spans)) != before
            or (((one.input_ids + 1) % 7 + 8) == one.input_ids).all()
        )
        assert changed(at, Rendered("", one.input_ids, (one.labels + 1) % 3, one.spans)) != before
    if one.spans:
        assert changed(at, Rendered("", one.input_ids, one.labels, one.spans[:-1])) != before
