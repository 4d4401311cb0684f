"""Equation 1 on a tiny model in double precision: what gives a gradient, and that layout does not matter."""

from typing import Any

import engine_toys as toys
import numpy as np
import pytest
import torch
from engine_toys import Label, Rendered, TurnLabel
from torch import Tensor

from refinesynth.train.engine.attention import SEGMENTS
from refinesynth.train.engine.batch_layout import choose_layout
from refinesynth.train.engine.lm_head import TURN_LABELS, Batch, labelled_targets, pack_batch, token_losses
from refinesynth.train.tokens import Span

pytestmark = pytest.mark.train

EXAMPLES = [toys.example(seed) for seed in range(5)]


def double(**changes: Any) -> toys.LlamaForCausalLM:
    model = toys.model(dtype=torch.float64, **changes)
    assert choose_layout(model).attention == SEGMENTS
    return model


def losses(model: Any, batch: Batch, chunk_elements: int | None = None) -> Tensor:
    return token_losses(model, model, batch.inputs, batch, chunk_elements=chunk_elements)


def gradient(model: Any, *batches: Batch, chunk_elements: int | None = None) -> dict[str, Tensor]:
    """Of the sum over all batches' trained tokens."""
    model.zero_grad()
    for batch in batches:
        (losses(model, batch, chunk_elements).sum() * batch.weight).backward()
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


def same(one: dict[str, Tensor], other: dict[str, Tensor], within: float = 1e-12) -> bool:
    return one.keys() == other.keys() and all(
        torch.allclose(one[name], other[name], rtol=0, atol=within) for name in one
    )


def test_a_mistakes_own_tokens_give_exactly_no_gradient():
    """By the gradient with respect to all logits: rows that predict a mistake's tokens are zero, rows of trained tokens
    are not."""
    model, one = double(), toys.example(3)
    batch = pack_batch([one])
    hidden: list[Tensor] = []
    handle = model.lm_head.register_forward_pre_hook(lambda _module, inputs: hidden.append(inputs[0]))
    logits = model(**batch.inputs, use_cache=False).logits[0]
    logits.retain_grad()
    wanted = torch.nn.functional.cross_entropy(logits[batch.column], batch.target, reduction="sum")
    wanted.backward()
    handle.remove()
    assert torch.allclose(losses(model, batch).sum(), wanted)
    mistakes = torch.from_numpy((one.labels == Label.MISTAKE).nonzero()[0])
    trained = torch.from_numpy((one.labels == Label.TRAINED).nonzero()[0])
    assert len(mistakes)
    assert bool((logits.grad[mistakes - 1] == 0).all())
    assert bool((logits.grad[trained - 1] != 0).any(dim=1).all())
    # And they do not even reach the head.
    hidden.clear()
    handle = model.lm_head.register_forward_pre_hook(lambda _module, inputs: hidden.append(inputs[0]))
    losses(model, batch)
    handle.remove()
    assert sum(each.shape[-2] for each in hidden) == len(trained)


def test_another_mistake_last_gives_the_same_gradient():
    """With nothing trained behind it, the text of a mistake changes nothing at all."""
    model, one = double(), toys.example(5, (TurnLabel.CORRECT, TurnLabel.MISTAKE))
    other = Rendered(one.id, one.input_ids.copy(), one.labels, one.spans)
    start, stop, _ = one.spans[1]
    other.input_ids[start:stop] = (one.input_ids[start:stop] + 1) % toys.VOCABULARY
    assert same(gradient(model, pack_batch([one])), gradient(model, pack_batch([other])), within=0)


def test_another_mistake_changes_the_loss_of_the_turns_behind_it_and_of_none_before():
    model, one = double(), toys.example(3)
    other = Rendered(one.id, one.input_ids.copy(), one.labels, one.spans)
    start, stop, _ = one.spans[1]
    other.input_ids[start:stop] = (one.input_ids[start:stop] + 1) % toys.VOCABULARY
    batch = pack_batch([one])
    before = batch.column < start
    first, second = losses(model, batch), losses(model, pack_batch([other]))
    assert torch.equal(first[before], second[before])
    assert bool((first[~before] != second[~before]).all())


@pytest.mark.parametrize(
    "changes", [{}, {"num_key_value_heads": 4}, {"attention_dropout": 0.0, "num_key_value_heads": 1}]
)
def test_packed_is_unpacked_is_accumulated(changes: dict[str, Any]):
    model = double(**changes)
    packed = gradient(model, pack_batch(EXAMPLES))
    assert same(packed, gradient(model, *(pack_batch([one]) for one in EXAMPLES)))
    assert same(packed, gradient(model, pack_batch(EXAMPLES[:2]), pack_batch([]), pack_batch(EXAMPLES[2:])))


class Whole(toys.LlamaForCausalLM):
    """Cannot leave positions out."""

    def forward(self, input_ids: Any, position_ids: Any = None, use_cache: Any = None, **inputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(input_ids, position_ids=position_ids, use_cache=use_cache, **inputs)


@pytest.mark.parametrize("kind", [toys.LlamaForCausalLM, Whole])
@pytest.mark.parametrize("most", [7, 10**6])
def test_in_chunks_is_at_once_and_no_more_rows_reach_the_head_together(kind: Any, most: int):
    model, batch = double(), pack_batch(EXAMPLES)
    plain = gradient(model, batch)
    model.__class__ = kind
    rows: list[int] = []
    inner = torch.nn.functional.linear

    def counted(hidden: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight is model.lm_head.weight:
            rows.append(hidden.shape[:-1].numel())
        return inner(hidden, weight, bias)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "linear", counted)
        chunked = gradient(model, batch, chunk_elements=most * toys.VOCABULARY)
    assert same(plain, chunked)
    assert max(rows) == min(most, len(batch.target))
    again = most == 7 or kind is Whole
    assert sum(rows) == (1 + again) * len(batch.target)  # forward, and again in the backward pass
    assert "forward" not in vars(model.lm_head)


def test_a_pack_without_a_trained_token_gives_a_gradient_of_zeros_for_every_weight():
    model = double()
    for batch in (pack_batch([]), pack_batch([toys.example(1, (TurnLabel.MISTAKE,))])):
        found = gradient(model, batch)
        assert found.keys() == dict(model.named_parameters()).keys()
        assert all(bool((one == 0).all()) for one in found.values())


def test_a_mistaken_call_of_a_right_turn_counts_as_a_mistake():
    labels = np.array([0, 1, 2, 2, 1], np.int8)
    one = toys.Rendered("x", np.arange(5, dtype=np.int32), labels, (Span(1, 5, TurnLabel.CORRECT),))
    right, mistake = 2 * TURN_LABELS.index(TurnLabel.CORRECT) + 1, 2 * TURN_LABELS.index(TurnLabel.MISTAKE)
    assert labelled_targets(one).kind.tolist() == [right, mistake, mistake, right]
