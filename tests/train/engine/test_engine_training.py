"""The loop on toys: the same training however it is cut up, and what ends it."""

import errno
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import torch

from refinesynth.errors import TrainingError
from refinesynth.train.engine import checkpoints
from refinesynth.train.engine.checkpoints import Checkpoints
from refinesynth.train.events import LOSS, LOSS_CORRECT, LOSS_MISTAKE, LOSS_REFINEMENT
from refinesynth.train.tokens import TokenStore

pytestmark = pytest.mark.train

Weights = dict[str, torch.Tensor]


def weights(model: torch.nn.Module) -> Weights:
    return {name: one.detach().clone() for name, one in model.named_parameters()}


def trained(
    tmp_path: Path, told: toys.Kept | None = None, *, toy: Any = None, number: int = 17, **fields: Any
) -> Weights:
    toy = toy or toys.model(dtype=torch.float64)
    asked = toys.config(tmp_path, precision="fp64", **fields)
    loop = toys.loop(toy, toys.store(number), asked, events=told)
    loop.train()
    return weights(toy)


def furthest(one: Weights, other: Weights) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_the_last_smaller_step_weighs_its_own_tokens(tmp_path: Path):
    told = toys.Kept()
    store, asked = toys.store(5), toys.config(tmp_path, batch_size=4, learning_rate=1e-12)
    loop = toys.loop(toys.model(), store, asked, events=told)
    loop.train()
    last = toys.pack_batch([store[int(k)] for k in loop.schedule.conversations(0, 1)])
    toy = toys.model()
    wanted = toys.token_losses(toy, toy, last.inputs, last).mean()
    assert told.lines[-1][1]["loss"] == pytest.approx(float(wanted.detach()), abs=1e-5)


def test_every_step_is_told_with_its_pace(tmp_path: Path):
    told = toys.Kept()
    trained(tmp_path, told, log_every=3)
    assert [step for step, _ in told.lines] == [3, 5]  # and the last one
    assert all(metrics["tokens_per_second"] > metrics["trained_tokens_per_second"] > 0 for _, metrics in told.lines)
    assert told.lines[-1][1]["epoch"] == 1.0


def test_evaluation_gives_the_mean_of_each_kind_of_turn(tmp_path: Path):
    held_out = toys.store(7, seed=5)
    toy, told = toys.model(dtype=torch.float64), toys.Kept()
    loop = toys.loop(toy, toys.store(4), toys.config(tmp_path, precision="fp64"), held_out=held_out, events=told)
    loop.evaluate_and_report()
    sums: dict[str, list[float]] = {}
    for one in held_out:
        logits = toy(torch.tensor(one.input_ids.tolist())[None], use_cache=False).logits[0]
        nll = -logits.log_softmax(-1)[:-1].gather(1, torch.tensor(one.input_ids[1:].tolist())[:, None])[:, 0]
        for span in one.spans:
            sums.setdefault(span.label, []).extend(nll[span.start - 1 : span.stop - 1].tolist())
    mean = {name: sum(values) / len(values) for name, values in sums.items()}
    every = [value for name in ("correct", "refinement") for value in sums[name]]
    wanted = {
        LOSS: sum(every) / len(every),
        LOSS_CORRECT: mean["correct"],
        LOSS_REFINEMENT: mean["refinement"],
        LOSS_MISTAKE: mean["mistake"],
    }
    assert told.evaluations == [(0, pytest.approx(wanted, abs=1e-9))]


