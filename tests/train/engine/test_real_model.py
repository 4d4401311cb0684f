"""A real pretrained model, SmolLM2-135M-Instruct: its weights, its tokens, a training and an evaluation."""

import json
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
import pytest
import real_model
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

import refinesynth as rs
from refinesynth.cli import app
from refinesynth.files.gguf import unpack_gguf
from refinesynth.settings.grounding import Grounding
from refinesynth.train import Trainer
from refinesynth.train.data import read_conversations
from refinesynth.train.render import Renderer
from refinesynth.train.tokens import Label

pytest.importorskip("gguf", reason="needs the extra gguf")
pytest.importorskip("inspect_ai", reason="needs the extra evaluate")

import gguf
from gguf_files import gguf_name, unpermuted
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageUser, GenerateConfig

from refinesynth.evaluate.inspect_models import open_model

pytestmark = [
    pytest.mark.train,
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:The 'initial' parameter:DeprecationWarning"),
]
END = "<|im_end|>"


@pytest.fixture
def smol(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The GGUF file; it is unpacked once for all runs of the tests."""
    try:
        path = real_model.smollm2()
    except OSError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("REFINESYNTH_CACHE", str(real_model.cache()))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four short worlds."""
    folder = tmp_path_factory.mktemp("real") / "run"
    personas = [f"a nurse with the number {at}" for at in range(12)]

    async def rehearse() -> int:
        grounding = Grounding(terse=True)
        return len(
            await rs.synthesize(personas, n=4, backend="rehearsal", play="grounded", grounding=grounding, output=folder)
        )

    assert anyio.run(rehearse) == 4
    return folder


def test_every_weight_is_that_of_the_file(smol: Path):
    model: Any = AutoModelForCausalLM.from_pretrained(unpack_gguf(str(smol)), dtype="auto")
    tensors = {one.name: one for one in gguf.GGUFReader(str(smol)).tensors}
    weights = dict(model.named_parameters())
    assert {gguf_name(name) for name in weights} == tensors.keys()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    for name, weight in weights.items():
        stored = tensors[gguf_name(name)]
        there = torch.tensor(gguf.dequantize(stored.data, stored.tensor_type))
        assert torch.equal(weight, unpermuted(name, there, model.config)), name


def test_the_trained_tokens_are_the_right_turns_and_their_ends(smol: Path, run: Path):
    tokenizer = AutoTokenizer.from_pretrained(unpack_gguf(str(smol)))
    mistakes = 0
    for conversation in read_conversations(run):
        (example,) = Renderer(tokenizer).render(conversation)
        labelled = groupby(
            zip(example.labels.tolist(), example.input_ids.tolist(), strict=True), key=lambda one: one[0]
        )
        trained = [tokenizer.decode([id_ for _, id_ in each]) for label, each in labelled if label == Label.TRAINED]
        turns = [one for one in conversation.turns if one.role == "assistant"]
        wrong = [one for one in turns if one.label == "mistake"]
        assert trained == [one.content + END for one in turns if one not in wrong]
        mistakes += len(wrong)
        messages = [{"role": one.role, "content": one.content} for one in conversation.turns]
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        assert text.startswith(tokenizer.decode(example.input_ids))  # the last observation gives no loss
    assert mistakes


def test_twenty_steps_lower_the_loss_and_the_saved_model_answers_as_it_learned(smol: Path, tmp_path: Path):
    said = "Thought: the lamp is dark.\nAction: light the lamp"
    records = [
        {
            "messages": [
                {"role": "user", "content": f"Goal {at}: light."},
                {"role": "assistant", "content": "Action: shout at the lamp", "loss": False},
                {"role": "user", "content": "Nothing happens."},
                {"role": "assistant", "content": said, "loss": True},
            ]
        }
        for at in range(10)
    ]
    data = tmp_path / "talks.jsonl"
    data.write_text("\n".join(map(json.dumps, records)))
    fields: dict[str, Any] = {"batch_size": 1, "max_steps": 20, "learning_rate": 1e-4, "log_every": 1}
    out = tmp_path / "tuned"
    Trainer(
        model=smol, data=data, output=out, precision="fp32", device="cpu", held_out=0, save_every="never", **fields
    ).train()
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 20
    assert losses[-1] < losses[0] / 4
    tuned = open_model(str(out), temperature=0.0, settings={})
    asked: list[ChatMessage] = [
        ChatMessageUser(content="Goal 77: light."),
        ChatMessageAssistant(content="Action: shout at the lamp"),
        ChatMessageUser(content="Nothing happens."),
    ]
    answer = anyio.run(lambda: tuned.generate(asked, config=GenerateConfig(max_tokens=24)))
    assert answer.completion.strip() == said


@pytest.mark.parametrize("role", ["script_writer", "dungeon_master", "player"])
def test_prompts_leave_room_for_an_answer_in_its_window(role: str, smol: Path):
    tokenizer = AutoTokenizer.from_pretrained(unpack_gguf(str(smol)))
    shown = CliRunner().invoke(app, ["prompts", "show", role, "--json"])
    request = json.loads(shown.stdout)
    found = len(tokenizer.apply_chat_template(request["messages"])["input_ids"])
    assert found < 6_000, f"of 8,192 tokens the {role}'s prompt takes {found}"


FEWER = {
    "pip install 'refinesynth[gguf,evaluate]'": ":",
    "-n 32": "-n 4",
    "-n 8": "-n 4",
    "--max-steps 20": "--max-steps 1",
    "--limit 4 --steps 6 --max-tokens 48": "--limit 1 --steps 1 --max-tokens 4",
}
"""Shorter forms of the demonstration's commands."""


@pytest.mark.usefixtures("smol")
def test_the_demonstration_of_the_docs_runs(tmp_path: Path, warm: Path):
    page = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")
    code = page.partition("## A real model on a CPU")[2].partition("```bash\n")[2].partition("```")[0]
    for written, shorter in FEWER.items():
        assert written in code
        code = code.replace(written, shorter)
    programs = f"{warm}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PATH": programs, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert "hf/real" in done.stdout
