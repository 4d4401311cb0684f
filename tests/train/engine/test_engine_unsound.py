"""What was saved is compared with what was trained, by names and shapes; what differs ends the training and is no
checkpoint."""

import json
from pathlib import Path
from typing import Any

import engine_toys as toys
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3MoeConfig

from refinesynth.errors import TrainingError
from refinesynth.train.engine import checkpoints
from refinesynth.train.engine.model_writer import TrainedTensors, saved_differences

# peft's own remarks, on a model that lies nowhere.
pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning", "ignore::UserWarning"),
]


def routed() -> Any:
    """Its experts are held together and saved apart, and its weights are tied."""
    sizes: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "head_dim": 8,
    }
    experts: dict[str, Any] = {
        "num_experts": 4,
        "moe_intermediate_size": 16,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    return AutoModelForCausalLM.from_config(Qwen3MoeConfig(**sizes, **experts, tie_word_embeddings=True))


def adapted(model: Any = None, **fields: Any) -> Any:
    settings: dict[str, Any] = {"r": 2, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | fields
    return peft.get_peft_model(model or toys.model(), peft.LoraConfig(**settings))


MODELS: dict[str, Any] = {
    "whole": toys.model,
    "tied": lambda: toys.model(tie_word_embeddings=True),
    "routed": routed,
    "adapters": adapted,
    "adapters and a head": lambda: adapted(modules_to_save=["lm_head"]),
    "adapters and tied embeddings": lambda: adapted(
        toys.model(tie_word_embeddings=True), modules_to_save=["embed_tokens", "lm_head"]
    ),
    "adapters of embeddings": lambda: adapted(target_modules=["q_proj", "embed_tokens"]),
    "adapters with magnitudes": lambda: adapted(use_dora=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_the_libraries_save_is_what_was_trained(tmp_path: Path, name: str):
    model = MODELS[name]()
    trained = TrainedTensors.from_model(model)
    model.save_pretrained(str(tmp_path))
    assert saved_differences(trained, tmp_path) == []
    # And whatever of it is lost is missed.
    [path] = tmp_path.glob("*model.safetensors")
    whole = load_file(path)
    for lost in whole:
        if "base_layer" in lost:
            continue  # saved besides
        save_file({key: one for key, one in whole.items() if key != lost}, path, {"format": "pt"})
        [said] = saved_differences(trained, tmp_path)
        assert said.startswith(f"1 of {len(trained.in_files.required)} tensors are missing: ")
        assert lost in said


def test_a_model_in_several_files_is_compared_by_their_index(tmp_path: Path):
    model = toys.model()
    trained = TrainedTensors.from_model(model)
    model.save_pretrained(str(tmp_path), max_shard_size="20KB")
    index = tmp_path / "model.safetensors.index.json"
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert saved_differences(trained, tmp_path) == []
    said = json.loads(index.read_text())
    names = said["weight_map"]
    names["lm_head.weight"] = next(file for file in names.values() if file != names["lm_head.weight"])
    index.write_text(json.dumps(said))
    assert saved_differences(trained, tmp_path) == ["1 of 21 tensors are missing: lm_head.weight"]


def test_every_difference_is_said_in_words(tmp_path: Path):
    model = toys.model()
    trained = TrainedTensors.from_model(model)
    assert saved_differences(trained, tmp_path)[0].startswith("21 of 21 tensors are missing: lm_head.weight, model.")
    whole = {key: one.contiguous() for key, one in model.state_dict().items()}
    odd = {"model.norm.weight": torch.zeros(0), "model.norm.bias": torch.zeros(32)}
    save_file(whole | odd, tmp_path / "model.safetensors", {"format": "pt"})
    assert saved_differences(trained, tmp_path) == [
        "1 were not trained: model.norm.bias",
        "1 have other shapes: model.norm.weight is [0] and was [32]",
    ]
    (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    assert saved_differences(trained, tmp_path)[0].startswith("it cannot be read again: ")
    assert saved_differences(trained, tmp_path, shards=True)[0].startswith("it cannot be read again: ")


def losing(loop: Any, *, from_step: int) -> None:
    """Have the model's own saving lose its tensors from a step on, without a word."""
    save = loop.model.save_pretrained

    def lossy(folder: str, **options: Any) -> None:
        save(folder, **options)
        [path] = Path(folder).glob("*model.safetensors")
        if loop.progress.step >= from_step:
            save_file({}, path, {"format": "pt"})

    loop.model.save_pretrained = lossy


@pytest.mark.parametrize("make", [toys.model, adapted])
def test_a_checkpoint_that_lost_weights_ends_the_training_and_the_one_before_stays(tmp_path: Path, make: Any):
    asked = toys.config(tmp_path, save_every=1, keep=1)
    loop: Any = toys.loop(make(), toys.store(11, seed=3), asked)
    losing(loop, from_step=2)
    with pytest.raises(TrainingError, match=r"checkpoint-2 is not what was trained: (\d+) of \1 tensors are missing: "):
        loop.train()
    newest, [remark] = checkpoints.find_newest(tmp_path / "checkpoints")
    assert newest is not None
    assert newest.step == 1
    assert "checkpoint-2 is passed over: it was not written to its end" in remark


def test_a_finished_model_that_lost_weights_ends_the_training(tmp_path: Path):
    loop: Any = toys.loop(adapted(), toys.store(4), toys.config(tmp_path))
    losing(loop, from_step=0)
    loop.train()
    with pytest.raises(TrainingError, match="28 of 28 tensors are missing"):
        loop.writer.write(tmp_path / "out", dtype=None)


def test_a_checkpoint_of_which_the_first_rank_sees_a_part_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    loop: Any = toys.loop(toys.model(), toys.store(4), toys.config(tmp_path, save_every=1))
    elsewhere = "rng_state_1.pth"
    monkeypatch.setattr(checkpoints, "gather_objects", lambda here: [here, [*here, elsewhere] if here else here])
    with pytest.raises(TrainingError, match=rf"rank 1 has written {elsewhere} .* all machines share"):
        loop.train()
    assert checkpoints.find_newest(tmp_path / "checkpoints")[0] is None
