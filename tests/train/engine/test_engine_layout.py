"""Which layout a model gets: measured on it."""

import itertools
import sys
from typing import Any

import engine_toys as toys
import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from refinesynth.errors import InputError
from refinesynth.train.engine import attention
from refinesynth.train.engine.attention import SEGMENTS
from refinesynth.train.engine.batch_layout import choose_layout
from refinesynth.train.engine.lm_head import pack_batch, token_losses

pytestmark = pytest.mark.train

SMALL: dict[str, Any] = {**toys.SIZES, **toys.NO_SPECIAL}


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
def test_models_that_would_join_conversations_are_not_packed(name: str, changes: dict[str, Any]):
    model = make(name, **changes)
    own = model.config._attn_implementation
    with pytest.raises(InputError, match=r"apart \(.*\).* Give --set packing=false: .* one conversation a pass"):
        choose_layout(model)
    layout = choose_layout(make(name, **changes), packing=False)
    assert (layout.packed, layout.attention, layout.note) == (False, own, None)


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
    assert (layout.packed, layout.takes_boundaries, layout.attention) == (True, False, "sdpa")
    batch = pack_batch([toys.example(1)])
    assert layout.inputs(batch).keys() == {"input_ids", "position_ids"}


def test_an_implementation_of_no_use_is_refused():
    with pytest.raises(InputError, match="no_such"):
        choose_layout(toys.model(), attention="no_such")


def test_the_choice_leaves_mode_and_random_state_as_they_were():
    model = toys.model()
    model.train()
    before = torch.random.get_rng_state()
    choose_layout(model)
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), before)


def test_flash_attention_is_handed_what_it_asks_for(monkeypatch: pytest.MonkeyPatch):
    """With a stand-in of varlen_attn's contract on a CPU: (T, heads, width), boundaries, a window that leaves the token
    itself out."""
    calls: list[tuple[Any, ...]] = []

    def before_2_12(*given: Any, scale: float, window_size: tuple[int, int]) -> Any:
        assert given[0].shape == given[1].shape == given[2].shape
        return varlen_attn(*given, scale=scale, window_size=window_size, enable_gqa=False)

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
        for torchs in (varlen_attn, before_2_12):
            with monkeypatch.context() as patch:
                patch.setattr(attention, "_flash_dtype", lambda *_: torch.float64)
                patch.setattr(attention, "_varlen_attn", lambda torchs=torchs: torchs)
                assert torch.allclose(token_losses(model, model, batch.inputs, batch), wanted, rtol=0, atol=1e-10)
    assert {window for window, *_ in calls} == {(-1, 0), (7, 0)}
    assert {grouped for _, grouped, *_ in calls} == {True, False}
    assert {longest for *_, longest in calls} == {batch.inputs["max_length_q"]}


def test_torchs_own_takes_what_it_is_handed():
    """The installed torch has it, with the arguments that are used."""
    assert attention._varlen_attn() is not None


def mixture(name: str, seed: int = 0, **changes: Any) -> Any:
    """Experts, in bf16, with weights so large that other rounding sends tokens to other experts."""
    torch.manual_seed(seed)
    experts = {"num_local_experts": 16} if name == "Mixtral" else {"num_experts": 64, "moe_intermediate_size": 32}
    shape = SMALL | {"num_hidden_layers": 6, "head_dim": 8, "initializer_range": 0.3, "num_experts_per_tok": 2}
    settings = getattr(transformers, f"{name}Config")(**shape | experts | changes)
    return AutoModelForCausalLM.from_config(settings).bfloat16()


def round_by_shape(model: Any, size: float = 2**-9) -> None:
    """As GPUs' kernels do: for other shapes other rounding, here of what attention gives."""

    def rounded(_module: Any, _inputs: Any, out: Any) -> Any:
        generator = torch.Generator().manual_seed(1000 * out.shape[0] + out.shape[1])
        return out * (1 + size * torch.randn(out.shape[-1], generator=generator)).to(out.dtype)

    for layer in model.model.layers:
        layer.self_attn.o_proj.register_forward_hook(rounded)


def carry_on(model: Any, share: float) -> None:
    """One layer adds to each token what stands before it in the row, whatever conversation that is of."""

    def leaking(_module: Any, inputs: Any, out: Any) -> Any:
        behind = torch.arange(1, out.shape[1] + 1)[None, :, None]
        return out + share * (inputs[0].float().cumsum(1) / behind).to(out.dtype)

    model.model.layers[1].self_attn.o_proj.register_forward_hook(leaking)


@pytest.mark.parametrize("seed", [1, 3, 6, 9])
def test_experts_that_rounding_chooses_are_no_leak(seed: int):
    model = mixture("Mixtral", seed)
    round_by_shape(model)
    model.eval()
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, toys.VOCABULARY, 34))[None, 13:]
    with torch.no_grad():
        alone, padded = (
            model(input_ids=each).logits[0, :21].double() for each in (ids, torch.nn.functional.pad(ids, (0, 13)))
        )
    # The premise: padding alone moves the logits by more than 16-bit rounding would.
    assert (padded - alone).norm() > 0.1 * alone.norm()
    assert choose_layout(model).packed


@pytest.mark.parametrize("name", ["Mixtral", "Qwen3Moe"])
@pytest.mark.parametrize("share", [0.5, 0.05])
@pytest.mark.parametrize("rounds", [False, True])
def test_experts_whose_conversations_reach_each_other_are_refused(name: str, share: float, rounds: bool):
    model = mixture(name, 1)
    if rounds:
        round_by_shape(model)
    carry_on(model, share)
    with pytest.raises(InputError, match="packing=false"):
        choose_layout(model)


