"""Models and settings from outside: what is loaded, and what is refused before anything is trained."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import engine_toys as toys
import pytest
import tiny
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import Gemma3nTextConfig, MixtralConfig, Qwen3MoeConfig

from refinesynth.errors import InputError
from refinesynth.train.engine.loading import describe_model, load_model, load_tokenizer, model_shape
from refinesynth.train.engine.parallel import Distributed, deepspeed_json

pytestmark = pytest.mark.train


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    toys.model().save_pretrained(tmp_path / "toy")
    return tmp_path / "toy"


def asked(folder: Path, **fields: Any) -> Any:
    return toys.config(folder / "out", **{"model": str(folder)} | fields)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.float32), ("fp64", torch.float64)]
)
def test_weights_are_held_in_fp32_unless_something_else_is_asked_for(saved: Path, precision: Any, dtype: torch.dtype):
    toy = load_model(asked(saved), precision, gradient_checkpointing=False)
    assert {one.dtype for one in toy.parameters()} == {dtype}


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache with two revisions of a model, of which v1 has other weights and another tokenizer; the hub
    itself is not asked."""
    root = tmp_path / "cache"
    repository = root / "models--an-org--toy"
    (repository / "refs").mkdir(parents=True)
    for seed, (revision, commit) in enumerate({"main": "a" * 40, "v1": "b" * 40}.items()):
        folder = repository / "snapshots" / commit
        toys.model(seed=seed).save_pretrained(folder)
        tiny.tokenizer(vocabulary=400 + 100 * seed).save_pretrained(str(folder))
        (repository / "refs" / revision).write_text(commit)

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(root))
    return root


@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize(("fields", "seed", "tokens"), [({}, 0, 0), ({"revision": "v1"}, 1, 1)])
def test_a_revision_is_that_of_weights_settings_and_tokenizer(
    tmp_path: Path, fields: dict[str, Any], seed: int, tokens: int
):
    model = "an-org/toy"
    given = toys.config(tmp_path / "out", model=model, **fields)
    weights = load_model(given, "fp32", gradient_checkpointing=False).state_dict()
    wanted = toys.model(seed=seed).state_dict()
    assert all(torch.equal(weights[name], one) for name, one in wanted.items())
    assert describe_model(given).parameters == sum(one.numel() for one in toys.model().parameters())
    sizes = [
        len(load_tokenizer(toys.config(tmp_path / "out", model=model, **each))) for each in ({}, {"revision": "v1"})
    ]
    assert len(load_tokenizer(given)) == sizes[tokens]
    assert sizes[0] != sizes[1]


def test_below_adapters_frozen_weights_are_held_in_what_is_computed_in(saved: Path):
    toy = load_model(asked(saved, lora={"rank": 2}), "bf16", gradient_checkpointing=False)
    dtypes = {(one.requires_grad, one.dtype) for one in toy.parameters()}
    assert dtypes == {(True, torch.float32), (False, torch.bfloat16)}


def test_generation_settings_that_cannot_be_written_are_mended(saved: Path, tmp_path: Path):
    """Some models of the hub come with them, and the library would refuse at the first checkpoint."""
    (saved / "generation_config.json").write_text('{"temperature": 0.9, "top_p": 0.6}')
    toy: Any = load_model(asked(saved), "fp32", gradient_checkpointing=False)
    toy.save_pretrained(tmp_path / "again")
    kept = json.loads((tmp_path / "again" / "generation_config.json").read_text())
    assert (kept["temperature"], kept["do_sample"]) == (0.9, True)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_model_whose_files_are_damaged_is_refused(saved: Path, name: str):
    (saved / name).write_bytes((saved / name).read_bytes()[:100])
    with pytest.raises(InputError, match="no model can be loaded"):
        load_model(asked(saved), "fp32", gradient_checkpointing=False)


@pytest.mark.parametrize("change", [{"num_attention_heads": 0}, {"hidden_size": "x"}, {"vocab_size": None}])
def test_a_model_with_settings_that_make_no_sense_is_refused(saved: Path, change: dict[str, Any]):
    settings = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(settings | change))
    with pytest.raises(InputError, match="no model can be loaded"):
        describe_model(asked(saved))


def test_a_model_is_described_without_its_weights(saved: Path):
    whole = toys.model()
    (saved / "model.safetensors").unlink()
    shape = describe_model(asked(saved))
    assert shape.parameters == shape.trainable == sum(one.numel() for one in whole.parameters())
    assert (shape.layers, shape.hidden, shape.vocabulary, shape.positions) == (2, 32, toys.VOCABULARY, 4096)


