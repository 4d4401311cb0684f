"""Two ranks are one rank, however they share the work; all ways in one launch, since starting takes most of the
time."""

import json
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import torch
from engine_ranks import WAYS, train
from safetensors.torch import load_file

pytestmark = pytest.mark.train

_SCRIPT = Path(__file__).with_name("engine_ranks.py")


@pytest.fixture(scope="module")
def folder(warm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    toys.on_two_ranks(warm, _SCRIPT, folder, *WAYS)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    for name, way in WAYS.items():
        train(folder, name, way | {"parallel": "none"})
    return folder


def told(folder: Path, name: str) -> list[dict[str, Any]]:
    return json.loads((folder / f"{name}.json").read_text())


@pytest.mark.representative
@pytest.mark.parametrize("name", WAYS)
def test_two_ranks_give_the_losses_gradients_and_weights_of_one(folder: Path, alone: Path, name: str):
    half = "bf16" in name
    for one, two in zip(told(alone, name)[:-1], told(folder, name)[:-1], strict=True):
        assert two == pytest.approx(one, abs=1e-4 if not half else None, rel=0.05 if half else None)
    if half:
        return  # AdamW makes whole steps of what is left of small gradients
    wanted, got = (load_file(each / name / "model.safetensors") for each in (alone, folder))
    assert wanted.keys() == got.keys()
    assert max(float((wanted[key] - got[key]).abs().max()) for key in wanted) < 1e-5


@pytest.mark.parametrize("name", WAYS)
def test_the_finished_model_is_written_in_the_type_that_is_asked_for(folder: Path, name: str):
    whole, half = (load_file(each / "model.safetensors") for each in (folder / name, folder / name / "half"))
    assert half.keys() == whole.keys()
    assert all(torch.equal(half[key], one.bfloat16()) for key, one in whole.items())
    said = json.loads((folder / name / "half" / "config.json").read_text())
    assert (said["dtype"], said.get("text_config", said)["use_cache"]) == ("bfloat16", True)


def test_the_weights_are_split_where_they_should_be(folder: Path):
    parts = {name: told(folder, name)[-1]["share"] for name in WAYS}
    assert all(part == 1 for name, part in parts.items() if name.startswith(("ddp", "zero2")))
    assert all(part < 0.6 for name, part in parts.items() if name.startswith(("zero3", "fsdp")))


def test_ranks_wait_for_each_other_as_long_as_is_given(folder: Path):
    assert (folder / "patience.json").read_text() == "0:12:57"


def test_a_loss_without_a_number_on_one_rank_ends_all_with_the_same_words(folder: Path):
    first, second = (json.loads((folder / f"broken {rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert "the gradient of step 1 is nan" in first