@pytest.mark.parametrize("packed", [True, False])
def test_where_there_are_several_sources_each_has_a_held_out_loss_of_its_own(tmp_path: Path, packed: bool):
    parts = {name: [*toys.store(size, seed=size)] for name, size in (("a", 5), ("b.jsonl", 4))}
    held_out = TokenStore(replace(one, source=name) for name, part in parts.items() for one in part)

    def evaluated(store: TokenStore) -> dict[str, float]:
        told = toys.Kept()
        asked = toys.config(tmp_path, precision="fp64", packing=packed)
        loop = toys.loop(toys.model(dtype=torch.float64), toys.store(4), asked, held_out=store, events=told)
        loop.evaluate_and_report()
        return told.evaluations[0][1]

    found = evaluated(held_out)
    alone = {f"loss/{name}": evaluated(TokenStore(part))["loss"] for name, part in parts.items()}
    assert {name: loss for name, loss in found.items() if "/" in name} == pytest.approx(alone, abs=1e-9)
    plain = evaluated(TokenStore(one for part in parts.values() for one in part))
    assert {name: loss for name, loss in found.items() if "/" not in name} == pytest.approx(plain, abs=1e-9)
    assert not [name for name in plain if "/" in name]


def test_the_best_checkpoint_is_kept_beside_the_newest_and_its_weights_come_back(tmp_path: Path):
    toy, told = toys.model(), toys.Kept()
    held_out = toys.store(6, seed=5)
    asked = toys.config(
        tmp_path, epochs=10, learning_rate=0.1, held_out=0.1, save_every="epoch", evaluate_every="epoch", keep=1
    )
    loop = toys.loop(toy, toys.store(8), asked, held_out=held_out, events=told)
    loop.train()
    best, metrics = min(told.evaluations, key=lambda each: each[1]["loss"])
    assert best < loop.progress.step  # overfitted, or there is nothing to be seen here
    kept = [path.name for path in checkpoints.checkpoint_folders(tmp_path / "checkpoints")]
    assert kept == [f"checkpoint-{best}", "checkpoint-20"]
    loop.checkpoints.restore_best(loop.progress)
    assert loop.evaluate()["loss"] == pytest.approx(metrics["loss"], abs=1e-5)
    # Resumed behind the last step, the best is there as before; without it, the last model is kept with a note.
    for kept_step in (best, 20):
        told = toys.Kept()
        loop = toys.loop(toys.model(), toys.store(8), asked, held_out=held_out, events=told)
        loop.train(tmp_path / "checkpoints/checkpoint-20")
        loop.checkpoints.restore_best(loop.progress)
        assert loop.progress.kept == kept_step
        assert any("cannot be kept" in note for note in told.notes) == (kept_step != best)
        checkpoints.remove(tmp_path / f"checkpoints/checkpoint-{best}")


@pytest.mark.parametrize("clipping", [1.0, 0.0])
def test_a_loss_that_is_no_number_ends_it(tmp_path: Path, clipping: float):
    toy = toys.model()
    with torch.no_grad():
        toy.lm_head.weight[0, 0] = math.nan
    before = weights(toy)
    with pytest.raises(TrainingError, match="step 1 is nan"):
        toys.loop(toy, toys.store(4), toys.config(tmp_path, max_grad_norm=clipping)).train()
    assert all(torch.equal(one, weights(toy)[name]) for name, one in before.items() if name != "lm_head.weight")


def test_a_gradient_that_is_no_number_ends_it_before_the_weights_are_touched(tmp_path: Path):
    toy = toys.model()
    before = weights(toy)
    toy.model.norm.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(TrainingError, match="gradient of step 1"):
        toys.loop(toy, toys.store(4), toys.config(tmp_path)).train()
    assert furthest(before, weights(toy)) == 0


@pytest.mark.parametrize(
    "raised",
    [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("PytorchStreamWriter failed writing file")],
)
def test_a_full_disk_is_said_and_leaves_no_sound_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception
):
    def full(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(Checkpoints, "write_rank", full)
    loop = toys.loop(toys.model(), toys.store(4), toys.config(tmp_path, save_every="epoch"))
    with pytest.raises(TrainingError, match="cannot be written"):
        loop.train()
    found, remarks = checkpoints.find_newest(tmp_path / "checkpoints")
    assert found is None
    assert "not written to its end" in remarks[0]
