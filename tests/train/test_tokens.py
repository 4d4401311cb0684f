"""The digest of examples."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from refinesynth.train.labelled_conversation import TurnLabel
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


def test_the_digest_is_that_of_every_version() -> None:
    """Checkpoints hold it, so it may not change."""
    spans = Span(0, 1, TurnLabel.MISTAKE), Span(2, 3, TurnLabel.CORRECT)
    one = Rendered("a", np.array([5, 6, 7], np.int32), np.array([2, 0, 1], np.int8), spans)
    other = Rendered("b", np.array([8], np.int32), np.array([1], np.int8), ())
    assert TokenStore([one, other]).digest == "43d6bdaa2c5e05eadcf94204f1fa4172e35ff82baf8d5149555cebcb3982c014"
    assert TokenStore([]).digest == "374708fff7719dd5979ec875d56cd2286f6d3cf7ec317a3b25632aab28ec37bb"


@given(st.lists(examples(), min_size=1, max_size=5), st.data())
def test_the_digest_changes_with_any_token_label_span_or_order(many: list[Rendered], data: st.DataObject) -> None:
    def changed(at: int, one: Rendered) -> str:
        return TokenStore([one if k == at else other for k, other in enumerate(many)]).digest

    before = TokenStore(many).digest
    at = data.draw(st.integers(0, len(many) - 1))
    one = many[at]
    longer = np.append(one.input_ids, np.int32(1)), np.append(one.labels, np.int8(0))
    assert changed(at, Rendered(one.id, *longer, one.spans)) != before
    assert changed(at, Rendered("other", one.input_ids, one.labels, one.spans)) == before
    if len(one):
        assert changed(at, Rendered("", one.input_ids ^ 1, one.labels, one.spans)) != before
        assert changed(at, Rendered("", one.input_ids, (one.labels + 1) % 3, one.spans)) != before
    if one.spans:
        assert changed(at, Rendered("", one.input_ids, one.labels, one.spans[:-1])) != before
