"""The first examples of the data, read and rendered in earnest with a tiny tokenizer."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
import tiny
from typer.testing import CliRunner

import refinesynth as rs
from refinesynth.chat import to_messages
from refinesynth.cli import app
from refinesynth.errors import InputError
from refinesynth.files import compressed
from refinesynth.files.compressed import open_binary
from refinesynth.train import Trainer
from refinesynth.train.tokens import Label

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer and no weights."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny.tokenizer("chatml").save_pretrained(str(folder))
    return folder


def say(role: str, text: str, *, loss: bool) -> dict[str, Any]:
    return {"from": role, "value": text, "loss": loss}


def a_record(number: int) -> dict[str, Any]:
    return {
        "id": f"talk-{number}",
        "conversations": [
            say("human", "You are in a kitchen.", loss=False),
            say("gpt", "Thought: fly.\nAction: fly to shelf", loss=False),
            say("human", "Nothing happens.", loss=False),
            say("gpt", "Thought: walk.\nAction: go to shelf", loss=True),
        ],
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "talks.jsonl"
    path.write_bytes(b"".join(orjson.dumps(a_record(number)) + b"\n" for number in range(5)))
    return path


def trainer(data: Path, model: Path, **fields: Any) -> Trainer:
    return Trainer(data=data, model=model, output=data.parent / "out", **fields)


def test_mistakes_context_and_trained_turns_are_told_apart(data: Path, model: Path) -> None:
    first, second = trainer(data, model).preview(2)
    assert (first.id, second.id) == ("talk-0", "talk-1")
    by_label = {label: "".join(part.text for part in first.segments if part.label is label) for label in Label}
    assert by_label[Label.TRAINED] == "Thought: walk.\nAction: go to shelf<|im_end|>"
    assert by_label[Label.MISTAKE] == "Thought: fly.\nAction: fly to shelf<|im_end|>"
    assert "You are in a kitchen." in by_label[Label.CONTEXT]
    assert first.trained == sum(part.tokens for part in first.segments if part.label is Label.TRAINED)
    assert [path.name for path in data.parent.iterdir()] == ["talks.jsonl"], "nothing is written"


def test_what_would_be_left_out_is_left_out(data: Path, model: Path) -> None:
    assert trainer(data, model, max_length=10).preview(3) == []
    assert trainer(data, model, loss_on="no_refinement_turns").preview(3) == []


def test_what_is_not_read_to_its_end_is_closed(data: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def kept(path: Path) -> Any:
        opened.append(open_binary(path))
        return opened[-1]

    monkeypatch.setattr(compressed, "open_binary", kept)
    assert len(trainer(data, model).preview(2)) == 2
    assert [each.closed for each in opened] == [True]


def test_no_more_is_read_than_is_shown(data: Path, model: Path) -> None:
    with data.open("ab") as file:
        file.write(b"no json\n" + orjson.dumps(a_record(9)) + b"\n")
    assert len(trainer(data, model).preview(2)) == 2
    with pytest.raises(InputError, match=r"talks\.jsonl:6"):
        trainer(data, model).preview(9)


@pytest.mark.process
@pytest.mark.parametrize("how", [["--preview"], ["--dry-run", "--json"]])
def test_libraries_say_nothing_across_what_is_shown(how: list[str], data: Path) -> None:
    options = ["--model", "scratch", "--held-out", "0", "--deepspeed", "zero3"]
    command = [sys.executable, "-m", "refinesynth", "train", str(data), *options, *how]
    without = {name: value for name, value in os.environ.items() if name != "DS_ACCELERATOR"}
    shown = subprocess.run(command, capture_output=True, text=True, env=without, check=False)
    assert (shown.stderr, shown.returncode) == ("", 0)
    if "--json" in how:
        assert orjson.loads(shown.stdout)["means"]["parallel"] == "zero3"
    else:
        assert shown.stdout.startswith("talk-0: ")


def test_show_prints_a_trajectory_as_tokens_with_those_that_carry_loss(model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"

    anyio.run(partial(rs.synthesize, n=3, backend="rehearsal", output=run, seed=5))
    trajectory = next(one for one in rs.SynthesisResult.open(run) if one.mistakes())
    result = CliRunner().invoke(app, ["show", str(run), trajectory.id, "--mask", str(model)], env={"COLUMNS": "2000"})
    assert result.exit_code == 0, result.output
    rows = [line.strip() for line in result.stdout.splitlines()]
    for message in to_messages(trajectory):
        if message.role == "assistant":
            sign = "+" if message.loss else "✗"
            first = message.content.splitlines()[0]
            assert any(row.startswith(sign) and first in row for row in rows), (sign, first)
    assert CliRunner().invoke(app, ["show", str(run), "--mask", str(tmp_path / "none")]).exit_code == 2
