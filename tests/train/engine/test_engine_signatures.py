"""A release of a library that changes what is overridden here is refused at once, with the version that works."""

from importlib import metadata
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import torch.distributed.elastic.multiprocessing.api as elastic
from packaging.requirements import Requirement
from transformers import Trainer
from transformers.utils import chat_template_utils

from refinesynth.errors import ConfigurationError
from refinesynth.train import ranks
from refinesynth.train.engine import agent, plan, run, signatures
from refinesynth.train.engine.launching import check_trainer
from refinesynth.train.preview import preview_data

pytestmark = pytest.mark.train


def test_the_versions_that_are_called_tested_are_allowed_ones() -> None:
    for package, version in signatures._TESTED.items():
        every = [Requirement(each) for each in metadata.requires("refinesynth") or ()]
        (allowed,) = [each for each in every if each.name == package and "train" in str(each.marker)]
        assert allowed.specifier.contains(version)


def test_every_method_of_the_trainer_that_is_overridden_is_in_the_table() -> None:
    from refinesynth.train.engine.saving import SavingTrainer
    from refinesynth.train.engine.trainer import RefinementTrainer

    ours = {name for each in (RefinementTrainer, SavingTrainer) for name, one in vars(each).items() if callable(one)}
    overridden = {name for name in ours if hasattr(Trainer, name) and not name.startswith("__")}
    assert {f"transformers:Trainer.{name}" for name in overridden} <= signatures.TRAINING.keys()


def changed(self: Any, model: Any, trial: Any, metrics: Any) -> None: ...


def test_a_changed_method_ends_every_way_into_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "_save_checkpoint", changed)
    monkeypatch.delattr(Trainer, "_load_best_model")
    (tmp_path / "data.jsonl").write_text("{}\n")
    asked = toys.config(tmp_path / "out", data=(str(tmp_path / "data.jsonl"),), model="scratch")
    for way in (run, plan, check_trainer):
        with pytest.raises(ConfigurationError) as caught:
            way(asked)
        said = str(caught.value)
        assert "Trainer._save_checkpoint takes (self, model, trial, metrics), not (self, model, trial)" in said
        assert "Trainer._load_best_model is not there" in said
        assert "transformers 5.23.0 works: pip install 'transformers==5.23.0'" in said


def test_a_changed_rendering_ends_a_preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template_utils, "render_jinja_template", lambda conversation: conversation)
    (tmp_path / "data.jsonl").write_text("{}\n")
    asked = toys.config(tmp_path / "out", data=(str(tmp_path / "data.jsonl"),), model="scratch")
    with pytest.raises(ConfigurationError, match="render_jinja_template takes"):
        preview_data(asked, 1)


def test_a_changed_launcher_is_told_to_whoever_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic, "_terminate_process_handler", lambda signum: None)
    monkeypatch.setenv(ranks.OUTCOME, str(tmp_path / "outcome.json"))
    assert agent.main(["--help"]) == 2
    with pytest.raises(ConfigurationError, match=r"the installed torch .* takes \(signum\), not \(signum, frame\)"):
        ranks.read_outcome(tmp_path / "outcome.json")
