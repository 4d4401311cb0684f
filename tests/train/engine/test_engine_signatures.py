"""A release of a library that changes a function without a promise is refused at once, with the version that works."""

from importlib import metadata
from pathlib import Path

import engine_toys as toys
import pytest
import torch.distributed.elastic.multiprocessing.api as elastic
from packaging.requirements import Requirement
from transformers import core_model_loading

from refinesynth.errors import ConfigurationError
from refinesynth.train import ranks
from refinesynth.train.engine import agent, plan, run, signatures
from refinesynth.train.engine.launching import check_trainer

pytestmark = pytest.mark.train


def test_the_versions_that_are_called_tested_are_allowed_ones() -> None:
    for package, version in signatures._TESTED.items():
        every = [Requirement(each) for each in metadata.requires("refinesynth") or ()]
        (allowed,) = [each for each in every if each.name == package and "train" in str(each.marker)]
        assert allowed.specifier.contains(version)


def test_a_changed_function_ends_every_way_into_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_model_loading, "revert_weight_conversion", lambda model, state_dict, prefix: None)
    (tmp_path / "data.jsonl").write_text("{}\n")
    asked = toys.config(tmp_path / "out", data=(str(tmp_path / "data.jsonl"),), model="scratch")
    for way in (run, plan, check_trainer):
        with pytest.raises(ConfigurationError) as caught:
            way(asked)
        said = str(caught.value)
        assert "revert_weight_conversion takes (model, state_dict, prefix), not (model, state_dict)" in said
        assert "transformers 5.23.0 works: pip install 'transformers==5.23.0'" in said
    monkeypatch.delattr(core_model_loading, "revert_weight_conversion")
    with pytest.raises(ConfigurationError, match="revert_weight_conversion is not there"):
        check_trainer(asked)


def test_a_changed_launcher_is_told_to_whoever_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic, "_terminate_process_handler", lambda signum: None)
    monkeypatch.setenv(ranks.OUTCOME, str(tmp_path / "outcome.json"))
    assert agent.main(["--help"]) == 2
    with pytest.raises(ConfigurationError, match=r"the installed torch .* takes \(signum\), not \(signum, frame\)"):
        ranks.read_outcome(tmp_path / "outcome.json")
