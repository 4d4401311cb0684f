"""Inputs of a training that are not there are refused before data is read."""

from pathlib import Path
from typing import Any

import pytest

from refinesynth.errors import InputError
from refinesynth.train import Trainer
from refinesynth.train.inputs import pretrained_arguments

pytestmark = pytest.mark.train


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": ["runs/nothere"]}, "there is no file or folder 'runs/nothere'"),
        ({"data": ["runs/first", "a/b.jsonl"]}, "there is no file or folder 'a/b.jsonl'"),
        ({"data": ["runs"]}, "no file or folder 'runs/trajectories.jsonl'"),
        ({"chat_template": "lama-3", "model": "scratch"}, "'lama-3' is none of llama-3, chatml, react, and as a file"),
        ({"tokenizer": "model.bin"}, "no tokenizer can be loaded from 'model.bin'"),
    ],
)
def test_what_is_not_here_is_said(
    fields: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "trajectories.jsonl").touch()
    (tmp_path / "model.bin").touch()
    given: dict[str, Any] = {"model": "model.bin", "data": ["runs/first"], "output": "out", **fields}
    trainer = Trainer(**given)
    for look in (trainer.preview, trainer.plan, trainer.train):
        with pytest.raises(InputError, match=message):
            look()
    assert not Path("out").exists()


def test_what_is_here_has_no_revision(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no revision 'v1'"):
        pretrained_arguments(str(tmp_path), "v1")
    assert pretrained_arguments("a/b", "v1")["revision"] == "v1"
