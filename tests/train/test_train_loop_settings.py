"""Settings of the training loop that few need: which there are, and what is refused; no torch."""

from pathlib import Path
from typing import Any

import pytest
from train_values import a_config, a_plan, a_result

from refinesynth.errors import ConfigurationError, InputError
from refinesynth.train.layered_settings import explained_yaml, layered, to_yaml
from refinesynth.train.training_folder import check_output, open_output, write_result


def refusal(**fields: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        a_config(**fields)
    return str(caught.value)


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"trainer.optm": "adamw_8bit"}, "did you mean trainer.optim"),
        ({"trainer": {"neftune_alpha": 5}}, "did you mean trainer.neftune_noise_alpha"),
        ({"trainer.epochs": 3}, "did you mean epochs?"),
        ({"optim": "adamw_8bit"}, "no setting 'optim' (command line); did you mean trainer.optim?"),
        ({"trainer": {"": 1}}, "no setting 'trainer.'"),
        ({"trainer": {"optim": "adamw"}}, "trainer.optim is 'adamw' (command line): Input should be 'adamw_8bit'"),
        ({"trainer": {"neftune_noise_alpha": "five"}}, "trainer.neftune_noise_alpha is 'five'"),
        ({"trainer": {"ddp_timeout": 1.5}}, "trainer.ddp_timeout is 1.5"),
        ({"trainer": {"report_to": "wnadb"}}, "Input should be 'tensorboard', 'wandb'"),
        ({"trainer": {"label_smoothing_factor": 0.1}}, "no setting 'trainer.labe"),
        ({"schedule": "greedy"}, "schedule is 'greedy' (command line): Input should be 'cosine', 'linear'"),
    ],
)
def test_an_unknown_field_is_refused_with_the_one_that_is_meant(fields: dict[str, Any], meant: str) -> None:
    assert meant in refusal(**fields)


def test_trackers_are_one_or_several() -> None:
    for given, wanted in (
        ("wandb", ("wandb",)),
        (["wandb", "tensorboard"], ("wandb", "tensorboard")),
    ):
        assert a_config(trainer={"report_to": given}).trainer.report_to == wanted
    assert a_config(trainer=None).trainer == a_config().trainer


def test_fields_are_written_and_read_again(tmp_path: Path) -> None:
    found = layered(given={"data": ["a"], "model": "m", "output": "o", "trainer.neftune_noise_alpha": 5})
    for text in (to_yaml(found.config), explained_yaml(found)):
        file = tmp_path / "train.yaml"
        file.write_text(text)
        assert layered(file=file).config == found.config


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({}, {"report_to": "wandb", "ddp_timeout": 60}, None),
        ({"ddp_timeout": 60}, {}, None),
        ({}, {"neftune_noise_alpha": 5}, "trainer.neftune_noise_alpha was None and is 5.0"),
        ({"optim": "paged_adamw_8bit"}, {"optim": "adamw_8bit"}, "trainer.optim was 'paged_adamw_8bit'"),
    ],
)
def test_what_decides_about_the_weights_must_stay(
    tmp_path: Path, before: dict[str, Any], now: dict[str, Any], said: str | None
) -> None:
    began = a_config(output=str(tmp_path / "out"), trainer=before)
    open_output(began, a_plan(began)).release()
    write_result(result := a_result(tmp_path / "out"))
    again = a_config(output=str(tmp_path / "out"), trainer=now)
    if said is None:
        assert check_output(again) == result
    else:
        with pytest.raises(InputError) as caught:
            check_output(again)
        assert said in str(caught.value)