@pytest.mark.parametrize("name", ["Llama", "Jamba"])
def test_a_leak_far_below_16_bit_rounding_is_seen(name: str):
    changes = {"num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1} if name == "Jamba" else {}
    model = make(name, **changes).bfloat16()
    if name == "Llama":
        assert choose_layout(model).packed
        carry_on(model, 0.01)
    with pytest.raises(InputError, match="packing=false"):
        choose_layout(model)


INSTALL = "needs a kernel. Install flash-linear-attention to train"


@pytest.mark.parametrize("on_the_way", ["forward", "back"])
def test_what_a_library_says_is_passed_on(on_the_way: str):
    class Refusing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: Any) -> Any:
            if on_the_way == "forward":
                raise RuntimeError(INSTALL)
            return given.clone()

        @staticmethod
        def backward(ctx: Any, *_gradients: Any) -> Any:
            raise RuntimeError(INSTALL)

    model: Any = toys.model()

    def refuse(_module: Any, args: Any, inputs: Any) -> Any:
        packed = "cu_seq_lens_q" in inputs
        return (Refusing.apply(args[0]), *args[1:]) if packed else args, inputs

    for layer in model.model.layers:
        layer.register_forward_pre_hook(refuse, with_kwargs=True)
    before = torch.random.get_rng_state()
    with pytest.raises(InputError, match="one conversation a pass") as refused:
        choose_layout(model)
    assert str(refused.value).count(INSTALL) == 1  # said once for both implementations that were tried
    assert all(one.grad is None for one in model.parameters())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_full_memory_is_no_reason_to_pack_otherwise():
    model: Any = toys.model()

    def full(*_given: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    model.model.layers[0].register_full_backward_pre_hook(full)
    with pytest.raises(torch.OutOfMemoryError):
        choose_layout(model)


@pytest.mark.parametrize("packing", [True, False])
def test_what_gets_no_gradient_is_frozen_and_told_also_where_it_was_not_foreseen(packing: bool):
    model = toys.multimodal()
    layout = choose_layout(model, packing=packing)
    assert layout.packed == packing
    assert layout.note is not None
    assert "model.vision_tower (" in layout.note
    frozen = {name for name, one in model.named_parameters() if not one.requires_grad}
    assert frozen == {
        name for name, _ in model.named_parameters() if ".vision_tower." in name or ".multi_modal" in name
    }
    assert all(one.grad is None for one in model.parameters())
    assert choose_layout(model).note is None


def linear_attention() -> Any:
    sizes = {
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    }
    experts = {"num_experts": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2, "head_dim": 8}
    kinds = ["linear_attention", "full_attention"]
    return make("Qwen3Next", **sizes, **experts, shared_expert_intermediate_size=16, layer_types=kinds).float()


def test_layers_that_carry_a_state_on_are_named_with_what_to_install():
    with pytest.raises(InputError, match="Qwen3NextGatedDeltaNet carries a state on from token to token") as refused:
        choose_layout(linear_attention())
    assert "Install `causal_conv1d`" in str(refused.value)


def test_layers_that_carry_a_state_on_are_told_which_conversation_a_token_is_of(monkeypatch: pytest.MonkeyPatch):
    """With stand-ins of the kernels' contract: the convolution takes `seq_idx` (1, T), the state `cu_seqlens`."""
    module = sys.modules[type(linear_attention()).__module__]
    slow_convolution, slow_state = (
        getattr(module, name).__wrapped__ for name in ("causal_conv1d_fn", "torch_chunk_gated_delta_rule")
    )

    def convolution(hidden: Any, *args: Any, seq_idx: Any = None, **options: Any) -> Any:
        ends = [] if seq_idx is None else (seq_idx[0].diff().nonzero()[:, 0] + 1).tolist()
        assert seq_idx is None or seq_idx.dtype == torch.int32
        return torch.cat([slow_convolution(part, *args, **options) for part in hidden.tensor_split(ends, -1)], -1)

    def state(*args: Any, cu_seqlens: Any = None, **options: Any) -> Any:
        ends = [] if cu_seqlens is None else cu_seqlens[1:-1].tolist()
        long = {name: one for name, one in options.items() if name in {"g", "beta"}}
        split = zip(*(one.tensor_split(ends, 1) for one in (*args, *long.values())), strict=True)
        rest = {name: one for name, one in options.items() if name not in long}
        parts = [slow_state(*part[:3], **dict(zip(long, part[3:], strict=True)), **rest)[0] for part in split]
        return torch.cat(parts, 1), None

    monkeypatch.setattr(module, "causal_conv1d_fn", convolution)
    monkeypatch.setattr(module, "torch_chunk_gated_delta_rule", state)
    model = linear_attention()
    layout = choose_layout(model)
    assert (layout.packed, layout.note) == (True, None)
    examples = [toys.example(seed, longest=20) for seed in range(3)]
    alone = torch.cat(
        [token_losses(model, model, {"input_ids": b.inputs["input_ids"]}, b) for b in each_alone(examples)]
    )
    batch = pack_batch(examples)
    assert torch.allclose(token_losses(model, model, layout.inputs(batch), batch), alone, atol=1e-4)


def each_alone(examples: Any) -> Any:
    return [pack_batch([one]) for one in examples]
