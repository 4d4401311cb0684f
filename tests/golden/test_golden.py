"""Formats, options, names and results are those that users have files and scripts for."""

from pathlib import Path
from typing import Any

import frozen
import orjson
import pytest


def before(name: str) -> Any:
    return orjson.loads((frozen.HERE / f"{name}.json").read_bytes())


@pytest.mark.parametrize("play", ["live", "narrated", "grounded"])
def test_exports_have_the_same_bytes(play: str, tmp_path: Path) -> None:
    source = frozen.trajectories(play, tmp_path)
    expected = before("exports")[play]
    assert {each: frozen.exported(source, each, tmp_path) for each in expected} == expected


def test_every_option_of_every_command_is_still_taken() -> None:
    now = frozen.commands()
    for command, options in before("commands").items():
        spelled = {name for option in now[command] for name in option.split()}
        assert {name for option in options for name in option.split()} - spelled == set(), command


def test_every_public_name_is_still_there() -> None:
    now = frozen.names()
    for module, names in before("names").items():
        assert set(names) - set(now[module]) == set(), module


def test_rules_are_called_as_in_logs() -> None:
    assert frozen.rules() == before("rules")


@pytest.mark.representative
@pytest.mark.train
def test_a_training_gives_the_same(tmp_path: Path) -> None:
    expected, found = before("training"), frozen.trained(tmp_path)
    assert found["files"] == expected["files"]
    assert len(found["metrics"]) == len(expected["metrics"])
    for one, other in zip(found["metrics"], expected["metrics"], strict=True):
        assert one == pytest.approx(other, rel=1e-3)
