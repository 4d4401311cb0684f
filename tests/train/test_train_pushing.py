"""Pushing a finished model to the hub, which is a double here."""

import fnmatch
from pathlib import Path
from typing import Any

import pytest
from train_values import a_config, a_plan, a_result

from refinesynth.errors import ConfigurationError, InputError, TrainingError
from refinesynth.train import pushing
from refinesynth.train.artefacts import Artefacts
from refinesynth.train.trainer import train


class Hub:
    """Remembers what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.pushed: list[str] = []
        self.broken = False

    def create_repo(self, repo_id: str, **given: Any) -> Any:
        self.asked.append((repo_id, given))
        if self.broken:
            raise OSError("401 Unauthorized")
        return type("Url", (), {"repo_id": f"me/{repo_id}" if "/" not in repo_id else repo_id})

    def create_branch(self, repo_id: str, **given: Any) -> None:
        self.asked.append((repo_id, given))

    def upload_folder(self, *, folder_path: Path, allow_patterns: Any, ignore_patterns: Any, **given: Any) -> None:
        self.asked.append(("upload", given))
        there = [str(path.relative_to(folder_path)) for path in sorted(folder_path.rglob("*")) if path.is_file()]
        allowed = [name for name in there if any(fnmatch.fnmatch(name, each) for each in allow_patterns)]
        self.pushed = [name for name in allowed if not any(fnmatch.fnmatch(name, each) for each in ignore_patterns)]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr(pushing, "_hub", lambda: hub)
    return hub


def finish(output: Path, **trainer: Any) -> None:
    config = a_config(output=str(output), plots=False, trainer=trainer)
    artefacts = Artefacts(config)
    artefacts.planned(a_plan(config))
    for name in ("model.safetensors", "notes.md", "checkpoints/checkpoint-1/model.safetensors", "tokenizer.json"):
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text("x")
    artefacts.finish(a_result(output))
    artefacts.close()


def test_nothing_is_pushed_unasked(tmp_path: Path, hub: Hub) -> None:
    finish(tmp_path / "first", hub_model_id="me/first")
    finish(tmp_path / "second", push_to_hub=False)
    assert hub.asked == []


def test_the_model_is_pushed_with_its_card_and_without_checkpoints(tmp_path: Path, hub: Hub) -> None:
    finish(tmp_path / "first", push_to_hub=True, hub_private_repo=True, hub_revision="v1")
    assert hub.asked[0] == ("first", {"private": True, "exist_ok": True})
    assert {"model.safetensors", "tokenizer.json", "README.md", "train.yaml", "result.json"} <= set(hub.pushed)
    assert not [name for name in hub.pushed if "checkpoint" in name or name == "notes.md"]
    assert hub.asked[-1][1]["repo_id"] == "me/first"
    assert hub.asked[-1][1]["revision"] == "v1"


def test_what_is_neither_yes_nor_no_is_refused(tmp_path: Path, hub: Hub) -> None:
    with pytest.raises(ConfigurationError, match=r"trainer\.push_to_hub is 'maybe'; expected true or false"):
        finish(tmp_path / "first", push_to_hub="maybe")
    assert hub.asked == []


def test_a_hub_that_refuses_is_said_before_the_first_step(tmp_path: Path, hub: Hub) -> None:
    hub.broken = True
    config = a_config(output=str(tmp_path / "first"), plots=False, trainer={"push_to_hub": True, "hub_model_id": "a/b"})
    artefacts = Artefacts(config)
    with pytest.raises(InputError, match=r"cannot be pushed to 'a/b'.*401 Unauthorized.*hf auth login"):
        artefacts.planned(a_plan(config))
    artefacts.close()


def test_what_could_not_be_pushed_is_pushed_by_the_same_command(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = a_config(output=str(tmp_path / "first"), plots=False, trainer={"push_to_hub": True})
    artefacts = Artefacts(config)
    artefacts.planned(a_plan(config))
    hub.broken = True
    with pytest.raises(TrainingError, match=r"lies whole in .*first.*, but pushing it failed.*The same command"):
        artefacts.finish(a_result(tmp_path / "first"))
    artefacts.close()
    hub.broken = False
    assert train(config) == a_result(tmp_path / "first")
    assert "README.md" in hub.pushed
