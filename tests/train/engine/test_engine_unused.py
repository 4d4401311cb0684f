"""What text never reaches: found before the model is loaded, frozen, without adapters, told."""

from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import torch

from refinesynth.train.config import LoraConfig
from refinesynth.train.engine.adapters import freeze, unused_by_text, without_gradient
from refinesynth.train.engine.loading import describe_model, load_model

pytestmark = pytest.mark.train

TOWERS = {"model.vision_tower", "model.multi_modal_projector"}


def frozen(model: Any) -> set[str]:
    return {name for name, one in model.named_parameters() if not one.requires_grad}


def after_a_backward_pass(model: Any) -> set[str]:
    model(input_ids=torch.arange(12)[None], use_cache=False).logits.sum().backward()
    return {name for name, one in model.named_parameters() if one.grad is None}


def test_a_multimodal_models_towers_are_found_and_a_model_of_text_is_used_whole():
    model = toys.multimodal()
    found = unused_by_text(model)
    assert found.keys() == TOWERS
    freeze(model, found)
    assert frozen(model) == {name for name, _ in model.named_parameters() if name.startswith(tuple(TOWERS))}
    assert after_a_backward_pass(model) == frozen(model)
    assert sum(found.values()) == sum(one.numel() for one in model.parameters() if not one.requires_grad)
    assert unused_by_text(toys.model()) == {}


def test_experts_that_no_token_went_to_are_not_unused():
    class Routed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False) for _ in range(3)])
            self.spare = torch.nn.Linear(2, 2)

    model = Routed()
    model.experts[0](torch.ones(2)).sum().backward()
    assert without_gradient(model) == {"spare": 6}


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2, alpha=4)])
def test_the_towers_are_frozen_in_what_is_trained_and_told_in_the_plan(tmp_path: Path, lora: LoraConfig | None):
    toys.multimodal().save_pretrained(tmp_path / "model")
    asked = toys.config(tmp_path / "out", model=str(tmp_path / "model"), lora=lora)
    shape = describe_model(asked)
    assert shape.unused.keys() == TOWERS
    assert shape.has_adapters == (lora is not None)
    model = load_model(asked, "fp32", gradient_checkpointing=False, unused=shape.unused)
    trained = {name for name, one in model.named_parameters() if one.requires_grad}
    assert trained
    assert not any("vision" in name or "multi_modal" in name for name in trained)
    assert shape.trainable == sum(one.numel() for one in model.parameters() if one.requires_grad)
    # A backward pass reaches all of them: none is waited for.
    after_a_backward_pass(model)
    assert without_gradient(model) == {}


def test_towers_named_by_hand_get_no_adapters_either(tmp_path: Path):
    toys.multimodal().save_pretrained(tmp_path / "model")
    targets = r".*(q_proj|fc1)"  # fc1 is in the vision tower alone
    asked = toys.config(tmp_path / "out", model=str(tmp_path / "model"), lora=LoraConfig(rank=2, targets=targets))
    model: Any = load_model(asked, "fp32", gradient_checkpointing=False, unused=describe_model(asked).unused)
    adapted = {name for name, one in model.named_parameters() if one.requires_grad}
    assert adapted
    assert all(".language_model." in name for name in adapted)
