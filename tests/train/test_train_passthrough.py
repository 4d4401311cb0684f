"""Fields of the library's arguments that a user gives: which are passed on, which are refused and why; no torch."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from train_values import a_config, a_plan

from refinesynth.errors import ConfigurationError, InputError
from refinesynth.train import passthrough
from refinesynth.train.config import TrainConfig
from refinesynth.train.folder import check_output, open_output
from refinesynth.train.layers import explained_yaml, layered, to_yaml


def refusal(**fields: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        a_config(**fields)
    return str(caught.value)


@pytest.mark.train
def test_the_fields_are_those_of_the_library() -> None:
    import transformers

    assert passthrough.field_names() == {
        one.name for one in dataclasses.fields(transformers.TrainingArguments) if one.init
    }


@pytest.mark.parametrize("name", ["label_smoothing_factor", "group_by_length", "remove_unused_columns", "hub_token"])
def test_what_would_change_the_loss_is_refused_with_why(name: str) -> None:
    assert f"trainer.{name} is not passed on: " in refusal(**{f"trainer.{name}": 1})


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("per_device_train_batch_size", "batch_size"),
        ("gradient_accumulation_steps", "batch_size"),
        ("num_train_epochs", "epochs"),
        ("max_steps", "max_steps"),
        ("bf16", "precision"),
        ("fp16", "precision"),
        ("fsdp", "parallel"),
        ("deepspeed", "deepspeed"),
        ("output_dir", "output"),
        ("eval_strategy", "evaluate_every"),
        ("save_strategy", "save_every"),
        ("resume_from_checkpoint", "resume"),
        ("lr_scheduler_type", "schedule"),
    ],
)
def test_what_is_a_setting_of_our_own_is_named(name: str, own: str) -> None:
    assert f"; give {own} instead" in refusal(**{f"trainer.{name}": 1})


def test_every_refusal_names_a_setting_that_there_is() -> None:
    for name in passthrough.field_names():
        own = passthrough.instead_of(name)
        assert own is None or own.startswith("trainer.") or own in TrainConfig.model_fields


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"trainer.optm": "adafactor"}, "did you mean trainer.optim?"),
        ({"trainer": {"neftune_alpha": 5}}, "did you mean trainer.neftune_noise_alpha"),
        ({"trainer.epochs": 3}, "epochs is a setting of its own"),
        ({"optim": "adafactor"}, "no setting 'optim' (command line); did you mean trainer.optim?"),
        ({"num_train_epochs": 3}, "did you mean epochs?"),
        ({"trainer": {"": 1}}, "trainer. is no field"),
    ],
)
def test_an_unknown_field_is_refused_with_the_one_that_is_meant(fields: dict[str, Any], meant: str) -> None:
    assert meant in refusal(**fields)


def test_all_wrong_fields_are_named_at_once() -> None:
    said = refusal(trainer={"optm": 1, "bf16": True})
    assert "trainer.optm" in said
    assert "trainer.bf16" in said


def test_fields_are_written_and_read_again(tmp_path: Path) -> None:
    layers = layered(
        given={"data": ["a"], "model": "m", "output": "o", "trainer.lr_scheduler_kwargs": {"min_lr": 1e-6}}
    )
    for text in (to_yaml(layers.config), explained_yaml(layers)):
        file = tmp_path / "train.yaml"
        file.write_text(text)
        assert layered(file=file).config == layers.config


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({}, {"report_to": "wandb", "run_name": "x", "ddp_timeout": 60, "logging_first_step": True}, None),
        ({"ddp_timeout": 60}, {}, None),
        ({}, {"neftune_noise_alpha": 5}, "trainer was {} and is {'neftune_noise_alpha': 5}"),
        ({"optim": "adafactor"}, {"optim": "adamw_torch"}, "trainer was {'optim': 'adafactor'}"),
    ],
)
def test_what_decides_about_the_weights_must_stay(
    tmp_path: Path, before: dict[str, Any], now: dict[str, Any], said: str | None
) -> None:
    began = a_config(output=str(tmp_path / "out"), trainer=before)
    open_output(began, a_plan(began)).release()
    (tmp_path / "out" / "checkpoints" / "checkpoint-10").mkdir(parents=True)
    again = a_config(output=str(tmp_path / "out"), trainer=now)
    if said is None:
        assert check_output(again) is None
    else:
        with pytest.raises(InputError) as caught:
            check_output(again)
        assert said in str(caught.value)
