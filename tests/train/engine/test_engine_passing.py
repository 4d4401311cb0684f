"""Settings of the loop that few need take effect with our loss, packs and checkpoints."""

import json
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import torch

from refinesynth.errors import ConfigurationError, InputError
from refinesynth.train.engine import parallel
from refinesynth.train.engine.loop import EmbeddingNoise
from refinesynth.train.engine.parallel import check_loop, make_optimizer
from refinesynth.train.engine.rank_training import _identity  # pyright: ignore[reportPrivateUsage]
from refinesynth.train.plan import read_deepspeed

pytestmark = pytest.mark.train


def trained(folder: Path, *, steps: int = 3, conversations: int = 11, **fields: Any) -> Any:
    asked = toys.config(folder, max_steps=steps, **fields)
    made = toys.loop(toys.model(), toys.store(conversations, seed=3), asked)
    made.train()
    return made


def furthest(one: Any, two: Any) -> float:
    pairs = zip(one.model.parameters(), two.model.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def test_the_environment_divides_no_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = trained(tmp_path / "alone")
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "8")
    assert furthest(alone, trained(tmp_path / "beside")) == 0


@pytest.mark.parametrize(
    "section",
    [{"fp16": {"enabled": True}}, {"gradient_clipping": 0.3}, {"bf16": {"enabled": True}}, {"optimizer": {}}],
    ids=lambda section: next(iter(section)),
)
def test_a_deepspeed_file_sets_nothing_that_is_a_setting_of_ours(tmp_path: Path, section: dict[str, Any]) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 2}, **section}))
    with pytest.raises(InputError, match=next(iter(section))):
        read_deepspeed(str(path))
    for left_open in ({}, "auto", False, None, {"enabled": "auto"}):
        path.write_text(json.dumps({"zero_optimization": {"stage": 2}, "gradient_clipping": "auto", "fp16": left_open}))
        found = read_deepspeed(str(path))
        assert (found["zero_optimization"]["stage"], found.get("fp16")) == (2, None), "accelerate takes a mapping alone"


def test_a_tracker_that_is_not_installed_is_said_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "find_spec", lambda name: None if name == "wandb" else name)
    with pytest.raises(ConfigurationError, match="pip install wandb"):
        check_loop(toys.config(tmp_path, trainer={"report_to": ["tensorboard", "wandb"]}))
    monkeypatch.setattr(parallel, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="pip install"):
        check_loop(toys.config(tmp_path, trainer={"report_to": "tensorboard"}))


@pytest.mark.parametrize(
    ("name", "kind"), [(None, "AdamW"), ("adamw_8bit", "AdamW8bit"), ("paged_adamw_8bit", "PagedAdamW8bit")]
)
def test_an_optimizer_is_made_by_its_name(tmp_path: Path, name: str | None, kind: str) -> None:
    if name and "bit" in name:
        pytest.importorskip("bitsandbytes")
    asked = toys.config(tmp_path, weight_decay=0.1, trainer={"optim": name})
    made = make_optimizer(toys.model(), asked)
    assert type(made).__name__ == kind
    matrices, others = made.param_groups
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert {one.dim() for one in others["params"]} == {1}


def test_a_constant_rate_rises_first_where_a_warm_up_is_asked_for(tmp_path: Path) -> None:
    asked, told = toys.config(tmp_path, max_steps=3, schedule="constant", warmup=2), toys.Kept()
    toys.loop(toys.model(), toys.store(11, seed=3), asked, events=told).train()
    assert told.values("learning_rate") == [0.0, pytest.approx(0.005), pytest.approx(0.01)]


def test_tensorboard_writes_into_the_output_folder(tmp_path: Path) -> None:
    asked = toys.config(tmp_path, max_steps=1, held_out=1, evaluate_every=1, trainer={"report_to": "tensorboard"})
    toys.loop(toys.model(), toys.store(8), asked, held_out=toys.store(5, seed=9)).train()
    (file,) = (tmp_path / "tensorboard").iterdir()
    for name in (b"train/loss", b"train/grad_norm", b"train/tokens_per_second", b"eval/loss_mistake"):
        assert name in file.read_bytes()


def test_noise_changes_what_is_learned_and_nothing_that_is_measured(tmp_path: Path) -> None:
    plain = trained(tmp_path / "a", precision="fp64")
    noisy = trained(tmp_path / "b", precision="fp64", trainer={"neftune_noise_alpha": 5})
    assert furthest(plain, noisy) > 1e-3
    ids = torch.arange(20)[None]
    assert torch.equal(noisy.model.eval()(ids).logits, noisy.model.eval()(ids).logits)


def test_noise_is_of_one_size_for_a_conversation_packed_or_not(tmp_path: Path) -> None:
    store, alpha = toys.store(9, seed=2), 5.0
    toy = toys.model()
    noise = EmbeddingNoise(toy, alpha)
    embeddings = toy.get_input_embeddings()
    for batch in (toys.pack_batch(list(store)), toys.pack_batch(list(store)[:1])):
        ids = batch.inputs["input_ids"]
        assert isinstance(ids, torch.Tensor)
        noise.tokens = batch.lengths
        added = (embeddings.train()(ids) - embeddings.eval()(ids)).detach().abs().amax(-1).flatten()
        wanted = (alpha / (batch.lengths * toy.config.hidden_size).sqrt()).expand(ids.shape).flatten()
        assert bool((added <= wanted * (1 + 1e-5)).all())
        assert float((added / wanted).mean()) > 0.9  # the largest of 32 numbers up to 1


def test_noise_is_added_on_the_models_device_before_the_first_batch() -> None:
    toy = toys.model()
    EmbeddingNoise(toy, 5.0)
    embeddings: Any = toy.get_input_embeddings().to("meta").train()
    assert embeddings(torch.zeros(1, 7, dtype=torch.long, device="meta")).shape == (1, 7, 32)


def test_with_noise_a_training_that_is_continued_is_the_same(tmp_path: Path) -> None:
    noisy = {"neftune_noise_alpha": 5}
    whole = trained(tmp_path / "whole", steps=4, save_every=2, trainer=noisy, keep="all")
    asked = toys.config(tmp_path / "whole", max_steps=4, save_every=2, trainer=noisy)
    again = toys.loop(toys.model(seed=1), toys.store(11, seed=3), asked)
    again.train(tmp_path / "whole" / "checkpoints" / "checkpoint-2")
    assert furthest(whole, again) == 0


def test_what_decides_about_the_weights_is_in_a_checkpoints_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: Any = type("PreparedTraining", (), {})()
    ready.store = ready.held_out = toys.store(2)
    ready.plan = type("Plan", (), {"means": type("ComputeSettings", (), {"parallel": "none", "precision": "fp32"})()})()

    def identity(*, revision: str | None = None, **trainer: Any) -> Any:
        asked = toys.config(tmp_path, trainer=trainer, revision=revision)
        return _identity(asked, ready, 1)

    assert identity(ddp_timeout=5, report_to="wandb") == identity()
    assert identity(optim="adamw_8bit") == identity() | {"trainer.optim": "adamw_8bit"}
    assert identity(revision="v1") == identity() | {"revision": "v1"}
