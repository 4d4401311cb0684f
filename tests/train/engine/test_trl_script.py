"""The script of docs/training.md for TRL trains on the exported token ids and labels."""

import json
import re
from pathlib import Path
from typing import Any

import engine_toys as toys
import pytest
import tiny
from test_engine_whole import records
from transformers import AutoModelForCausalLM

from refinesynth.train import write_tokens

pytestmark = [
    pytest.mark.train,
    # TRL sets transformers' setting by its old name.
    pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning"),
]

PAGE = Path(__file__).parents[3] / "docs" / "training.md"


def test_the_script_for_trl_trains_on_exported_labels_and_saves_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    tokenizer = tiny.tokenizer("chatml")
    tokenizer.save_pretrained("models/first")
    toys.model(vocab_size=len(tokenizer)).save_pretrained("models/first")
    written = write_tokens(records(), "tokens.jsonl", model="models/first")
    (script,) = re.findall(r"```python\n([^`]*SFTTrainer[^`]*)```", PAGE.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(script, str(PAGE), "exec"), names)
    wanted = [json.loads(line) for line in Path("tokens.jsonl").read_text("utf-8").splitlines()]
    trainer = names["trainer"]
    found = [trainer.data_collator([row]) for row in trainer.train_dataset]
    assert [{name: row[name][0].tolist() for name in ("input_ids", "labels")} for row in found] == wanted
    assert sum(label != -100 for row in wanted for label in row["labels"]) == written.counts.trained_tokens
    assert trainer.state.global_step == 1
    before, after = (AutoModelForCausalLM.from_pretrained(f"models/{name}").lm_head.weight for name in ("first", "trl"))
    assert not before.equal(after)
