"""A training on two ranks under torchrun that a signal ends, and that goes on as one process."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import tiny

from refinesynth.train.engine import launch

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model and its data."""
    folder = tmp_path_factory.mktemp("launched")
    tokenizer = tiny.tokenizer("chatml")
    tokenizer.save_pretrained(str(folder / "model"))
    toys.model(vocab_size=len(tokenizer)).save_pretrained(str(folder / "model"))
    record: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": "Goal: bring the mug to the shelf."},
            {"role": "assistant", "content": "Action: go to tabel 1", "loss": False},
            {"role": "user", "content": "Error: invalid command format."},
            {"role": "assistant", "content": "Action: go to table 1", "loss": True},
        ]
    }
    lines = [json.dumps({"id": f"c{k}", **record}) for k in range(12)]
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_a_signal_to_torchrun_makes_both_ranks_save_and_they_go_on_from_there(made: Path):
    settings = toys.config(
        made / "out", data=(str(made / "data.jsonl"),), model=str(made / "model"), epochs=60, max_length=128
    )
    file = made / "train.yaml"
    file.write_text(settings.model_dump_json())
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "refinesynth.train",
    ]
    started = subprocess.Popen(
        [*command, "--config", str(file)], env=toys.environment(), stderr=subprocess.PIPE, text=True
    )
    metrics = made / "out" / "metrics.jsonl"
    until = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") > 3) and started.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    _, said = started.communicate(timeout=120)
    assert said.index("interrupted: finishing this step") < said.index("checkpoint-"), said
    (saved,) = (made / "out" / "checkpoints").iterdir()
    step = int(saved.name.removeprefix("checkpoint-"))
    assert 0 < step < 180
    # In place now, as one process: copies are copies, however many.
    result = launch(settings)
    assert result.signal is None
    assert (result.resumed_from, result.steps) == (step, 180)
    assert (made / "out" / "model.safetensors").exists()