def test_a_model_that_lacks_weights_is_refused(saved: Path):
    weights = load_file(saved / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lacks 1 of its weights .*up_proj"):
        load_model(asked(saved), "fp32", gradient_checkpointing=False)


def test_pickled_weights_are_refused(saved: Path):
    torch.save(toys.model().state_dict(), saved / "pytorch_model.bin")
    (saved / "model.safetensors").unlink()
    with pytest.raises(InputError, match="safetensors"):
        load_model(asked(saved), "fp32", gradient_checkpointing=False)


def test_code_that_comes_with_a_model_is_not_run(saved: Path):
    (saved / "evil.py").write_text("raise SystemExit('run!')")
    settings = json.loads((saved / "config.json").read_text())
    settings |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}}
    (saved / "config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match="trust_remote_code"):
        describe_model(asked(saved))


@pytest.mark.parametrize("family", ["qwen3", "gemma2", "t5", "llama"])
def test_a_tokenizer_whose_files_are_missing_is_refused(saved: Path, family: str):
    """The library makes an empty one for some families, which would turn all text into nothing."""
    settings = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(settings | {"model_type": family}))
    with pytest.raises(InputError, match="no tokenizer can be loaded"):
        load_tokenizer(asked(saved))


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"model_type": "no_such"}', '{"model_type": "t5"}'])
def test_what_is_no_causal_language_model_is_refused(tmp_path: Path, content: str | None):
    folder = tmp_path / "odd"
    folder.mkdir()
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(InputError, match="no model can be loaded"):
        describe_model(asked(folder))
    with pytest.raises(InputError, match="no tokenizer can be loaded"):
        load_tokenizer(asked(folder))


@pytest.mark.parametrize("content", [None, "{", "[]", "3", "{}", '{"zero_optimization": {"stage": 1}}'])
def test_a_deepspeed_file_of_no_use_is_refused(tmp_path: Path, content: str | None):
    path = tmp_path / "own.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=r"own\.json"):
        deepspeed_json(asked(tmp_path, deepspeed=str(path)), "zero3", "cpu")


def test_a_deepspeed_file_of_ones_own_saves_whole_models_and_leaves_batches_to_the_schedule(tmp_path: Path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"train_batch_size": 7, "zero_optimization": {"stage": 3, "overlap_comm": True}}))
    own = deepspeed_json(asked(tmp_path, deepspeed=str(path), max_grad_norm=0.5), "zero3", "cpu")
    assert own["zero_optimization"] == {
        "stage": 3,
        "overlap_comm": True,
        "stage3_gather_16bit_weights_on_model_save": True,
    }
    assert own.get("train_batch_size") is None
    assert (own["gradient_clipping"], own["bf16"]) == (0.5, {"enabled": False})
    path.write_text(json.dumps({"optimizer": {"type": "Adam"}, "zero_optimization": {"stage": 3}}))
    with pytest.raises(InputError, match=r"own\.json' sets 'optimizer'.*learning_rate"):
        deepspeed_json(asked(tmp_path, deepspeed=str(path)), "zero3", "cpu")


@pytest.mark.parametrize("emulated", [False, True])
def test_bf16_that_is_only_emulated_is_none(monkeypatch: pytest.MonkeyPatch, emulated: bool):
    """A T4 claims bf16; asked without emulation, it has none."""
    properties = SimpleNamespace(name="Tesla T4", total_memory=16 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: properties)
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or not emulated
    )
    assert Distributed(0, 0, 1, "gpu").devices().bf16 == (not emulated)


def test_the_width_in_the_memory_estimate_is_that_of_all_experts_of_a_token():
    def width(kind: Any, **fields: Any) -> int:
        made: Any = torch.nn.Linear(2, 2)
        made.config = kind(num_hidden_layers=2, **fields)
        return model_shape(made, "").intermediate

    experts = {"intermediate_size": 32, "num_experts_per_tok": 2}
    assert width(MixtralConfig, **experts) == 64
    assert width(Qwen3MoeConfig, **experts, moe_intermediate_size=8) == 32
    assert width(Qwen3MoeConfig, **experts, moe_intermediate_size=500) == 1000
    assert width(Gemma3nTextConfig, intermediate_size=[64, 512]) == 512
