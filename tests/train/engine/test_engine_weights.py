"""What is written of a finished model: the type of its weights, and the settings that it came with."""

import json
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import tiny
import torch
from huggingface_hub import constants
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from test_engine_whole import FIELDS, records
from transformers import AutoModelForCausalLM

from refinesynth.errors import InputError
from refinesynth.train import Trainer
from refinesynth.train.engine.model_writer import convert_dtype

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]  # as peft asks when it loads


def a_base(folder: Path, dtype: torch.dtype = torch.bfloat16, **changes: Any) -> Path:
    tokenizer = tiny.tokenizer("chatml")
    tokenizer.save_pretrained(str(folder))
    toys.model(dtype=dtype, vocab_size=len(tokenizer), **changes).save_pretrained(str(folder))
    return folder


def a_training(base: Path, output: Path, **fields: Any) -> Trainer:
    short: dict[str, Any] = FIELDS | {"precision": "fp32", "max_steps": 1, "held_out": 0}
    return Trainer(model=base, data=records(4), output=output, **short | fields)


def dtypes(folder: Path) -> set[torch.dtype]:
    return {one.dtype for path in folder.glob("*.safetensors") for one in load_file(path).values()}


def test_a_checkpoint_in_bf16_gives_one_in_bf16_with_the_settings_that_it_had(tmp_path: Path):
    base, output = a_base(tmp_path / "base", tie_word_embeddings=True), tmp_path / "out"
    (base / "generation_config.json").write_text(json.dumps({"do_sample": True, "top_p": 0.7, "use_cache": True}))
    a_training(base, output).train()
    assert dtypes(output) == {torch.bfloat16}
    assert dtypes(output / "checkpoints" / "checkpoint-1") == {torch.float32}
    said = json.loads((output / "config.json").read_text())
    assert (said["dtype"], said["use_cache"]) == ("bfloat16", True)
    generation = json.loads((output / "generation_config.json").read_text())
    assert (generation["do_sample"], generation["top_p"], generation["use_cache"]) == (True, 0.7, True)
    before, tuned = (AutoModelForCausalLM.from_pretrained(each) for each in (base, output))
    assert tuned.dtype == torch.bfloat16
    assert tuned.lm_head.weight is tuned.model.embed_tokens.weight
    assert not torch.equal(before.lm_head.weight, tuned.lm_head.weight)
    # Rounded once, from the weights that were trained.
    whole = load_file(output / "checkpoints" / "checkpoint-1" / "model.safetensors")
    assert all(torch.equal(one, whole[name].bfloat16()) for name, one in tuned.state_dict().items() if name in whole)


def test_settings_without_use_cache_or_with_false_stay_so(tmp_path: Path):
    base = a_base(tmp_path / "base", use_cache=False)
    a_training(base, tmp_path / "out").train()
    assert json.loads((tmp_path / "out" / "config.json").read_text())["use_cache"] is False


def test_another_type_may_be_asked_for_until_the_model_is_written(tmp_path: Path):
    base, output = a_base(tmp_path / "base"), tmp_path / "out"
    a_training(base, output, save_dtype="fp32").train()
    assert dtypes(output) == {torch.float32}
    with pytest.raises(InputError, match="save_dtype was 'fp32' and is 'bf16'"):
        a_training(base, output, save_dtype="bf16").train()
    for name in ("result.json", "model.safetensors"):
        (output / name).unlink()
    assert a_training(base, output, save_dtype="bf16").train().resumed_from == 1
    assert dtypes(output) == {torch.bfloat16}


def test_adapters_are_written_as_they_were_trained_unless_asked_otherwise(tmp_path: Path):
    base = a_base(tmp_path / "base")
    for asked, found in (("auto", torch.float32), ("bf16", torch.bfloat16)):
        a_training(base, tmp_path / asked, lora={"rank": 2}, save_dtype=asked, precision="bf16").train()
        assert dtypes(tmp_path / asked) == {found}


def adapter_config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "adapter_config.json").read_text())


def test_adapters_of_a_model_of_the_hub_name_it_as_the_hub_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where it came from the cache on this machine."""
    snapshot = tmp_path / "hub" / "models--an-org--a-model" / "snapshots" / "0123abc"
    a_base(snapshot)
    refs = snapshot.parent.parent / "refs"
    refs.mkdir()
    (refs / "main").write_text("0123abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    output = tmp_path / "out"
    a_training(Path("an-org/a-model"), output, lora={"rank": 2}).train()
    found = adapter_config(output)
    assert (found["base_model_name_or_path"], found["revision"]) == ("an-org/a-model", None)
    assert "base_model: an-org/a-model\n" in (output / "README.md").read_text()
    AutoPeftModelForCausalLM.from_pretrained(output)


def test_adapters_of_a_folder_tell_no_private_path_and_load_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    output = Path("out")
    a_training(a_base(tmp_path / "base"), output, lora={"rank": 2}).train()
    checkpoint = output / "checkpoints" / "checkpoint-1"
    for folder in (output, checkpoint):
        assert adapter_config(folder)["base_model_name_or_path"] == "../base"
        AutoPeftModelForCausalLM.from_pretrained(folder)
        for path in folder.iterdir():
            assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes()


def test_what_an_architecture_holds_in_fp32_stays_so():
    toy: Any = toys.model()
    toy._keep_in_fp32_modules_strict = {"layers.*.input_layernorm"}
    found = {name: one.dtype for name, one in convert_dtype(toy, None, torch.bfloat16).items()}
    assert {name for name, dtype in found.items() if dtype == torch.float32} == {
        f"model.layers.{k}.input_layernorm.weight" for k in range(2)
    }
