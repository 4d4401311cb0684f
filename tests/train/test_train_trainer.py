"""`refinesynth.train.Trainer` and the names that the package hands on; the engine is a double."""

from pathlib import Path
from typing import Any

import pytest
from train_values import FINISHED, a_plan, a_result

import refinesynth.train
from refinesynth.errors import ConfigurationError
from refinesynth.train import Trainer
from refinesynth.train.config import TrainConfig
from refinesynth.train.events import Events, TrainResult
from refinesynth.train.plan import Plan


class Noting:
    """Remembers what kinds of events it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def tell(*_: object) -> None:
            self.told.append(name)

        return tell


def tell(events: Events, output: Path, plan: Plan) -> None:
    events.planned(plan)
    events.note("hello")
    events.logged(1, {"loss": 1.0})
    events.evaluated(1, {"loss": 2.0})
    events.saved(output)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """What the engine was asked for."""
    asked: list[TrainConfig] = []

    def launch(config: TrainConfig, *, events: Events | None = None, sources: object = None) -> TrainResult:
        asked.append(config)
        if events is not None:
            tell(events, Path(config.output), a_plan(config))
        return a_result(Path(config.output))

    def plan(config: TrainConfig, *, sources: object = None) -> Plan:
        return a_plan(config)

    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("refinesynth.train.engine.launch", launch)
    monkeypatch.setattr("refinesynth.train.engine.plan", plan)
    return asked


def trainer(output: Path, **fields: Any) -> Trainer:
    return Trainer(model="m/base", data="runs/first", output=output, **fields)


def test_every_public_name_is_there() -> None:
    for name in refinesynth.train.__all__:
        assert getattr(refinesynth.train, name) is not None
    assert set(refinesynth.train.__all__) <= set(dir(refinesynth.train))
    with pytest.raises(AttributeError, match="no attribute 'Trainr'"):
        _ = refinesynth.train.Trainr  # pyright: ignore


def test_fields_override_the_recipe(tmp_path: Path) -> None:
    config = Trainer(model=Path("m"), data=[Path("a"), "b"], output=tmp_path, recipe="lora", epochs=1).config
    assert (config.model, config.data, config.epochs, config.warmup) == ("m", ("a", "b"), 1.0, 0.03)


def test_a_wrong_field_is_said_as_an_argument(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'learning_rat' \(argument\); did you mean learning_rate"):
        trainer(tmp_path, learning_rat=1)


def test_a_plan_writes_nothing(tmp_path: Path, launched: list[TrainConfig]) -> None:
    assert trainer(tmp_path / "out", epochs=1).plan().steps == 16
    assert launched == []
    assert list(tmp_path.iterdir()) == []


def test_training_tells_and_writes_and_is_done_once(tmp_path: Path, launched: list[TrainConfig]) -> None:
    noting: Any = Noting()
    result = trainer(tmp_path / "out").train(events=noting)
    assert result == a_result(tmp_path / "out")
    assert noting.told == ["planned", "note", "logged", "evaluated", "saved"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == FINISHED
    assert trainer(tmp_path / "out").train() == result
    assert len(launched) == 1


def test_a_rank_that_does_not_lead_tells_and_writes_nothing(
    tmp_path: Path, launched: list[TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    noting: Any = Noting()
    trainer(tmp_path / "out").train(events=noting)
    assert len(launched) == 1
    assert noting.told == []
    assert not (tmp_path / "out").exists()
