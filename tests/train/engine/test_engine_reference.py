"""The loop against a training loop that is written out by hand, in double precision."""

import math
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import torch
from engine_toys import Label

pytestmark = pytest.mark.train


def by_hand(toy: Any, store: Any, order: list[list[int]], *, rate: float, warmup: int, decay: float) -> list[float]:
    """Equation 1 over whole batches, one conversation at a time; AdamW and a cosine. Gives the loss of each step."""
    matrices = [one for one in toy.parameters() if one.dim() > 1]
    others = [one for one in toy.parameters() if one.dim() == 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.8, 0.95))
    told: list[float] = []
    for step, batch in enumerate(order):
        done = (step - warmup) / max(1, len(order) - warmup)
        share = step / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate * share
        losses: list[torch.Tensor] = []
        for k in batch:
            ids = torch.tensor(store[k].input_ids.tolist())
            logits = toy(ids[None], attention_mask=torch.ones(1, len(ids), dtype=torch.long), use_cache=False).logits[0]
            nll = -logits.log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]
            losses.append(nll[torch.from_numpy(store[k].labels[1:] == Label.TRAINED)])
        loss = torch.cat(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(toy.parameters(), 0.5)
        optimizer.step()
        told.append(float(loss.detach()))
    return told


@pytest.mark.representative
@pytest.mark.parametrize("tied", [False, True])
def test_accumulated_over_packs_with_warm_up_decay_and_a_smaller_last_step(tmp_path: Path, tied: bool):
    store = toys.store(11, seed=3)
    asked = toys.config(
        tmp_path,
        precision="fp64",
        epochs=2.6,  # ends within an epoch
        batch_size=4,
        warmup=2,
        weight_decay=0.1,
        adam_betas=(0.8, 0.95),
        max_grad_norm=0.5,
        learning_rate=3e-3,
        max_length=48,
    )
    toy: Any = toys.model(dtype=torch.float64, tie_word_embeddings=tied)
    told = toys.Kept()
    loop = toys.loop(toy, store, asked, events=told, chunk_elements=5 * toys.VOCABULARY)
    schedule = loop.schedule
    assert schedule.steps == 8
    numbers = [len(schedule.step(*divmod(step, schedule.steps_per_epoch)).packs) for step in range(8)]
    assert {1, 3} <= {*numbers}
    order = [schedule.conversations(*divmod(step, schedule.steps_per_epoch)).tolist() for step in range(8)]
    assert {len(batch) for batch in order} == {3, 4}
    loop.train()
    other: Any = toys.model(dtype=torch.float64, tie_word_embeddings=tied)
    wanted = by_hand(other, store, order, rate=3e-3, warmup=2, decay=0.1)
    assert told.values("loss") == pytest.approx(wanted, abs=1e-12)
    for one, two in zip(toy.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one, two, rtol=0, atol=1e-9)


def test_checkpointed_below_adapters_is_plain(tmp_path: Path):
    from refinesynth.train.config import LoraConfig
    from refinesynth.train.engine.adapters import add_adapters
    from refinesynth.train.engine.loading import checkpoint_activations

    found: list[dict[str, torch.Tensor]] = []
    for checkpointed in (False, True):
        toy = add_adapters(toys.model(), LoraConfig(rank=2, alpha=4, targets=r".*(q_proj|up_proj|lm_head)"))
        for name, one in toy.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(one, std=0.1, generator=torch.Generator().manual_seed(1))
            elif "lora_A" in name:
                torch.nn.init.normal_(one, std=0.1, generator=torch.Generator().manual_seed(2))
        if checkpointed:
            checkpoint_activations(toy)
        toys.loop(toy, toys.store(6), toys.config(tmp_path), chunk_elements=5 * toys.VOCABULARY).train()
        found.append({name: one.detach() for name, one in toy.named_parameters() if one.requires_grad})
    plain, again = found
    assert any("lm_head" in name for name in plain)
    assert all(torch.allclose(plain[name], again[name], rtol=0, atol=1e-6) for name in plain)
