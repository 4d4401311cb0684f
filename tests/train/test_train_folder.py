"""What may be in an output folder when a training begins, and what is written there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from train_values import LLAMA_8B, a_config, a_plan, a_result

from refinesynth.errors import InputError, StorageError
from refinesynth.train import training_folder
from refinesynth.train.config import TrainConfig
from refinesynth.train.layered_settings import layered, to_yaml
from refinesynth.train.training_folder import check_output, open_output, read_result, write_result

BEGINNING = {".refinesynth-training", "train.yaml", "plan.json"}
"""Files of a training that has not made a step."""
PLAN_OF_OURS = orjson.dumps(a_plan().as_json()).decode()


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "models" / "first"


def config(output: Path, **fields: Any) -> TrainConfig:
    return a_config(output=str(output), **fields)


def opened(output: Path, **fields: Any) -> None:
    """A training that is about to begin, or to go on."""
    asked = config(output, **fields)
    assert check_output(asked) is None
    open_output(asked, a_plan(asked))


def begun(output: Path, **fields: Any) -> None:
    """A training that has written a checkpoint."""
    opened(output, **fields)
    (output / "checkpoints" / "checkpoint-10").mkdir(parents=True)


@pytest.mark.parametrize("is_there", [True, False])
def test_an_empty_or_new_folder_gets_settings_and_plan(output: Path, is_there: bool) -> None:
    if is_there:
        (output / "checkpoints").mkdir(parents=True)
    opened(output, epochs=3)
    assert layered(file=output / "train.yaml").config == config(output, epochs=3)
    assert {path.name for path in output.iterdir() if path.is_file()} == BEGINNING


@pytest.mark.parametrize(
    "files",
    [
        {"train.yaml": "optimizer: mine\n"},
        {"train.yaml": to_yaml(a_config()), "plan.json": "{}", "model.safetensors": "precious"},
        {"train.yaml": to_yaml(a_config()), "plan.json": '{"sizes": {"digest": "x"}}', "config.json": "precious"},
        {"train.yaml": "- a list\n", "plan.json": PLAN_OF_OURS, "plots/loss.png": "precious"},
        {"thesis.tex": "precious"},
    ],
)
def test_a_folder_that_only_looks_like_a_training_is_left_as_it_is(output: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(text)
    asked = config(output)
    with pytest.raises(InputError, match="holds something else"):
        check_output(asked)
    with pytest.raises(InputError, match="holds something else"):
        open_output(asked, a_plan())
    assert {str(path.relative_to(output)): path.read_text() for path in output.rglob("*") if path.is_file()} == files
    assert [path.name for path in output.parent.iterdir()] == ["first"]


def test_other_ranks_find_a_training_that_is_being_begun(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, seen = config(output), list[set[str]]()

    def looked(*_: Any) -> None:
        assert check_output(asked) is None
        seen.append({path.name for path in output.iterdir()})

    monkeypatch.setattr(training_folder, "write_json_file", looked)
    open_output(asked, a_plan(asked))
    assert seen == [{".refinesynth-training"}]


@pytest.mark.parametrize("name", ["metrics.jsonl", "train.yaml", "model.safetensors", "checkpoints"])
def test_what_leads_out_of_the_folder_is_refused(output: Path, tmp_path: Path, name: str) -> None:
    opened(output)
    (output / name).unlink(missing_ok=True)
    (output / name).symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match=f"{name}' is a link"):
        check_output(config(output))
    assert not (tmp_path / "precious").exists()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        opened(tmp_path / "file" / "first")


def test_what_changes_no_result_may_change(output: Path) -> None:
    begun(output)
    opened(output)
    opened(output, parallel="ddp", tokens_per_pack=16_384, log_every=1)
    assert layered(file=output / "train.yaml").config.log_every == 1


def test_of_a_finished_training_other_data_is_refused_however_the_same_is_spelled(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    begun(output)
    write_result(result := a_result(output))
    for same in ("runs/first", "./runs/first/", str(tmp_path / "runs" / "first")):
        assert check_output(config(output, data=[same])) == result
    with pytest.raises(InputError, match=r"data was \['runs/first'\] and is \['runs/second'\]"):
        check_output(config(output, data=["runs/second"]))


def test_other_settings_are_refused_each_by_name(output: Path) -> None:
    begun(output)
    write_result(a_result(output))
    with pytest.raises(InputError) as caught:
        check_output(config(output, epochs=3, seed=1, log_every=1))
    text = str(caught.value)
    assert "epochs was 10.0 and is 3.0; seed was 0 and is 1." in text
    assert "log_every" not in text


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"ddp_timeout": 60}, {"report_to": "wandb"}, None),
        ({}, {"neftune_noise_alpha": 5}, r"trainer.neftune_noise_alpha was None and is 5\.0"),
        ({"optim": "paged_adamw_8bit"}, {"optim": "adamw_8bit"}, "trainer.optim was 'paged_adamw_8bit'"),
    ],
)
def test_settings_of_the_loop_that_decide_about_the_weights_must_stay(
    output: Path, before: dict[str, Any], now: dict[str, Any], said: str | None
) -> None:
    begun(output, trainer=before)
    write_result(result := a_result(output))
    again = config(output, trainer=now)
    if said is None:
        assert check_output(again) == result
        return
    with pytest.raises(InputError, match=said):
        check_output(again)


def test_before_the_first_checkpoint_settings_may_change(output: Path) -> None:
    opened(output)
    opened(output, epochs=3)
    assert layered(file=output / "train.yaml").config.epochs == 3


def test_a_finished_training_gives_its_result(output: Path) -> None:
    begun(output)
    assert read_result(output) is None
    result = a_result(output)
    write_result(result)
    assert read_result(output) == result
    assert check_output(config(output)) == result
    with pytest.raises(InputError, match="epochs"):
        check_output(config(output, epochs=3))


def test_a_folder_in_which_another_training_is_at_work_is_left_alone(output: Path) -> None:
    held = open_output(config(output), a_plan())
    before = {path: path.read_bytes() for path in output.iterdir()}
    other = config(output, log_every=3)
    with pytest.raises(InputError, match="in use by another training"):
        open_output(other, a_plan())
    assert {path: path.read_bytes() for path in output.iterdir()} == before
    assert [path.name for path in output.parent.iterdir()] == ["first"]
    held.release()
    open_output(other, a_plan())


def test_a_plan_names_nobodys_home(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada.l")
    open_output(config(output), a_plan(model=replace(LLAMA_8B, name="/home/ada.l/models/base")))
    text = (output / "plan.json").read_text()
    assert "ada.l" not in text
    assert orjson.loads(text)["model"]["name"] == "~/models/base"
