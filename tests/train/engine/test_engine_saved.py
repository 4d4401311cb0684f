"""Every way to split a training saves what a training on one process saves; all ways in one launch."""

import json
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import tiny
import torch
from engine_saved import ALONE, SPLIT, WAYS, train
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Glm4MoeConfig

from refinesynth.train.engine import checkpoints
from refinesynth.train.engine.checkpoints import Checkpoint

pytestmark = [pytest.mark.train, pytest.mark.long]

_SCRIPT = Path(__file__).with_name("engine_saved.py")
_ROUTED: dict[str, Any] = {
    **toys.SIZES,
    "moe_intermediate_size": 16,
    "head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "initializer_range": 0.2,
}
COMPARED = [way for way in WAYS if way[1] != "best"]


@pytest.fixture(scope="module")
def folder(warm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    toys.model(tie_word_embeddings=True).save_pretrained(folder / "base")
    tiny.tokenizer("chatml").save_pretrained(str(folder / "tokenizer"))
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(Glm4MoeConfig(**_ROUTED)).save_pretrained(folder / "routed")
    one_process(folder, "lora and head", folder / "adapter")
    toys.on_two_ranks(warm, _SCRIPT, folder)
    return folder


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return json.loads((folder / "told.json").read_text())


@pytest.fixture(scope="module")
def alone(folder: Path) -> Path:
    for name in dict.fromkeys(name for _, name in COMPARED):
        one_process(folder, name, folder / "alone" / name)
    return folder / "alone"


def one_process(folder: Path, name: str, output: Path) -> None:
    said = train(folder, "none", name, output)
    assert "error" not in said, said


def weights(output: Path) -> dict[str, torch.Tensor]:
    [path] = output.glob("*model.safetensors")
    return load_file(path)


def logits(folder: Path, output: Path) -> torch.Tensor:
    if (output / "adapter_config.json").exists():
        model: Any = AutoModelForCausalLM.from_pretrained(folder / "base")
        model.load_adapter(str(output))
    else:
        model = AutoModelForCausalLM.from_pretrained(output)
    return model(torch.arange(20)[None]).logits.detach()


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")  # peft, when it loads
@pytest.mark.parametrize(("split", "name"), COMPARED)
def test_every_way_saves_what_one_process_saves_and_loads_the_same(
    folder: Path, alone: Path, told: dict[str, list[dict[str, Any]]], split: str, name: str
):
    assert [said.get("error") for said in told[f"{split}, {name}"]] == [None, None]
    got, wanted = weights(folder / f"{split}, {name}"), weights(alone / name)
    assert {key: one.shape for key, one in got.items()} == {key: one.shape for key, one in wanted.items()}
    assert {one.dtype for one in got.values()} == {torch.float32}
    # AdamW makes whole steps, of 0.01 here, of what is left of small gradients in bf16.
    near = 1e-5 if "bf16" not in name else 0.05
    assert max(float((got[key] - wanted[key]).abs().max()) for key in wanted) < near
    assert torch.allclose(logits(folder, folder / f"{split}, {name}"), logits(folder, alone / name), atol=10 * near)


@pytest.mark.parametrize("name", ALONE)
def test_one_process_learns_saves_and_loads(folder: Path, alone: Path, name: str):
    loaded = logits(folder, alone / name)
    assert float((loaded - logits(folder, folder / "base")).abs().max()) > 1e-2
    assert torch.allclose(
        loaded, logits(folder, alone / name.replace("checkpointing on", "checkpointing off")), atol=1e-4
    )
    got, last = weights(alone / name), weights(alone / name / "checkpoints" / "checkpoint-3")
    assert got.keys() == last.keys()
    assert all(torch.equal(got[key], last[key]) for key in got)


def test_the_table_in_the_docs_names_every_way():
    text = (Path(__file__).parents[3] / "docs" / "training.md").read_text()
    cases = [*ALONE, *(f"{split}-{name}" for split in SPLIT for name in ALONE)]
    assert not [case for case in cases if text.count(f"`{case}`") != 1]


@pytest.mark.parametrize("split", SPLIT[1:])
@pytest.mark.parametrize("name", [name for name in ALONE if "checkpointing on" in name])
def test_what_goes_on_from_a_checkpoint_is_one_run(
    folder: Path, told: dict[str, list[dict[str, Any]]], split: str, name: str
):
    once, again = f"{split}, {name}", f"{split}, {name}, gone on"
    assert [said["resumed"] for said in told[again]] == [2, 2]
    wanted, got = weights(folder / once), weights(folder / again)
    assert all(torch.equal(wanted[key], got[key]) for key in wanted)


def test_with_fsdp_a_checkpoint_is_in_pieces_that_its_mark_knows(folder: Path):
    for name in ALONE:
        path = folder / f"fsdp, {name}" / "checkpoints" / "checkpoint-2"
        assert isinstance(checkpoints.read(path), Checkpoint)
        marked = json.loads((path / checkpoints.MARK).read_text())["files"]
        for kind in ("pytorch_model_fsdp_0", "optimizer_0"):
            assert {f"{kind}/__{rank}_0.distcp" for rank in (0, 1)} <= marked.keys()
        # Adapters are small, and others may want to load them.
        assert ("adapter_model.safetensors" in marked) == ("lora" in name)
        assert "model.safetensors" not in marked


def test_with_fsdp_only_the_first_rank_reads_the_weights(told: dict[str, list[dict[str, Any]]]):
    for name in [*ALONE, "scratch"]:
        first, second = told[f"fsdp, {name}"][0]["bytes"]
        assert first > 10_000
        # The adapters are made by every rank.
        assert second < (first / 100 if "lora" not in name else first / 3)


def test_with_fsdp_all_ranks_read_what_accelerate_cannot_spread(told: dict[str, list[dict[str, Any]]]):
    first, second = told["fsdp, routed"][0]["bytes"]
    assert first == second > 10_000


def test_with_fsdp_checkpointing_gathers_no_weights_again(told: dict[str, list[dict[str, Any]]]):
    for learned in ("full", "lora"):
        off, on = (told[f"fsdp, {learned}, checkpointing {each}"][0]["gathered"] for each in ("off", "on"))
        assert on == off > 0


def test_with_fsdp_the_best_is_loaded_from_its_pieces(folder: Path, told: dict[str, list[dict[str, Any]]]):
    [said, _] = told["fsdp, best"]
    assert said["best"] < said["steps"]
    # All are kept, so that each is a model for others too.
    best, last = (
        weights(folder / "fsdp, best" / "checkpoints" / f"checkpoint-{said[step]}") for step in ("best", "steps")
    )
    output = weights(folder / "fsdp, best")
    assert all(torch.equal(output[key], best[key]) for key in best)
    assert not all(torch.equal(last[key], best[key]) for key in best)


def test_adapters_that_would_be_saved_empty_end_the_training_on_all_ranks(
    folder: Path, told: dict[str, list[dict[str, Any]]]
):
    first, second = (said["error"] for said in told["lost"])
    assert first == second
    assert "is not what was trained: 28 of 28 tensors are missing: base_model.model.model.layers.0" in first
    assert checkpoints.find_newest(folder / "lost" / "checkpoints")[0] is None


def test_a_model_that_one_rank_cannot_load_is_told_by_all(told: dict[str, list[dict[str, Any]]]):
    assert told["no model"] == [{"error": "no such model"}] * 2
