"""Adapters that are trained on, beside what else of the model is trained."""

import json
import shutil
from pathlib import Path
from typing import Any, cast

import engine_toys as toys
import pytest
import torch
import yaml
from peft import AutoPeftModelForCausalLM
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from test_engine_weights import a_base, a_training
from transformers import AutoConfig, AutoModelForCausalLM

from refinesynth.errors import ConfigurationError, InputError
from refinesynth.train.config import LoraConfig
from refinesynth.train.engine.adapters import add_adapters
from refinesynth.train.engine.loading import describe_model, load_model, load_tokenizer
from refinesynth.train.plan import ComputeSettings, estimate_memory

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]  # as peft asks when it loads


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    lora = {"rank": 3, "alpha": 12, "targets": ["q_proj", "v_proj"]}
    a_training(a_base(folder / "base", torch.float32), folder / "adapter", lora=lora, learning_rate=0.1).train()
    return folder / "adapter"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")


@pytest.mark.representative
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


MOE: dict[str, Any] = {**toys.SIZES, **toys.NO_SPECIAL, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}


@pytest.mark.filterwarnings("ignore:The following rank_pattern keys", "ignore:The following alpha_pattern keys")
@pytest.mark.parametrize(
    ("kind", "targets", "unknown"),
    [
        ("llama", ("q_proj", "v_prj"), "'v_prj'"),
        ("phi3", ("o_proj", "q_proj", "gate_proj"), "'q_proj' or 'gate_proj'"),
        ("mixtral", ("q_proj", "w1", "w3", "vproj"), "'vproj'"),
        ("mixtral", ("q_proj", "w1", "w3"), None),
    ],
)
def test_a_target_that_matches_nothing_is_refused(kind: str, targets: tuple[str, ...], unknown: str | None):
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **MOE))
    lora = LoraConfig(rank=2, targets=targets)
    if unknown is None:
        add_adapters(model, lora)
        return
    with pytest.raises(InputError, match=rf"no module of \w+ is called {unknown}; lora\.targets"):
        add_adapters(model, lora)


def test_a_module_to_save_that_nothing_has_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"no module of LlamaForCausalLM is called 'lm_haed'; .*modules_to_save"):
        a_training(a_base(tmp_path / "base"), tmp_path / "out", lora={"modules_to_save": ["lm_haed", "norm"]}).plan()


def test_other_settings_than_the_adapters_own_are_refused_with_both(adapter: Path, tmp_path: Path):
    training = a_training(adapter, tmp_path / "out", lora={"rank": 8, "alpha": 12})
    for look in (training.plan, training.train):
        with pytest.raises(InputError, match=r"lora\.rank is 8, and it has 3\. Leave.*--model .*base"):
            look()


def test_all_weights_below_an_adapter_are_not_trained_without_a_word(adapter: Path, tmp_path: Path):
    training = a_training(adapter, tmp_path / "out")
    for look in (training.plan, training.train):
        with pytest.raises(InputError, match=r"--lora.*merge_and_unload"):
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


@pytest.mark.parametrize(
    "change",
    [
        "{",
        "[]",
        {"peft_type": "IA3"},
        {"r": "x"},
        {"megatron_config": {"a": 1}, "megatron_core": "evil"},
        {"init_lora_weights": "no such"},
        {"base_model_name_or_path": None},
        {"base_model_name_or_path": "~/nowhere/base"},
    ],
)
def test_settings_of_an_adapter_that_make_no_sense_are_refused(adapter: Path, tmp_path: Path, change: Any):
    shutil.copytree(adapter, tmp_path / "odd", ignore=shutil.ignore_patterns("checkpoints"))
    path = tmp_path / "odd" / "adapter_config.json"
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match="adapter"):
        describe_model(toys.config(tmp_path, model=str(tmp_path / "odd"), lora={}))


def test_weights_of_an_adapter_that_cannot_be_used_are_refused(adapter: Path, tmp_path: Path):
    path = tmp_path / "odd" / "adapter_model.safetensors"
    shutil.copytree(adapter, path.parent, ignore=shutil.ignore_patterns("checkpoints"))
    found = load_file(path)
    first = min(found)
    without = {name: one for name, one in found.items() if name != first}
    broken = found | {first: found[first] * float("nan")}
    asked = toys.config(tmp_path, model=str(path.parent), lora={})
    for held, said in ((without, "1 of .* are missing"), (broken, "no numbers"), (b"x" * 100, "cannot be read")):
        path.unlink()
        if isinstance(held, bytes):
            path.write_bytes(held)
        else:
            save_file(held, path)
        with pytest.raises(InputError, match=said):
            load_model(asked, "fp32", gradient_checkpointing=False)
    path.unlink()
    with pytest.raises(InputError, match="pickled"):
        load_model(asked, "fp32", gradient_checkpointing=False)


