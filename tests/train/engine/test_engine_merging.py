"""Adapters that become a model of their own."""

# torch and transformers are typed in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file, save_file
from test_engine_weights import a_base, a_training, dtypes
from transformers import AutoModelForCausalLM, AutoTokenizer

from refinesynth.errors import InputError, TrainingError
from refinesynth.train import TrainConfig, merge
from refinesynth.train.engine import merging

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]  # as peft asks when it loads


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained over a base in bf16, which lies beside it."""
    folder = tmp_path_factory.mktemp("merging")
    a_training(a_base(folder / "base"), folder / "adapter", lora={"rank": 2, "alpha": 64}, learning_rate=0.1).train()
    return folder / "adapter"


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(20)[None]).logits.double()


@pytest.mark.parametrize(("asked", "dtype"), [("auto", torch.bfloat16), ("fp32", torch.float32)])
def test_a_merged_model_is_the_base_with_the_adapter(adapter: Path, tmp_path: Path, asked: Any, dtype: torch.dtype):
    (output := tmp_path / "out").mkdir()
    merged = merge(adapter, output, save_dtype=asked)
    assert (merged.output, merged.dtype, dtypes(output)) == (output, str(dtype).removeprefix("torch."), {dtype})
    wanted: Any = AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.float32)
    found: Any = AutoModelForCausalLM.from_pretrained(output, dtype=torch.float32)
    base: Any = AutoModelForCausalLM.from_pretrained(adapter.parent / "base", dtype=torch.float32)
    distance = (logits(found) - logits(wanted)).norm() / logits(wanted).norm()
    assert distance < (1e-5 if asked == "fp32" else 3e-2)
    assert distance < 0.1 * (logits(base) - logits(wanted)).norm() / logits(wanted).norm()
    # Rounded once, after the sum.
    summed = wanted.merge_and_unload().state_dict()
    assert all(torch.equal(one, summed[name].to(dtype).float()) for name, one in found.state_dict().items())
    assert AutoTokenizer.from_pretrained(output).chat_template == AutoTokenizer.from_pretrained(adapter).chat_template
    [end] = AutoTokenizer.from_pretrained(adapter)("<|im_end|>", add_special_tokens=False)["input_ids"]
    stops = found.generation_config.eos_token_id
    assert end in (stops if isinstance(stops, list) else [stops])
    card = (output / "README.md").read_text()
    assert "library_name: transformers" in card
    assert "`base` with the low-rank adapters of `adapter`" in card
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_an_adapter_that_was_moved_is_merged_into_the_base_that_is_given(adapter: Path, tmp_path: Path):
    shutil.copytree(adapter, tmp_path / "moved", ignore=shutil.ignore_patterns("token*", "checkpoints"))
    settings = json.loads((tmp_path / "moved" / "adapter_config.json").read_text())
    for named, said in ((None, "does not say what it belongs to"), ("~/nowhere/base", "'~/nowhere/base'.*is not here")):
        (tmp_path / "moved" / "adapter_config.json").write_text(
            json.dumps(settings | {"base_model_name_or_path": named})
        )
        with pytest.raises(InputError, match=rf"{said}.*--model"):
            merge(tmp_path / "moved", tmp_path / "out")
    merge(tmp_path / "moved", tmp_path / "out", model=str(adapter.parent / "base"))
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template


def test_what_cannot_be_merged_is_refused_and_leaves_nothing(adapter: Path, tmp_path: Path):
    output = tmp_path / "out"
    other = a_base(tmp_path / "other", hidden_size=16)
    fewer = a_base(tmp_path / "fewer", num_hidden_layers=1)
    for base, said in ((other, "have other shapes"), (fewer, "layers.1.*were not trained|were not trained.*layers.1")):
        with pytest.raises(InputError, match=f"is not its base.*{said}"):
            merge(adapter, output, model=str(base))
    with pytest.raises(InputError, match="there is no adapter"):
        merge(other, output)
    for nothing in ("/nowhere", "./nowhere", "no where/"):
        with pytest.raises(InputError, match=r"there is (no adapter|no folder)"):
            merge(nothing, output)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    with pytest.raises(InputError, match="not empty"):
        merge(adapter, tmp_path / "full")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fewer", "full", "other"]


@pytest.mark.parametrize(
    "change",
    [
        "{",
        "[]",
        "3",
        "{}",
        {"peft_type": "IA3"},
        {"r": 0},
        {"r": "x"},
        {"target_modules": None},
        {"lora_alpha": []},
        {"megatron_config": {"a": 1}, "megatron_core": "evil"},
        {"init_lora_weights": "no such"},
    ],
)
def test_settings_of_an_adapter_that_make_no_sense_are_refused(adapter: Path, tmp_path: Path, change: Any):
    shutil.copytree(adapter, tmp_path / "odd", ignore=shutil.ignore_patterns("checkpoints"))
    path = tmp_path / "odd" / "adapter_config.json"
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match="adapter"):
        merge(tmp_path / "odd", tmp_path / "out")


def test_weights_of_an_adapter_that_cannot_be_used_are_refused(adapter: Path, tmp_path: Path):
    path = tmp_path / "odd" / "adapter_model.safetensors"
    shutil.copytree(adapter, path.parent, ignore=shutil.ignore_patterns("checkpoints"))
    weights = load_file(path)
    first = min(weights)
    without = {name: one for name, one in weights.items() if name != first}
    broken = weights | {first: weights[first] * float("nan")}
    for found, said in (
        (without, "1 of .* are missing"),
        (broken, "no numbers"),
        (None, "cannot be read"),
        ("", "pickled"),
    ):
        path.unlink()
        if isinstance(found, dict):
            save_file(found, path)
        elif found is None:
            path.write_bytes(b"x" * 100)
        with pytest.raises(InputError, match=said):
            merge(path.parent, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_not_written_as_it_was_merged_is_said_and_not_kept(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plain = merging.in_dtype

    def forgetful(*given: Any) -> dict[str, torch.Tensor]:
        found = plain(*given)
        del found["model.norm.weight"]
        return found

    monkeypatch.setattr(merging, "in_dtype", forgetful)
    with pytest.raises(TrainingError, match=r"not what was merged.*norm"):
        merge(adapter, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_base_is_taken_in_the_revision_that_the_adapter_names(
    adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(adapter, tmp_path / "named", ignore=shutil.ignore_patterns("checkpoints"))
    path = tmp_path / "named" / "adapter_config.json"
    named = {"base_model_name_or_path": "an-org/a-model", "revision": "0123abc"}
    path.write_text(json.dumps(json.loads(path.read_text()) | named))
    asked: list[tuple[str, str | None]] = []

    def double(config: TrainConfig, _adapter: Any) -> torch.dtype:
        asked.append((config.model, config.revision))
        return torch.float32

    monkeypatch.setattr(merging, "merge_adapter", double)
    merge(path.parent, tmp_path / "out")
    merge(path.parent, tmp_path / "other", model="an-org/another")
    assert asked == [("an-org/a-model", "0123abc"), ("an-org/another", None)]


@pytest.mark.filterwarnings("ignore::UserWarning")  # of peft, that heads are tied and that embeddings are saved
@pytest.mark.parametrize("targets", [["embed_tokens"], ["lm_head"], ["embed_tokens", "lm_head"]])
def test_what_is_added_to_a_tied_embedding_or_head_is_added_to_that_alone(tmp_path: Path, targets: list[str]):
    base = a_base(tmp_path / "base", torch.float32, tie_word_embeddings=True)
    lora = {"rank": 2, "targets": targets}
    a_training(base, tmp_path / "adapter", lora=lora, learning_rate=0.05, max_steps=2).train()
    merge(tmp_path / "adapter", tmp_path / "out")
    wanted: Any = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")
    found: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.allclose(logits(found), logits(wanted), atol=1e-4)


def test_a_folder_that_one_is_in_is_not_taken(adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"'\.' is a folder that you are in"):
        merge(adapter, ".")
