"""Which layout a model gets: measured on it."""

# torch and transformers are typed in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

import itertools
from typing import Any

import engine_toys as toys
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from refinesynth.errors import InputError
from refinesynth.train.engine import attention
from refinesynth.train.engine.attention import SEGMENTS, UnsupportedAttention, segment_attention
from refinesynth.train.engine.batch import pack_batch
from refinesynth.train.engine.head import token_losses
from refinesynth.train.engine.probing import choose_layout

SMALL: dict[str, Any] = {
    "vocab_size": toys.VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


def make(name: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    settings = getattr(transformers, f"{name}Config")(**SMALL | changes)
    return AutoModelForCausalLM.from_config(settings).double()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Llama", {}),
        ("Mistral", {"sliding_window": 8}),
        ("Qwen3", {"head_dim": 8}),
        ("Gemma3Text", {"head_dim": 8, "sliding_window": 8}),
    ],
)
def test_packed_by_segments_is_unpacked_by_the_librarys_own(name: str, changes: dict[str, Any]):
    model = make(name, **changes)
    examples = [toys.example(seed, longest=20) for seed in range(3)]
    alone = [pack_batch([one]) for one in examples]
    wanted = torch.cat(
        [
            token_losses(model, model, {"input_ids": one.inputs["input_ids"]}, one)  # sdpa, and its mask for a window
            for one in alone
        ]
    )
    layout = choose_layout(model)
    assert (layout.packed, layout.attention) == (True, SEGMENTS)
    batch = pack_batch(examples)
    assert torch.allclose(token_losses(model, model, batch.inputs, batch), wanted, rtol=0, atol=1e-10)


def test_attention_with_soft_caps_falls_back_to_the_librarys_mask():
    model = make("Gemma2", head_dim=8, sliding_window=8)
    layout = choose_layout(model)
    assert layout.packed
    assert layout.attention == "eager"
    assert not layout.plain_head  # its logits are capped behind the head, so that chunks would be wrong


@pytest.mark.parametrize(("name", "changes"), [("Bloom", {"n_head": 4, "n_layer": 2}), ("Mamba", {"state_size": 8})])
@pytest.mark.filterwarnings("ignore")
def test_models_that_would_join_conversations_get_one_a_row(name: str, changes: dict[str, Any]):
    layout = choose_layout(make(name, **changes))
    assert not layout.packed
    assert layout.note is not None
    assert "one conversation a row" in layout.note


def test_a_model_that_takes_no_boundaries_is_packed_by_positions():
    class Strict(toys.LlamaForCausalLM):
        def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, input_ids: Any, position_ids: Any = None, use_cache: Any = None, logits_to_keep: Any = 0
        ) -> Any:
            return super().forward(
                input_ids, position_ids=position_ids, use_cache=use_cache, logits_to_keep=logits_to_keep
            )

    model = Strict(toys.model().config)
    layout = choose_layout(model)
    assert (layout.packed, layout.boundaries, layout.attention) == (True, False, "sdpa")
    batch = pack_batch([toys.example(1)])
    assert layout.inputs(batch).keys() == {"input_ids", "position_ids"}


def test_an_implementation_of_no_use_is_refused():
    with pytest.raises(InputError, match="no_such"):
        choose_layout(toys.model(), attention="no_such")


def test_without_packing_nothing_is_changed():
    model = toys.model()
    layout = choose_layout(model, packing=False)
    assert (layout.packed, layout.attention) == (False, "sdpa")


def test_the_choice_leaves_mode_and_random_state_as_they_were():
    model = toys.model()
    model.train()
    before = torch.random.get_rng_state()
    choose_layout(model)
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), before)


def test_generating_with_segments_is_generating_with_sdpa():
    model: Any = toys.model()
    ids = torch.tensor([[0, 0, 5, 6, 7], [3, 4, 5, 6, 7]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    wanted = model.generate(ids, attention_mask=mask, **options)
    choose_layout(model)
    assert model.config._attn_implementation == SEGMENTS
    assert torch.equal(model.generate(ids, attention_mask=mask, **options), wanted)


def test_what_segments_cannot_do_is_said():
    heads = torch.zeros(1, 2, 3, 4)
    with pytest.raises(UnsupportedAttention):
        segment_attention(torch.nn.Module(), heads, heads, heads, None, softcap=1.0)


def test_flash_attention_is_handed_what_it_asks_for(monkeypatch: pytest.MonkeyPatch):
    """With a stand-in of varlen_attn's contract on a CPU: (T, heads, width), boundaries, a window that leaves the token itself out."""
    calls: list[tuple[Any, ...]] = []

    def varlen_attn(  # noqa: PLR0917 - torch's signature
        query: Any,
        key: Any,
        value: Any,
        cu_seq_q: Any,
        cu_seq_k: Any,
        max_q: int,
        max_k: int,
        *,
        scale: float,
        window_size: tuple[int, int],
        enable_gqa: bool,
    ) -> Any:
        calls.append((window_size, enable_gqa, max_q, max_k))
        assert torch.equal(cu_seq_q, cu_seq_k)
        assert cu_seq_q.dtype == torch.int32
        left, right = window_size
        assert right == 0
        parts: list[Any] = []
        for start, stop in itertools.pairwise(cu_seq_q.tolist()):
            at = torch.arange(stop - start)
            behind = at[:, None] - at[None, :]
            mask = (behind >= 0) & ((behind <= left) if left >= 0 else True)
            q, k, v = (each[start:stop].transpose(0, 1) for each in (query, key, value))
            attend = torch.nn.functional.scaled_dot_product_attention
            parts.append(attend(q, k, v, attn_mask=mask, scale=scale, enable_gqa=enable_gqa).transpose(0, 1))
        return torch.cat(parts)

    batch = pack_batch([toys.example(seed, longest=20) for seed in range(3)])
    for name, changes in (("Llama", {}), ("Mistral", {"sliding_window": 8})):
        model = make(name, **changes)
        choose_layout(model)
        wanted = token_losses(model, model, batch.inputs, batch)
        with monkeypatch.context() as patch:
            patch.setattr(attention, "_flash_dtype", lambda *_: torch.float64)
            patch.setattr(attention, "_varlen_attn", lambda: varlen_attn)
            assert torch.allclose(token_losses(model, model, batch.inputs, batch), wanted, rtol=0, atol=1e-10)
    assert {window for window, *_ in calls} == {(-1, 0), (7, 0)}
    assert {grouped for _, grouped, *_ in calls} == {True}
    assert {longest for *_, longest in calls} == {batch.inputs["max_length_q"]}


def test_torchs_own_takes_what_it_is_handed():
    """The installed torch has it, with the arguments that are used."""
    assert attention._varlen_attn() is not None
