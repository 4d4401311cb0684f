"""What is passed on to the library takes effect with our loss, packs and checkpoints."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import torch
from refinesynth.train.engine.arguments import check_passthrough, passthrough_arguments
from refinesynth.train.engine.trainer import EmbeddingNoise
from safetensors.torch import load_file
from transformers import TrainerCallback
from transformers.integrations import integration_utils

from refinesynth.errors import ConfigurationError
from refinesynth.train.engine.batch import pad_batch
from refinesynth.train.engine.running import _Training

pytestmark = pytest.mark.train


def trained(folder: Path, *, steps: int = 3, conversations: int = 11, **fields: Any) -> Any:
    asked = toys.config(folder, max_steps=steps, **fields)
    made = toys.loop(toys.model(), toys.store(conversations, seed=3), asked)
    made.train()
    return made


def furthest(one: Any, two: Any) -> float:
    pairs = zip(one.model.parameters(), two.model.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"trainer": {"optim": "adamw"}}, "adamw is not a valid OptimizerNames, please select one of"),
        ({"trainer": {"optim": "galore_adamw"}}, "You need to install `galore_torch`"),
        (
            {"trainer": {"neftune_noise_alpha": "five"}},
            "trainer.neftune_noise_alpha is 'five': Input should be a valid number",
        ),
        ({"trainer": {"ddp_timeout": 1.5}}, "trainer.ddp_timeout is 1.5: Input should be a valid integer"),
        ({"trainer": {"report_to": "wnadb"}}, "wnadb is not supported, only"),
        ({"trainer": {"log_level": "loud"}}, "loud"),
        ({"trainer": {"lr_scheduler_kwargs": {"num_cycle": 2}}}, "num_cycle"),
        ({"schedule": "cosine_with_min_lr"}, "One of min_lr or min_lr_rate should be set"),
        ({"schedule": "reduce_lr_on_plateau", "held_out": 0}, "requires an eval strategy"),
    ],
)
def test_what_the_library_does_not_take_is_refused_with_its_words(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_passthrough(toys.config(tmp_path, **fields))
    assert said in str(caught.value)


def test_a_tracker_that_is_not_installed_is_said_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integration_utils, "is_wandb_available", lambda: False)
    with pytest.raises(ConfigurationError, match="pip install wandb"):
        check_passthrough(toys.config(tmp_path, trainer={"report_to": ["tensorboard", "wandb"]}))


def test_numbers_that_yaml_reads_as_text_are_numbers(tmp_path: Path) -> None:
    assert passthrough_arguments(toys.config(tmp_path, trainer={"adam_epsilon": "1e-6"}))["adam_epsilon"] == 1e-6


def test_the_checking_joins_no_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    check_passthrough(toys.config(tmp_path, trainer={"optim": "adafactor", "ddp_timeout": 5}))
    assert not torch.distributed.is_initialized()


def test_an_optimizer_and_the_settings_of_a_schedule_take_effect(tmp_path: Path) -> None:
    made = trained(
        tmp_path,
        schedule="cosine_with_min_lr",
        trainer={"optim": "adafactor", "lr_scheduler_kwargs": {"min_lr": 0.005}},
    )
    assert "Adafactor" in type(made.optimizer.optimizer).__name__
    assert made.lr_scheduler.get_last_lr()[0] == pytest.approx(0.005)


def test_a_constant_rate_rises_first_where_a_warm_up_is_asked_for(tmp_path: Path) -> None:
    rates = [entry["learning_rate"] for entry in trained(tmp_path, schedule="constant", warmup=2).state.log_history[:3]]
    assert rates == [0.0, pytest.approx(0.005), pytest.approx(0.01)]


class Tracker(TrainerCallback):
    """What a tracker of the library is told."""

    told: list[dict[str, Any]] = []  # noqa: RUF012 - the library makes the instance

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        Tracker.told.append({"step": state.global_step, "run": args.run_name, **(logs or {})})


def test_a_tracker_gets_losses_by_kind_and_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "trackio", Tracker)
    monkeypatch.setattr(Tracker, "told", [])
    asked = toys.config(
        tmp_path / "mine", max_steps=2, held_out=0.1, evaluate_every=2, trainer={"report_to": "trackio"}
    )
    toys.loop(toys.model(), toys.store(8), asked, held_out=toys.store(5, seed=9)).train()
    steps = [entry for entry in Tracker.told if "loss" in entry]
    assert [entry["step"] for entry in steps] == [1, 2]
    assert {entry["run"] for entry in steps} == {"mine"}
    assert all({"grad_norm", "learning_rate", "tokens_per_second"} <= entry.keys() for entry in steps)
    (held_out,) = [entry for entry in Tracker.told if "eval_loss" in entry]
    assert {"eval_loss_correct", "eval_loss_mistake"} <= held_out.keys()


def test_tensorboard_writes_into_the_output_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    trained(tmp_path, steps=1, tensorboard=True)
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert b"train/loss" in file.read_bytes()


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
    for batch in (toys.pack_batch(list(store)), pad_batch(list(store))):
        ids = batch.inputs["input_ids"]
        assert isinstance(ids, torch.Tensor)
        noise.tokens = batch.lengths
        added = (embeddings.train()(ids) - embeddings.eval()(ids)).detach().abs().amax(-1).flatten()
        wanted = (alpha / (batch.lengths * toy.config.hidden_size).sqrt()).expand(ids.shape).flatten()
        assert bool((added <= wanted * (1 + 1e-5)).all())
        assert float((added / wanted).mean()) > 0.9  # the largest of 32 numbers up to 1


def test_with_noise_a_training_that_is_continued_is_the_same(tmp_path: Path) -> None:
    noisy = {"neftune_noise_alpha": 5}
    whole = trained(tmp_path / "whole", steps=4, save_every=2, trainer=noisy, keep="all")
    asked = toys.config(tmp_path / "whole", max_steps=4, save_every=2, trainer=noisy)
    again = toys.loop(toys.model(seed=1), toys.store(11, seed=3), asked)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoints" / "checkpoint-2"))
    assert furthest(whole, again) == 0


def test_a_compiled_model_learns_the_same_and_is_saved_by_its_own_names(tmp_path: Path) -> None:
    script = Path(__file__).with_name("engine_compiled.py")
    subprocess.run([sys.executable, script, tmp_path / "b"], check=True, cwd=script.parent)
    plain = dict(trained(tmp_path / "a", steps=2, conversations=2).model.named_parameters())
    compiled = load_file(tmp_path / "b" / "model.safetensors")
    assert compiled.keys() == plain.keys()
    assert max(float((compiled[name] - one).detach().abs().max()) for name, one in plain.items()) < 1e-5


def test_what_decides_about_the_weights_is_in_a_checkpoints_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: Any = type("PreparedTraining", (), {})()
    ready.store = ready.held_out = toys.store(2)
    ready.plan = type("Plan", (), {"means": type("ComputeSettings", (), {"parallel": "none", "precision": "fp32"})()})()

    def identity(*, revision: str | None = None, **trainer: Any) -> Any:
        asked = toys.config(tmp_path, trainer=trainer, revision=revision)
        return _Training(asked, toys.NullEvents(), None)._identity(ready)

    assert identity(ddp_timeout=5, report_to="wandb", torch_compile=True) == identity()
    assert identity(optim="adafactor") == identity() | {"trainer.optim": "adafactor"}
    assert identity(revision="v1") == identity() | {"revision": "v1"}
