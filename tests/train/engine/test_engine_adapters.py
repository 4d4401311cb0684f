"""Adapters that are trained on, beside what else of the model is trained."""

# torch and transformers are typed in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

import json
import shutil
from pathlib import Path

import engine_toys as toys
import pytest
import torch
import yaml
from huggingface_hub import constants
from safetensors.torch import load_file
from test_engine_weights import a_base, a_training

from refinesynth.errors import InputError
from refinesynth.train import adapter as adapters
from refinesynth.train import hub
from refinesynth.train.engine.loading import describe_model, load_model, load_tokenizer


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    lora = {"rank": 3, "alpha": 12, "targets": ["q_proj", "v_proj"]}
    a_training(a_base(folder / "base", torch.float32), folder / "adapter", lora=lora, learning_rate=0.1).train()
    return folder / "adapter"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


def test_an_adapter_is_trained_on_with_its_own_settings_and_stays_one_of_its_base(adapter: Path, tmp_path: Path):
    output = tmp_path / "out"
    trainer = a_training(adapter, output, lora=True, learning_rate=1e-12)
    assert trainer.plan().model.trainable == sum(one.numel() for one in weights(adapter).values())
    trainer.train()
    before, after = weights(adapter), weights(output)
    assert all(torch.allclose(one, after[name], rtol=0, atol=1e-6) for name, one in before.items())
    assert before.keys() == after.keys()
    was, now = (json.loads((each / "adapter_config.json").read_text()) for each in (adapter, output))
    assert [now[name] for name in ("r", "lora_alpha", "base_model_name_or_path")] == [
        was[name] for name in ("r", "lora_alpha", "base_model_name_or_path")
    ]
    assert sorted(now["target_modules"]) == ["q_proj", "v_proj"]
    said = yaml.safe_load((output / "train.yaml").read_text())["lora"]
    assert (said["rank"], said["alpha"], said["targets"]) == (3, 12.0, ["q_proj", "v_proj"])
    card = (output / "README.md").read_text()
    assert "`base`, with low-rank adapters that go on from `adapter` refinement-tuned" in card
    # The same command, and the one that train.yaml holds, find it finished.
    for lora in (True, said):
        assert a_training(adapter, output, lora=lora, learning_rate=1e-12).train().steps == 1


def test_other_settings_than_the_adapters_own_are_refused_with_both(adapter: Path, tmp_path: Path):
    training = a_training(adapter, tmp_path / "out", lora={"rank": 8, "alpha": 12})
    for look in (training.plan, training.train):
        with pytest.raises(InputError, match=r"lora\.rank is 8, and it has 3\. Leave.*--model .*base"):
            look()


def test_all_weights_below_an_adapter_are_not_trained_without_a_word(adapter: Path, tmp_path: Path):
    training = a_training(adapter, tmp_path / "out")
    for look in (training.plan, training.train):
        with pytest.raises(InputError, match=r"train merge .*adapter -o FOLDER.*--lora"):
            look()


def test_an_adapter_without_a_tokenizer_takes_its_bases(adapter: Path, tmp_path: Path):
    shutil.copytree(adapter, tmp_path / "bare", ignore=shutil.ignore_patterns("token*", "*.jinja", "checkpoints"))
    asked = toys.config(tmp_path, model=str(tmp_path / "bare"), lora={})
    assert len(load_tokenizer(asked)) == len(load_tokenizer(toys.config(tmp_path, model=str(adapter.parent / "base"))))


def test_an_adapter_of_another_model_is_refused(adapter: Path, tmp_path: Path):
    shutil.copytree(adapter, tmp_path / "moved", ignore=shutil.ignore_patterns("checkpoints"))
    path = tmp_path / "moved" / "adapter_config.json"
    base = a_base(tmp_path / "other", hidden_size=16)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": str(base)}))
    asked = toys.config(tmp_path, model=str(tmp_path / "moved"), lora={})
    for look in (lambda: describe_model(asked), lambda: load_model(asked, "fp32", gradient_checkpointing=False)):
        with pytest.raises(InputError, match=r"is not its base: .*have other shapes"):
            look()


def test_an_adapter_of_the_hub_is_found_in_its_cache(adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    snapshot = tmp_path / "hub" / "models--an-org--an-adapter" / "snapshots" / "0123abc"
    shutil.copytree(adapter, snapshot, ignore=shutil.ignore_patterns("checkpoints"))
    (refs := snapshot.parent.parent / "refs").mkdir()
    (refs / "main").write_text("0123abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.seek.cache_clear()
    a_training(Path("an-org/an-adapter"), tmp_path / "out", lora=True, learning_rate=1e-12).train()
    assert weights(tmp_path / "out").keys() == weights(adapter).keys()
    hub.seek.cache_clear()
    adapters._fetched.cache_clear()