# Beside the adapters, and below them.


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")  # peft, when it loads
@pytest.mark.parametrize("quantize", [None, "4bit"])
@pytest.mark.parametrize("tied", [False, True])
def test_modules_that_are_trained_whole_are_saved_loaded_and_trained_on(
    tmp_path: Path, tied: bool, quantize: str | None
):
    if quantize is not None:
        pytest.importorskip("bitsandbytes")
    base, output = a_base(tmp_path / "base", torch.float32, tie_word_embeddings=tied), tmp_path / "adapter"
    lora = {"rank": 2, "targets": ["q_proj"], "modules_to_save": ["lm_head"], "quantize": quantize}
    a_training(base, output, lora=lora, learning_rate=0.01).train()
    head = weights(output)["base_model.model.lm_head.weight"]
    before: Any = AutoModelForCausalLM.from_pretrained(base)
    assert not torch.equal(head, before.lm_head.weight)
    loaded: Any = AutoPeftModelForCausalLM.from_pretrained(output)
    assert torch.equal(loaded.get_base_model().lm_head.weight, head)
    assert torch.equal(loaded.get_base_model().model.embed_tokens.weight, before.model.embed_tokens.weight)
    again = {"rank": 2, "quantize": quantize}
    a_training(output, tmp_path / "again", lora=again, learning_rate=1e-12).train()
    after = weights(tmp_path / "again")
    assert after.keys() == weights(output).keys()
    assert torch.allclose(after["base_model.model.lm_head.weight"], head, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")  # peft, when it loads
@pytest.mark.parametrize("tied", [False, True])
def test_modules_that_are_trained_whole_are_held_in_fp32_over_frozen_weights_in_bf16(tmp_path: Path, tied: bool):
    base = str(a_base(tmp_path / "base", tie_word_embeddings=tied))
    lora = {"targets": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens"]}
    model = load_model(toys.config(tmp_path, model=base, lora=lora), "bf16", gradient_checkpointing=False)
    assert {one.dtype for one in model.parameters() if not one.requires_grad} == {torch.bfloat16}
    assert {one.dtype for one in model.parameters() if one.requires_grad} == {torch.float32}
    a_training(Path(base), tmp_path / "out", lora=lora, precision="bf16", learning_rate=1e-4).train()
    written = weights(tmp_path / "out")["base_model.model.lm_head.weight"]
    before: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    assert written.dtype == torch.float32
    moved = (written - before.lm_head.weight.detach()).abs()
    assert 0 < moved.max() < 2e-4


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_adapters_over_quantized_weights_learn_and_belong_to_the_plain_model(tmp_path: Path, precision: str):
    pytest.importorskip("bitsandbytes")
    base, output = a_base(tmp_path / "base", hidden_size=64, intermediate_size=128), tmp_path / "out"
    lora = {"rank": 2, "quantize": "4bit"}
    asked = toys.config(tmp_path, model=str(base), lora=lora)
    model: Any = load_model(asked, cast("Any", precision), gradient_checkpointing=True)
    linear = model.get_base_model().model.layers[0].mlp.up_proj.base_layer
    assert type(linear).__name__ == "Linear4bit"
    assert {one.dtype for one in model.parameters() if one.requires_grad} == {torch.float32}
    shape = describe_model(asked)
    held = sum(one.numel() * one.element_size() for one in model.parameters() if not one.requires_grad)
    assert shape.frozen_bytes == pytest.approx(held, rel=0.05)
    means = ComputeSettings("fp32", "ddp", True, "auto")
    plain = describe_model(toys.config(tmp_path, model=str(base), lora={"rank": 2}))
    few, all_bits = (estimate_memory(one, means, tokens=64, trained=32, ranks=2).weights for one in (shape, plain))
    assert all_bits - few == 4 * (plain.parameters - plain.trainable) - (shape.frozen_bytes or 0)
    told = toys.Kept()
    more: dict[str, Any] = {"max_steps": 6, "log_every": 1, "learning_rate": 0.02, "schedule": "constant"}
    a_training(base, output, lora=lora, precision=precision, gradient_checkpointing=True, **more).train(events=told)
    assert told.values("loss")[-1] < told.values("loss")[0] - 0.1
    assert weights(output).keys() == {
        name.replace(".default", "") for name, one in model.named_parameters() if one.requires_grad
    }
    loaded: Any = AutoPeftModelForCausalLM.from_pretrained(output, dtype=torch.float32)
    assert getattr(loaded.get_base_model().config, "quantization_config", None) is None


def test_a_forward_pass_between_steps_leaves_quantized_weights_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("bitsandbytes")
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: True)  # such a CPU packs them anew
    asked = toys.config(tmp_path, model=str(a_base(tmp_path / "base", hidden_size=64)), lora={"quantize": "4bit"})
    model: Any = load_model(asked, "bf16", gradient_checkpointing=False)
    held = model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight
    before = held.data.clone()
    model.eval()
    with torch.no_grad():
        model(input_ids=torch.arange(8)[None])
    assert torch.equal(held.data, before)
    assert not getattr(held.quant_state, "packing_format_for_cpu", False)


def test_quantized_weights_need_their_library_and_cannot_be_split(adapter: Path, tmp_path: Path, monkeypatch: Any):
    base = str(adapter.parent / "base")
    with monkeypatch.context() as patch:
        patch.setattr("refinesynth.lazy_imports.find_spec", lambda name: None if name == "bitsandbytes" else name)
        with pytest.raises(ConfigurationError, match=r"'bitsandbytes'.*pip install 'refinesynth\[quantize\]'"):
            a_training(Path(base), tmp_path / "out", lora={"quantize": "4bit"}).plan()
    with pytest.raises(ValidationError, match="in bf16 or fp32"):
        toys.config(tmp_path, model=base, lora={"quantize": "4bit"}, precision="fp64")
