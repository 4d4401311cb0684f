"""The load-balancing loss of mixtures of experts, against the definition written out by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import engine_toys as toys
import pytest
import torch
from transformers import Gemma3nTextConfig, MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from refinesynth.errors import InputError
from refinesynth.train.engine.batch import pad_batch
from refinesynth.train.engine.lm_head import BalancedCall, router_loss_coefficient
from refinesynth.train.engine.loading import describe_model, model_shape

pytestmark = pytest.mark.train

COEFFICIENT = 0.5
EXPERTS, ROUTED = 4, 2
SIZES: dict[str, Any] = {
    **toys.SIZES,
    **toys.NO_SPECIAL,
    "num_experts_per_tok": ROUTED,
    "initializer_range": 0.2,
    "router_aux_loss_coef": COEFFICIENT,
}


def moe(family: str) -> Any:
    torch.manual_seed(0)
    if family == "mixtral":
        made: Any = MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=EXPERTS))
    else:
        made = Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, num_experts=EXPERTS, moe_intermediate_size=24))
    made.set_experts_implementation("eager")  # the grouped product knows no fp64
    return made.double()


def by_hand(model: Any, examples: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses of the trained tokens, and the balance over all tokens of `examples`, each alone in a forward pass of its
    own."""
    losses: list[torch.Tensor] = []
    layers: list[tuple[torch.Tensor, ...]] = []
    for one in examples:
        ids = torch.tensor(one.input_ids.tolist())
        out = model(ids[None], output_router_logits=True, use_cache=False)
        layers.append(out.router_logits)
        told = -out.logits[0].log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]
        losses.append(told[torch.from_numpy(one.labels[1:] == toys.Label.TRAINED)])
    chosen, probability = torch.zeros(EXPERTS), torch.zeros(EXPERTS, dtype=torch.float64)
    routed = 0
    for layer in range(len(layers[0])):
        for logits in torch.cat([each[layer] for each in layers]):
            soft = logits.softmax(-1)
            probability = probability + soft
            for expert in soft.topk(ROUTED).indices:
                chosen[expert] += 1
            routed += 1
    return torch.cat(losses), EXPERTS * ((chosen / routed) * (probability / routed)).sum()


def gradients(model: Any, loss: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True))


def a_loop(family: str, folder: Path, store: Any, *, ranks: int = 1, **fields: Any) -> Any:
    asked = toys.config(folder, precision="fp64", **fields)
    made = toys.loop(moe(family), store, asked)
    steps = toys.schedule(store, asked, ranks=ranks)
    made.task = replace(
        made.task, schedule=steps, router_aux_loss=router_loss_coefficient(asked, cast("Any", made.model))
    )
    return made


@pytest.mark.parametrize("family", ["mixtral", "qwen3"])
def test_the_gradient_of_a_step_is_that_of_the_definition_over_each_pass_and_rank(family: str, tmp_path: Path):
    """One pass over all; several passes on two ranks, each weighted by its tokens; one conversation a row, padded."""
    store = toys.store(5, seed=4)
    for ranks, fields in (
        (1, {"batch_size": 5, "max_length": 200}),
        (2, {"batch_size": 5, "max_length": 48}),
        (1, {"batch_size": 4, "packing": False}),
    ):
        made = a_loop(family, tmp_path, store, ranks=ranks, **fields)
        step = made.task.schedule.conversations(0, 0)
        trained = torch.cat([by_hand(made.model, [store[int(k)]])[0] for k in step]).numel()
        tokens = sum(len(store[int(k)]) for k in step)
        wanted = torch.zeros((), dtype=torch.float64)
        got = torch.zeros((), dtype=torch.float64)
        passes = 0
        for rank in range(ranks):
            for packs in made.task.schedule.step(0, 0).packs:
                here = [store[k] for k in packs[rank]]
                batch = (toys.pack_batch if made.task.schedule.packed else pad_batch)(here)
                got = got + made.loss(batch, trained, tokens) / ranks
                if not here:
                    continue
                passes += 1
                losses, balance = by_hand(made.model, here)
                wanted = wanted + losses.sum() / trained
                wanted = wanted + COEFFICIENT * balance * sum(len(one) for one in here) / tokens
        assert passes > 1 if ranks == 2 or "packing" in fields else passes == 1
        assert got.item() == pytest.approx(wanted.item(), rel=1e-6)
        pairs = zip(gradients(made.model, got), gradients(made.model, wanted), strict=True)
        assert all(torch.allclose(one, other, rtol=1e-5, atol=1e-7) for one, other in pairs)


def test_padding_and_what_stands_for_an_empty_batch_do_not_count():
    model, examples = moe("mixtral"), [toys.example(1), toys.example(2, longest=30)]
    told: list[torch.Tensor] = []
    for batch in (toys.pack_batch(examples), pad_batch(examples)):
        call = BalancedCall(model, batch)
        call(**{name: value for name, value in batch.inputs.items() if name in {"input_ids", "position_ids"}})
        assert call.tokens == sum(map(len, examples))
        told.append(call.loss)
    # Attention of the pack is joined here, so that hidden states differ; what is counted does not.
    assert told[1].item() == pytest.approx(by_hand(model, examples)[1].item(), rel=1e-5)
    assert [BalancedCall(model, make([])).tokens for make in (toys.pack_batch, pad_batch)] == [0, 0]


def test_the_width_in_the_memory_estimate_is_that_of_all_experts_of_a_token():
    assert model_shape(moe("mixtral"), "").intermediate == ROUTED * SIZES["intermediate_size"]
    narrow, wide = Qwen3MoeConfig(**SIZES, moe_intermediate_size=8), Qwen3MoeConfig(**SIZES, moe_intermediate_size=500)
    for config, width in ((narrow, SIZES["intermediate_size"]), (wide, ROUTED * 500)):
        assert model_shape(Qwen3MoeForCausalLM(config), "").intermediate == width
    layers: Any = torch.nn.Linear(2, 2)
    layers.config = Gemma3nTextConfig(num_hidden_layers=2, intermediate_size=[64, 512])
    assert model_shape(layers, "").intermediate == 512


def test_it_is_learned_from_with_all_weights_and_left_out_where_that_is_asked_for(tmp_path: Path):
    model = moe("mixtral")
    for asked, wanted in (
        ({}, COEFFICIENT),
        ({"router_aux_loss": "off"}, 0),
        ({"router_aux_loss": 0.25}, 0.25),
        ({"lora": {}}, 0),
    ):
        assert router_loss_coefficient(toys.config(tmp_path, **asked), model) == wanted
    model.float().save_pretrained(tmp_path / "moe")
    toys.model().save_pretrained(tmp_path / "dense")
    assert describe_model(toys.config(tmp_path, model=str(tmp_path / "moe"), router_aux_loss=0.1)).parameters
    assert router_loss_coefficient(toys.config(tmp_path), toys.model()) == 0
    with pytest.raises(InputError, match=r"router_aux_loss is 0\.1, and LlamaForCausalLM has no such loss"):
        describe_model(toys.config(tmp_path, model=str(tmp_path / "dense"), router_aux_loss=0.1))
